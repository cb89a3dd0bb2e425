package policy

import (
	"slices"
	"testing"
)

func affinity(spoil func(*Options)) *PrefixAffinity {
	o := DefaultOptions()
	o.Ratio, o.MarginRequests, o.MarginTokens, o.MinShare = 1.5, 4, 1000, 0.25
	if spoil != nil {
		spoil(&o)
	}
	return NewPrefixAffinity(o)
}

func TestAffinityDecisions(t *testing.T) {
	r := prompt(1, 500, 1, 40) // 540 tokens: held from 135 on
	tests := []struct {
		name        string
		replicas    []Replica
		want        string
		reason      Reason
		spilledFrom string
	}{
		{"longest prefix",
			[]Replica{{ID: "a", Ready: true, Cached: 160}, {ID: "b", Ready: true, Cached: 480}, {ID: "c", Ready: true}},
			"b", ReasonLongestPrefix, ""},
		{"busy, but within the margin",
			[]Replica{{ID: "a", Ready: true}, {ID: "b", Ready: true, Cached: 480, Load: Load{1000, 4}}},
			"b", ReasonLongestPrefix, ""},
		{"one request beyond the margin",
			[]Replica{{ID: "a", Ready: true}, {ID: "b", Ready: true, Cached: 480, Load: Load{1000, 5}}},
			"a", ReasonSpill, "b"},
		{"one token beyond the margin",
			[]Replica{{ID: "a", Ready: true}, {ID: "b", Ready: true, Cached: 480, Load: Load{1001, 4}}},
			"a", ReasonSpill, "b"},
		{"within the ratio",
			[]Replica{{ID: "a", Ready: true, Load: Load{4000, 20}}, {ID: "b", Ready: true, Cached: 480, Load: Load{6000, 30}}},
			"b", ReasonLongestPrefix, ""},
		{"beyond the ratio",
			[]Replica{{ID: "a", Ready: true, Load: Load{4000, 20}}, {ID: "b", Ready: true, Cached: 480, Load: Load{6000, 31}}},
			"a", ReasonSpill, "b"},
		{"spill to the next longest, not to the idle one",
			[]Replica{{ID: "a", Ready: true}, {ID: "b", Ready: true, Cached: 480, Load: Load{0, 9}},
				{ID: "c", Ready: true, Cached: 320, Load: Load{200, 2}}},
			"c", ReasonSpill, "b"},
		{"a spill follows no prefix that is too short",
			[]Replica{{ID: "a", Ready: true}, {ID: "b", Ready: true, Cached: 480, Load: Load{0, 9}},
				{ID: "c", Ready: true, Cached: 64, Load: Load{200, 2}}},
			"a", ReasonSpill, "b"},
		{"equal prefixes: the less loaded",
			[]Replica{{ID: "a", Ready: true, Cached: 480, Load: Load{80, 2}}, {ID: "b", Ready: true, Cached: 480, Load: Load{40, 1}}},
			"b", ReasonLongestPrefix, ""},
		{"the holder is not ready",
			[]Replica{{ID: "a", Ready: true}, {ID: "b", Cached: 480}},
			"a", ReasonCold, ""},
		{"nobody holds enough: the least loaded",
			[]Replica{{ID: "a", Ready: true, Cached: 134, Load: Load{40, 1}}, {ID: "b", Ready: true, Load: Load{0, 0}}},
			"b", ReasonCold, ""},
		{"just enough",
			[]Replica{{ID: "a", Ready: true, Cached: 135, Load: Load{40, 1}}, {ID: "b", Ready: true, Load: Load{0, 0}}},
			"a", ReasonLongestPrefix, ""},
	}
	for _, tt := range tests {
		d := choose(t, affinity(nil), r, tt.replicas)
		if d.Replica != tt.want || d.Reason != tt.reason || d.SpilledFrom != tt.spilledFrom {
			t.Errorf("%s: %s, %s, spilled from %q; want %s, %s, %q",
				tt.name, d.Replica, d.Reason, d.SpilledFrom, tt.want, tt.reason, tt.spilledFrom)
		}
	}
}

