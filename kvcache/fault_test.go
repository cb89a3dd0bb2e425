package kvcache

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// The tests named TestFaultNN each hold one fault that other engines really had.

// newCache returns a cache of that many blocks of 4 tokens.
func newCache(t *testing.T, blocks int) *Manager {
	t.Helper()
	m, err := New(Config{Blocks: blocks, BlockSize: 4, Layers: 2, Heads: 2, HeadDim: 3})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start allocates a sequence and checks the rows that it got.
func start(t *testing.T, m *Manager, salt string, tokens []int32, wantCached int) *Sequence {
	t.Helper()
	s, err := m.Allocate(salt, tokens)
	if err != nil {
		t.Fatalf("allocate of %d tokens: %v", len(tokens), err)
	}
	if s.Cached() != wantCached {
		t.Errorf("%q %v: %d tokens cached, want %d", salt, tokens, s.Cached(), wantCached)
	}
	sound(t, m)
	return s
}

// run computes and commits the next n tokens.
func run(t *testing.T, m *Manager, s *Sequence, n int) {
	t.Helper()
	compute(s, s.Computed(), s.Computed()+n)
	m.Commit(s, n)
	sound(t, m)
}

// serve does a whole request: allocate, compute all, free.
func serve(t *testing.T, m *Manager, salt string, tokens []int32, wantCached int) {
	t.Helper()
	s := start(t, m, salt, tokens, wantCached)
	run(t, m, s, s.Len()-s.Computed())
	m.Free(s)
	sound(t, m)
}

// sound checks the cache and every row that may be read.
func sound(t *testing.T, m *Manager) {
	t.Helper()
	if err := m.Check(); err != nil {
		t.Fatalf("%v\n%v", err, m.tree)
	}
	for _, s := range m.live {
		if err := verify(s); err != nil {
			t.Fatal(err)
		}
	}
}

// count returns the tokens from, from+1, ..., n of them.
func count(from, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(from + i)
	}
	return tokens
}

// TestFault02_full_hit: the last token of a prompt is always left to compute, for its
// logits, whether the prompt ends at a block boundary or beside one.
func TestFault02_full_hit(t *testing.T) {
	for n := 1; n <= 17; n++ {
		m := newCache(t, 8)
		serve(t, m, "", count(0, 20), 0)
		if got := m.Match("", count(0, n)); got != n-1 {
			t.Errorf("%d tokens, all cached: match of %d, want %d", n, got, n-1)
		}
		serve(t, m, "", count(0, n), n-1)
	}
	if got := newCache(t, 1).Match("", nil); got != 0 {
		t.Errorf("match of no tokens: %d", got)
	}
}

// TestFault03_collisions: prompts whose blocks differ in one token, however alike.
func TestFault03_collisions(t *testing.T) {
	m := newCache(t, 20)
	base := count(0, 8)
	serve(t, m, "", base, 0)
	for at := range base {
		for _, delta := range []int32{1 << 8, 1 << 16, -1 << 31} {
			other := append(slices.Clone(base), 1)
			other[at] += delta
			if got := m.Match("", other); got != at {
				t.Errorf("token %d differs by %d: match of %d tokens", at, delta, got)
			}
		}
	}
}

// TestFault04_salts: same salt hits, different salt misses.
func TestFault04_salts(t *testing.T) {
	m := newCache(t, 20)
	serve(t, m, "org_1", []int32{2345, 1, 2, 3, 4}, 0)
	serve(t, m, "org_12345", []int32{2345, 1, 2, 3, 4}, 0)
	serve(t, m, "", []int32{2345, 1, 2, 3, 4}, 0)
	for _, salt := range []string{"org_1", "org_12345", ""} {
		serve(t, m, salt, []int32{2345, 1, 2, 3, 4}, 4)
	}
}

// TestFault05_stale_entries: a block that was evicted and used for other tokens is found
// under the new ones and never under the old.
func TestFault05_stale_entries(t *testing.T) {
	m := newCache(t, 3)
	first, second := count(0, 12), count(100, 12)
	serve(t, m, "", first, 0)
	serve(t, m, "", second, 0) // takes every block
	if got := m.Stats(); got.Evicted != 3 || got.Cached != 3 {
		t.Errorf("%+v, want 3 blocks evicted and 3 cached", got)
	}
	if got := m.Match("", first); got != 0 {
		t.Errorf("%d tokens found in blocks that were given away", got)
	}
	if got := m.Match("", second); got != 11 {
		t.Errorf("%d tokens found of those cached last, want 11", got)
	}
}

