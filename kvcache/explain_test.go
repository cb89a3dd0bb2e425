package kvcache

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// timed returns a cache of that many blocks of 4 tokens and the time it goes by.
func timed(t *testing.T, blocks int) (*Manager, *time.Time) {
	t.Helper()
	now := time.Unix(1e9, 0).UTC()
	cfg := Config{Blocks: blocks, BlockSize: 4, Layers: 2, Heads: 2, HeadDim: 3}
	m, err := New(cfg, WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	return m, &now
}

func explain(t *testing.T, m *Manager, what, salt string, tokens []int32, want Explanation) {
	t.Helper()
	if got := m.Explain(salt, tokens); got != want {
		t.Errorf("%s:\n%+v, want\n%+v", what, got, want)
	}
}

func TestExplain(t *testing.T) {
	m, now := timed(t, 5)
	prompt := count(0, 10) // two blocks and two tokens
	explain(t, m, "never seen", "a", prompt, Explanation{Cold: 8, Tail: 2, Miss: MissCold})
	explain(t, m, "no tokens", "a", nil, Explanation{})
	explain(t, m, "one token", "a", count(0, 1), Explanation{Tail: 1})

	serve(t, m, "a", prompt, 0)
	explain(t, m, "repeated", "a", prompt, Explanation{Cached: 8, Tail: 2})
	explain(t, m, "a whole number of blocks", "a", count(0, 8), Explanation{Cached: 7, Tail: 1})
	explain(t, m, "going on", "a", count(0, 13), Explanation{Cached: 8, Cold: 4, Tail: 1, Miss: MissCold})
	explain(t, m, "parting in the second block", "a", append(count(0, 6), 90, 91, 92), Explanation{Cached: 6, Cold: 2, Tail: 1, Miss: MissCold})
	explain(t, m, "under another salt", "b", prompt, Explanation{Salt: 8, Tail: 2, Miss: MissSalt})
	explain(t, m, "half of it under another salt", "b", append(count(0, 4), count(90, 5)...), Explanation{Salt: 4, Cold: 4, Tail: 1, Miss: MissSalt})

	serve(t, m, "a", count(100, 16), 0) // 3 blocks free: evicts the second of the prompt
	*now = now.Add(90 * time.Second)
	explain(t, m, "one block evicted", "a", prompt, Explanation{Cached: 4, Evicted: 4, Tail: 2, Miss: MissEvicted, Age: 90 * time.Second})
	serve(t, m, "a", count(200, 16), 0) // all the rest
	*now = now.Add(30 * time.Second)
	explain(t, m, "all evicted, the first block later", "a", prompt, Explanation{Evicted: 8, Tail: 2, Miss: MissEvicted, Age: 30 * time.Second})
	explain(t, m, "evicted elsewhere, never seen here", "b", prompt, Explanation{Cold: 8, Tail: 2, Miss: MissCold})

	if _, err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Hour)
	explain(t, m, "reset", "a", count(200, 16), Explanation{Reset: 15, Tail: 1, Miss: MissReset, Age: time.Hour})
	serve(t, m, "a", count(200, 16), 0)
	explain(t, m, "back again", "a", count(200, 16), Explanation{Cached: 15, Tail: 1})
}