// A prefix with more traffic than its homes' fair share gets another one, when they are
// busier than somebody else, and only then.
func TestHotPrefixGetsAnotherHome(t *testing.T) {
	busy := Load{Tokens: 40, Requests: 1}
	fleet := func() []Replica { // two homes of four replicas
		return []Replica{
			{ID: "a", Ready: true, Cached: 480, Load: busy}, {ID: "b", Ready: true, Cached: 480, Load: busy},
			{ID: "c", Ready: true}, {ID: "d", Ready: true, Load: busy},
		}
	}
	p := affinity(nil) // ratio 1.5: each home may have 1.25/4 of the traffic, both 0.625
	for _, tt := range []struct {
		name   string
		heat   float64
		change func([]Replica)
		want   []string
		reason Reason
	}{
		{"not hot", 0.62, func([]Replica) {}, []string{"a", "b"}, ReasonLongestPrefix},
		{"hot", 0.63, func([]Replica) {}, []string{"c"}, ReasonReplicate},
		{"hot, one home idle", 0.9, func(r []Replica) { r[1].Load = Load{} }, []string{"b"}, ReasonLongestPrefix},
		{"hot, nobody idle", 0.9, func(r []Replica) { r[2].Load = busy }, []string{"a", "b"}, ReasonLongestPrefix},
		{"hot, a third home", 0.9, func(r []Replica) { r[3].Cached = 480 }, []string{"a", "b", "d"}, ReasonLongestPrefix},
		{"the idle one is not ready", 0.9, func(r []Replica) { r[2].Ready = false }, []string{"a", "b"}, ReasonLongestPrefix},
	} {
		r, replicas := prompt(1, 500, 1, 40), fleet()
		r.Heat = tt.heat
		tt.change(replicas)
		d := choose(t, p, r, replicas)
		if !slices.Contains(tt.want, d.Replica) || d.Reason != tt.reason {
			t.Errorf("%s: %s, %s; want one of %v, %s", tt.name, d.Replica, d.Reason, tt.want, tt.reason)
		}
		if (d.Reason == ReasonReplicate) != (d.SpilledFrom != "") {
			t.Errorf("%s: spilled from %q", tt.name, d.SpilledFrom)
		}
	}
	// Homes alike take turns by what they were sent.
	r, replicas := prompt(1, 500, 1, 40), fleet()
	replicas[0].Recent, replicas[1].Recent = 5, 4
	if d := choose(t, p, r, replicas); d.Replica != "b" {
		t.Errorf("chose %s, want b with the fewest requests lately", d.Replica)
	}
}

// 90 % of the requests share one prefix. Service takes as long as 64 arrivals, so 8
// requests per replica are in flight on average.
func TestHotSpotIsBounded(t *testing.T) {
	const n, requests, flight = 8, 4000, 64
	type result struct{ peak, reused, spills int }
	run := func(p Policy) result {
		var res result
		replicas, held := fleet(n), cacheModel{}
		type job struct{ replica, tokens int }
		var jobs []job
		for s := range requests {
			if len(jobs) == flight {
				done := &replicas[jobs[0].replica].Load
				done.Requests--
				done.Tokens -= jobs[0].tokens
				jobs = jobs[1:]
			}
			prefix := 0
			if s%10 == 9 {
				prefix = s
			}
			r := prompt(prefix, 500, s, 40)
			for i := range replicas {
				replicas[i].Cached = held.cached(replicas[i].ID, r)
			}
			d := choose(t, p, r, replicas)
			held.add(d.Replica, r)
			if d.SpilledFrom != "" {
				res.spills++
			}
			if d.Cached >= 480 {
				res.reused++
			}
			for i := range replicas {
				if replicas[i].ID == d.Replica {
					replicas[i].Load.Requests++
					replicas[i].Load.Tokens += r.Tokens - d.Cached
					jobs = append(jobs, job{i, r.Tokens - d.Cached})
				}
				res.peak = max(res.peak, replicas[i].Load.Requests)
			}
		}
		return res
	}
	o := DefaultOptions()
	balanced := run(NewLeastLoaded()).peak
	for _, p := range all(t, o) {
		res := run(p)
		t.Logf("%-15s peak %2d requests on one replica (mean %d), %d of 3600 reuse the hot prefix, %d spills",
			p.Name(), res.peak, flight/n, res.reused, res.spills)
		switch p.Name() {
		case "prefix_hash": // the control: without a bound the spot is hot
			if res.peak < 55 {
				t.Errorf("prefix_hash: peak %d, the test loads nobody", res.peak)
			}
		case "consistent_hash":
			if most := flight/n + 1 + o.MarginRequests; res.peak > most {
				t.Errorf("consistent_hash: peak %d, bound %d", res.peak, most)
			}
		case "prefix_affinity":
			if most := balanced + o.MarginRequests; res.peak > most {
				t.Errorf("prefix_affinity: peak %d, want at most %d: the balancer's %d and the margin", res.peak, most, balanced)
			}
			if res.reused < 3500 {
				t.Errorf("prefix_affinity: %d of 3600 reuse the hot prefix", res.reused)
			}
			if res.spills == 0 {
				t.Error("prefix_affinity: never spilled, the test proves nothing")
			}
		}
	}
}