// TestFault06_evicting_the_match: blocks that a prompt matches are idle, but not free for
// that same prompt; and an admission that fails for this leaves everything as it was.
func TestFault06_evicting_the_match(t *testing.T) {
	m := newCache(t, 4)
	serve(t, m, "", count(0, 8), 0) // 2 blocks idle
	hold := start(t, m, "", count(100, 4), 0)

	w := world{m: m}
	before := w.picture()
	// 4 blocks: 2 matched, 1 free, and nothing else to evict.
	if _, err := m.Allocate("", count(0, 16)); !errors.Is(err, ErrNoFreeBlocks) {
		t.Fatalf("got %v, want ErrNoFreeBlocks", err)
	}
	if after := w.picture(); after != before {
		t.Errorf("a failed allocate changed\n%s\nto\n%s", before, after)
	}
	sound(t, m)

	// With one block more it fits, and keeps what it matched.
	m.Free(hold)
	s := start(t, m, "", count(0, 16), 8)
	if got := m.Stats().Evicted; got != 0 {
		t.Errorf("%d blocks evicted, want 0", got)
	}
	m.Free(s)
	sound(t, m)
}

// TestFault06_last_block_standing: a prompt that needs the whole pool gets it, though the
// rows it reuses lie in a block that has to go: they are copied, not lost.
func TestFault06_last_block_standing(t *testing.T) {
	for blocks := 1; blocks <= 5; blocks++ {
		m := newCache(t, blocks)
		serve(t, m, "", count(0, 4*blocks), 0)
		other := append(count(0, 3), count(100, 4*blocks-3)...)
		serve(t, m, "", other, 3)
		serve(t, m, "", other, 4*blocks-1)
	}
}

// TestFault07_sharing_what_is_not_computed: of two requests with one prefix side by side,
// the second reuses what the first has committed, and not a row more.
func TestFault07_sharing_what_is_not_computed(t *testing.T) {
	m := newCache(t, 20)
	prompt := count(0, 13)
	a := start(t, m, "", prompt, 0)
	b := start(t, m, "", prompt, 0)
	run(t, m, a, 6) // one block full, two rows of the next: a half-full block is not shared
	c := start(t, m, "", prompt, 4)
	run(t, m, a, 7)
	d := start(t, m, "", prompt, 12)

	// b and c computed the same: they go on with the tree's blocks and give theirs back.
	held := m.Stats().Held
	run(t, m, b, 13)
	run(t, m, c, 9)
	run(t, m, d, 1)
	if got, want := m.Stats().Held, held-3-2; got != want {
		t.Errorf("%d blocks held, want %d: duplicates are given back", got, want)
	}
	for _, s := range []*Sequence{a, b, c, d} {
		if !slices.Equal(s.table.Blocks(0, 3), a.table.Blocks(0, 3)) {
			t.Errorf("full blocks %v, want those of the first, %v", s.table.Blocks(0, 3), a.table.Blocks(0, 3))
		}
		m.Free(s)
		sound(t, m)
	}
	if got := m.Stats(); got.Held != 3 || got.Evictable != 3 {
		t.Errorf("all are freed: %+v, want 3 blocks", got)
	}
}

// TestFault08_after_preemption: a sequence freed in the middle and allocated again, with
// the tokens generated so far, reuses its full blocks; there is always something to run.
func TestFault08_after_preemption(t *testing.T) {
	for computed := range 14 {
		m := newCache(t, 4)
		s := start(t, m, "", count(0, 13), 0)
		run(t, m, s, computed)
		m.Free(s)
		s = start(t, m, "", count(0, 13), computed-computed%4)
		run(t, m, s, s.Len()-s.Computed())
		m.Free(s)
		sound(t, m)
	}
}

// TestFault11_refs_return: after the last sequence, nothing is locked and only the tree
// holds blocks.
func TestFault11_refs_return(t *testing.T) {
	m := newCache(t, 40)
	var live []*Sequence
	for i := range 8 {
		s := start(t, m, "", append(count(0, 2*i), count(100*i, 5)...), min(2*i, 4))
		live = append(live, s)
		if i == 0 {
			run(t, m, s, 5)
		}
	}
	for _, s := range live {
		m.Free(s)
		sound(t, m)
	}
	if got := m.Stats(); got.Evictable != got.Cached || got.Held != got.Cached || got.Sequences != 0 {
		t.Errorf("%+v", got)
	}
}