// TestExplainForgets: as many departures are remembered as the pool has blocks.
func TestExplainForgets(t *testing.T) {
	m, now := timed(t, 3)
	for first := int32(0); first < 7; first++ {
		serve(t, m, "", count(int(100*first), 4), 0)
		*now = now.Add(time.Minute)
	}
	// 7 blocks came, the last 3 are there, the 3 before them are remembered.
	var got []string
	for first := range 7 {
		e := m.Explain("", count(100*first, 5))
		got = append(got, e.Miss.String()+" "+e.Age.String())
	}
	want := []string{"cold 0s", "evicted 3m0s", "evicted 2m0s", "evicted 1m0s", "none 0s", "none 0s", "none 0s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFault03_hashes_collide: Explain goes by hashes, and nothing else does. With all of
// them the same it talks nonsense, and every row that is read is still right.
func TestFault03_hashes_collide(t *testing.T) {
	m, _ := timed(t, 6)
	m.past.hash = func(uint64, []int32) uint64 { return 1 }
	m.past.salt = func(string) uint64 { return 0 }
	for i := range 30 {
		prompt := append(count(0, 1+i%6), count(100*i%700, 5)...)
		if e := m.Explain("", prompt); e.Cached != m.Match("", prompt) {
			t.Errorf("%+v, but a match of %d", e, m.Match("", prompt))
		}
		s := start(t, m, []string{"a", "b"}[i%2], prompt, m.Match([]string{"a", "b"}[i%2], prompt))
		run(t, m, s, s.Len()-s.Computed()) // checks every row
		m.Free(s)
		sound(t, m)
	}
	if m.Stats().Evicted == 0 {
		t.Error("nothing was evicted")
	}
}

// TestFault14_what_a_tenant_may_know: the operator sees that another tenant has the same
// prompt cached. The tenant sees the same as if nobody had.
func TestFault14_what_a_tenant_may_know(t *testing.T) {
	prompt := count(0, 10)
	alone, _ := timed(t, 8)
	beside, _ := timed(t, 8)
	serve(t, beside, "bob", prompt, 0)
	if e := beside.Explain("alice", prompt); e.Miss != MissSalt || e.Salt != 8 {
		t.Errorf("the operator sees %+v, want 8 tokens under another salt", e)
	}
	if e := beside.Explain("bob", prompt); e.Cached != 8 || e.Miss != MissNone {
		t.Errorf("bob sees %+v, want 8 tokens cached", e)
	}
	got, want := beside.Explain("alice", prompt).ForTenant(), alone.Explain("alice", prompt).ForTenant()
	if got != want || want.Cold != 8 {
		t.Errorf("alice sees %+v beside bob, %+v alone", got, want)
	}
	// What happened to her own tokens she may know.
	serve(t, beside, "alice", prompt, 0)
	if _, err := beside.Reset(); err != nil {
		t.Fatal(err)
	}
	if e := beside.Explain("alice", prompt).ForTenant(); e.Miss != MissReset || e.Reset != 8 {
		t.Errorf("alice sees %+v, want 8 tokens reset", e)
	}
}

// TestFault17_reset_is_told: after a reset a miss says so, and is not a hit.
func TestFault17_reset_is_told(t *testing.T) {
	m, _ := timed(t, 8)
	serve(t, m, "", count(0, 12), 0)
	if _, err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	explain(t, m, "reset", "", count(0, 12), Explanation{Reset: 11, Tail: 1, Miss: MissReset})
	sound(t, m)
}

func TestMissNames(t *testing.T) {
	text, err := json.Marshal(Explanation{Cached: 4, Evicted: 3, Tail: 1, Miss: MissEvicted, Age: time.Second})
	if want := `{"cached":4,"cold":0,"evicted":3,"reset":0,"salt":0,"tail":1,"miss":"evicted","age":1000000000}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	if got := Miss(9).String(); got != "Miss(9)" {
		t.Errorf("%s", got)
	}
}

// TestCheckFindsABrokenPast breaks each of its invariants.
func TestCheckFindsABrokenPast(t *testing.T) {
	for _, d := range []struct {
		what string
		do   func(p *past)
		want string
	}{
		{"a block too many", func(p *past) { p.present[1] = 1 }, "are counted"},
		{"a wrong count", func(p *past) {
			for chain := range p.present {
				p.present[chain]++
			}
		}, "times"},
		{"another trace", func(p *past) {
			for id := range p.traces {
				p.traces[id].chain = 5
			}
		}, "in the tree"},
		{"a departure lost", func(p *past) { clear(p.latest) }, "not found by its path"},
		{"a departure misplaced", func(p *past) {
			for path := range p.latest {
				p.latest[path] = 1
			}
		}, "departure 1"},
		{"a departure beyond all", func(p *past) { p.latest[1] = 99 }, "departure 99"},
		{"too many departures", func(p *past) { p.departed = make([]departure, 9) }, "9 departures of 3"},
		{"a ring out of step", func(p *past) { p.next = 0 }, "the next one is 0"},
	} {
		m, _ := timed(t, 3)
		serve(t, m, "", count(0, 8), 0)
		serve(t, m, "", count(50, 12), 0)
		d.do(m.past)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: got %v, want it to say %q", d.what, err, d.want)
		}
	}
}

// TestClockBack: a clock that jumps back, or ahead by centuries, makes no age negative.
func TestClockBack(t *testing.T) {
	m, now := timed(t, 1)
	serve(t, m, "", count(0, 4), 0)
	*now = now.Add(time.Hour)
	serve(t, m, "", count(50, 4), 0)
	*now = now.Add(-2 * time.Hour)
	explain(t, m, "after a jump back", "", count(0, 5), Explanation{Evicted: 4, Tail: 1, Miss: MissEvicted})
	*now = now.AddDate(100, 0, 0)
	if e := m.Explain("", count(0, 5)); e.Age < 10*365*24*time.Hour {
		t.Errorf("evicted %v ago", e.Age)
	}
}