// Conversations share a long opening and then differ. At low load they must not all
// follow the first one, and each must stay where it began.
func TestSharedOpeningDoesNotCollapse(t *testing.T) {
	const n, conversations, turns, opening = 8, 160, 3, 96
	p, held := affinity(nil), cacheModel{}
	placed, homes := map[string]int{}, map[int]string{}
	for turn := range turns {
		for c := range conversations {
			// The opening is everybody's; then the conversation grows by 400 tokens a turn.
			r := prompt(0, opening, c, 400*(turn+1))
			replicas := fleet(n)
			for i := range replicas {
				replicas[i].Cached = held.cached(replicas[i].ID, r)
			}
			d := choose(t, p, r, replicas)
			held.add(d.Replica, r)
			if turn == 0 {
				placed[d.Replica]++
				homes[c] = d.Replica
			} else if d.Replica != homes[c] {
				t.Fatalf("conversation %d moved from %s to %s in turn %d", c, homes[c], d.Replica, turn)
			}
		}
	}
	for _, r := range fleet(n) {
		if got := placed[r.ID]; got < 5 || got > 40 {
			t.Errorf("%s has %d of %d conversations", r.ID, got, conversations)
		}
	}
}

// Two routers that have seen different traffic send a prefix that is new to both to the
// same replica.
func TestRoutersAgreeOnColdPrefixes(t *testing.T) {
	p, other := affinity(nil), affinity(nil)
	for s := range 500 {
		r := prompt(s, 500, s, 40)
		r2 := prompt(s, 500, s+1000, 70) // the same prefix, another request
		mine, theirs := fleet(16), fleet(16)
		theirs[3].Cached = 32 // a chance match shorter than the key's depth
		if a, b := choose(t, p, r, mine).Replica, choose(t, other, r2, theirs).Replica; a != b {
			t.Fatalf("prefix %d: %s and %s", s, a, b)
		}
	}
}

// TestColdPrefixesGoWhereTheFewestBlocksAre has nobody busy: load cannot spread prefixes.
func TestColdPrefixesGoWhereTheFewestBlocksAre(t *testing.T) {
	replicas := []Replica{
		{ID: "a", Ready: true, Held: 40},
		{ID: "b", Ready: true, Held: 39},
		{ID: "c", Ready: false, Held: 0},
		{ID: "d", Ready: true, Held: 41},
	}
	p := NewPrefixAffinity(DefaultOptions())
	for first := range int32(20) {
		r := Request{Blocks: ChainTokens(Root(UnitTokens, "m"), []int32{first, 1, 2, 3}, 2, 10), BlockTokens: 2, Tokens: 4}
		d, err := p.Choose(r, replicas)
		if err != nil || d.Replica != "b" || d.Reason != ReasonCold {
			t.Fatalf("prefix %d: %+v, %v; want b, cold", first, d, err)
		}
		// One request in flight outweighs any number of blocks.
		busy := slices.Clone(replicas)
		busy[1].Load = Load{Tokens: 1, Requests: 1}
		if d, err = p.Choose(r, busy); err != nil || d.Replica != "a" {
			t.Fatalf("prefix %d with b busy: %+v, %v; want a", first, d, err)
		}
	}
}
