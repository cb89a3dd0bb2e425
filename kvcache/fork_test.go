package kvcache

import (
	"errors"
	"slices"
	"testing"
)

// fork forks a sequence and checks the rows that the fork got.
func fork(t *testing.T, m *Manager, s *Sequence) *Sequence {
	t.Helper()
	f, err := m.Fork(s)
	if err != nil {
		t.Fatalf("fork of %d computed tokens: %v", s.Computed(), err)
	}
	if !slices.Equal(f.Tokens(), s.Tokens()[:s.Computed()]) || f.Computed() != s.Computed() || f.Cached() != s.Cached() {
		t.Errorf("the fork has %v, %d computed, %d cached; want the %d computed of %v", f.Tokens(), f.Computed(), f.Cached(), s.Computed(), s.Tokens())
	}
	sound(t, m)
	return f
}

// TestForkSharesThePrompt: the answers to one prompt hold its full blocks once, and each its
// own copy of the rows in the last.
func TestForkSharesThePrompt(t *testing.T) {
	m := newCache(t, 20)
	s := start(t, m, "", count(0, 10), 0)
	run(t, m, s, 10)
	all := []*Sequence{s}
	for range 4 {
		all = append(all, fork(t, m, s))
	}
	if got := m.Stats(); got.Held != 2+5 || got.Cached != 2 || got.Sequences != 5 {
		t.Errorf("%+v, want 2 blocks shared and one for each of 5", got)
	}
	// Each goes its own way, and none of them writes into another.
	for i, f := range all {
		for k := range 5 {
			if err := m.Append(f, int32(100*i+k)); err != nil {
				t.Fatal(err)
			}
			run(t, m, f, 1) // checks the rows of all
		}
	}
	for _, f := range all {
		m.Free(f)
		sound(t, m)
	}
	if got := m.Stats(); got.Held != got.Cached || got.Evictable != got.Cached || got.Cached != 2+5 {
		t.Errorf("all are freed: %+v, want 7 blocks, all evictable", got)
	}
	for i := range all {
		if got := m.Match("", append(count(0, 10), int32(100*i), int32(100*i+1), -1)); got != 12 {
			t.Errorf("answer %d: match of %d tokens, want 12", i, got)
		}
	}
}

// TestForkAtABlocksEnd: where s ends with a block there is nothing to copy, and no block to
// be short of.
func TestForkAtABlocksEnd(t *testing.T) {
	m := newCache(t, 2)
	s := start(t, m, "", count(0, 8), 0)
	run(t, m, s, 8)
	f := fork(t, m, s)
	if !slices.Equal(f.table.Blocks(0, 2), s.table.Blocks(0, 2)) || m.Stats().Free != 0 {
		t.Errorf("blocks %v of %v, %d free", f.table, s.table, m.Stats().Free)
	}
	m.Free(s)
	sound(t, m)
	m.Free(f)
	sound(t, m)
}

// TestForkLeavesTheRestBehind: tokens of s that are not computed are not the fork's.
func TestForkLeavesTheRestBehind(t *testing.T) {
	for computed := range 11 {
		m := newCache(t, 20)
		s := start(t, m, "", count(0, 10), 0)
		run(t, m, s, computed)
		f := fork(t, m, s)
		if err := m.Append(f, 99); err != nil {
			t.Fatal(err)
		}
		run(t, m, f, 1)
		run(t, m, s, 10-computed)
		m.Free(f)
		sound(t, m)
	}
}

// TestFault06_fork_without_room: a fork that finds no block leaves all as it was, and one
// that has to evict for its block does not evict what it shares.
func TestFault06_fork_without_room(t *testing.T) {
	m := newCache(t, 4)
	serve(t, m, "", count(50, 4), 0) // 1 block idle
	s := start(t, m, "", count(0, 10), 0)
	run(t, m, s, 10)
	f := fork(t, m, s)
	if got := m.Stats(); got.Evicted != 1 || got.Free != 0 {
		t.Errorf("%+v, want the idle block evicted", got)
	}
	w := world{m: m}
	before := w.picture()
	if _, err := m.Fork(s); !errors.Is(err, ErrNoFreeBlocks) {
		t.Fatalf("got %v, want ErrNoFreeBlocks", err)
	}
	if after := w.picture(); after != before {
		t.Errorf("a failed fork changed\n%s\nto\n%s", before, after)
	}
	m.Free(s)
	sound(t, m)
	m.Free(fork(t, m, f))
	sound(t, m)
}

// TestFault12_fork_outlives: whichever of the two ends first, the other keeps its rows, and
// all blocks come back.
func TestFault12_fork_outlives(t *testing.T) {
	for _, first := range []int{0, 1} {
		m := newCache(t, 6)
		s := start(t, m, "", count(0, 10), 0)
		run(t, m, s, 10)
		pair := []*Sequence{s, fork(t, m, s)}
		m.Free(pair[first])
		sound(t, m)
		mustPanic(t, "fork after free", func() { _, _ = m.Fork(pair[first]) })
		serve(t, m, "", count(100, 12), 0) // would write into a block that was freed too early
		m.Free(pair[1-first])
		sound(t, m)
		if got := m.Stats(); got.Held != got.Cached || got.Evictable != got.Cached {
			t.Errorf("%+v", got)
		}
	}
}

// TestFault16_forks_are_not_hits: a prompt with eight answers was looked for once.
func TestFault16_forks_are_not_hits(t *testing.T) {
	m := newCache(t, 20)
	serve(t, m, "", count(0, 8), 0)
	s := start(t, m, "", count(0, 10), 8)
	run(t, m, s, 2)
	for range 8 {
		fork(t, m, s)
	}
	if got := m.View(1).Nodes[0]; got.Hits != 1 || got.Locks != 9 {
		t.Errorf("%+v, want 1 hit and 9 locks", got)
	}
}