// TestFault12_cancel_at_every_phase: wherever a sequence ends, all its blocks come back.
func TestFault12_cancel_at_every_phase(t *testing.T) {
	phases := []struct {
		name string
		run  func(m *Manager, s *Sequence)
	}{
		{"just admitted", func(m *Manager, s *Sequence) {}},
		{"prefill, inside a block", func(m *Manager, s *Sequence) { run(t, m, s, 2) }},
		{"prefill, at a block's end", func(m *Manager, s *Sequence) { run(t, m, s, 4) }},
		{"prefilled", func(m *Manager, s *Sequence) { run(t, m, s, s.Len()-s.Computed()) }},
		{"decode, appended and not computed", func(m *Manager, s *Sequence) {
			run(t, m, s, s.Len()-s.Computed())
			if err := m.Append(s, 7); err != nil {
				t.Fatal(err)
			}
		}},
		{"decode", func(m *Manager, s *Sequence) {
			run(t, m, s, s.Len()-s.Computed())
			for i := range 9 {
				if err := m.Append(s, int32(i)); err != nil {
					t.Fatal(err)
				}
				run(t, m, s, 1)
			}
		}},
	}
	for _, warm := range []int{0, 4, 6} {
		for _, p := range phases {
			t.Run(fmt.Sprintf("%s, %d cached", p.name, warm), func(t *testing.T) {
				m := newCache(t, 10)
				if warm > 0 {
					serve(t, m, "", append(count(0, warm), 50, 51, 52, 53), 0)
				}
				s := start(t, m, "", count(0, 10), warm)
				p.run(m, s)
				full := m.Stats().Cached
				m.Free(s)
				sound(t, m)
				if got := m.Stats(); got.Held != full || got.Evictable != full {
					t.Errorf("%+v, want %d blocks, all evictable", got, full)
				}
				for name, misuse := range map[string]func(){
					"free":   func() { m.Free(s) },
					"commit": func() { m.Commit(s, 0) },
					"append": func() { _ = m.Append(s, 1) },
				} {
					mustPanic(t, name+" after free", misuse)
				}
				sound(t, m)
			})
		}
	}
}

// TestFault13_another_conversations_rows: two tenants with the same words, each with rows
// of its own, in a pool too small for both: neither ever reads the other's.
func TestFault13_another_conversations_rows(t *testing.T) {
	m := newCache(t, 5)
	hits := 0
	for i := range 40 {
		salt := []string{"alice", "bob"}[i/3%2]
		s, err := m.Allocate(salt, append(count(0, 5+i%7), int32(i)))
		if err != nil {
			t.Fatal(err)
		}
		hits += s.Cached()
		run(t, m, s, s.Len()-s.Computed()) // checks every row against the salt's own
		m.Free(s)
	}
	if hits == 0 || m.Stats().Evicted == 0 {
		t.Errorf("%d tokens hit, %d blocks evicted: nothing was at stake", hits, m.Stats().Evicted)
	}
}

// TestFault16_inflated_hits: what Cached reports is what was not computed, each time; an
// admission that is refused and tried again counts nothing.
func TestFault16_inflated_hits(t *testing.T) {
	m := newCache(t, 4)
	serve(t, m, "", count(0, 8), 0)
	hold := start(t, m, "", count(100, 8), 0)
	before := m.Stats()
	for range 5 {
		if _, err := m.Allocate("", count(0, 16)); !errors.Is(err, ErrNoFreeBlocks) {
			t.Fatalf("got %v, want ErrNoFreeBlocks", err)
		}
		if after := m.Stats(); after != before {
			t.Errorf("a refused admission changed %+v to %+v", before, after)
		}
	}
	m.Free(hold)
	s := start(t, m, "", count(0, 16), 8)
	if s.Len()-s.Computed() != 8 {
		t.Errorf("%d tokens left to compute, want 8", s.Len()-s.Computed())
	}
}

// TestFault17_reset: a reset is refused while it could not be complete, and after one
// there are no hits.
func TestFault17_reset(t *testing.T) {
	m := newCache(t, 10)
	serve(t, m, "", count(0, 12), 0)
	serve(t, m, "a", count(0, 12), 0)
	s := start(t, m, "", count(0, 12), 11)
	u := start(t, m, "", count(50, 2), 0)
	before := (&world{m: m}).picture()
	if held, err := m.Reset(); held != 2 || !errors.Is(err, ErrHeld) {
		t.Errorf("reset with 2 live sequences: %d, %v", held, err)
	}
	if after := (&world{m: m}).picture(); after != before {
		t.Errorf("a refused reset changed\n%s\nto\n%s", before, after)
	}
	m.Free(s)
	m.Free(u)
	evicted := m.Stats().Evicted
	if held, err := m.Reset(); held != 0 || err != nil {
		t.Errorf("reset: %d, %v", held, err)
	}
	if got, want := m.Stats(), (Stats{Total: 10, Free: 10, Evicted: evicted}); got != want {
		t.Errorf("after a reset: %+v, want %+v", got, want)
	}
	sound(t, m)
	serve(t, m, "", count(0, 12), 0)
	serve(t, m, "a", count(0, 12), 0)
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
