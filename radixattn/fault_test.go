package radixattn

import (
	"slices"
	"testing"

	"tailor/paging"
)

// The tests named TestFaultNN each hold one fault that other engines really had.

// cache inserts tokens under salt, in blocks numbered from first, and unlocks them.
func cache(t *testing.T, tree *Tree, salt string, tokens []int32, first paging.BlockID) {
	t.Helper()
	l := tree.Lock(tree.Match(salt, nil))
	blocks := make([]paging.BlockID, len(tokens)/tree.blockSize)
	for i := range blocks {
		blocks[i] = first + paging.BlockID(i)
	}
	tree.Insert(l, tokens, blocks)
	tree.Unlock(l)
	check(t, tree)
}

func check(t *testing.T, tree *Tree, live ...*Lock) {
	t.Helper()
	if err := tree.Check(live); err != nil {
		t.Fatalf("%v\n%v", err, tree)
	}
}

// TestFault03_collisions: tokens that a hash or a truncated key would confuse.
func TestFault03_collisions(t *testing.T) {
	tree := New(2)
	cache(t, tree, "", []int32{1, 2, 3, 4}, 0)
	for _, tokens := range [][]int32{
		{2, 1, 4, 3},                         // the same sum, and xor
		{3, 4, 1, 2},                         // the same blocks in another order
		{1 + 1<<16, 2, 3, 4},                 // the same low 16 bits
		{1 - 1<<31, 2, 3, 4},                 // the same without the sign
		{0, 0, 0, 0}, {-1, -2, -3, -4}, {12}, // the same digits
	} {
		if m := tree.Match("", tokens); m.Tokens != 0 {
			t.Errorf("%v matches %d tokens of 1 2 3 4", tokens, m.Tokens)
		}
	}
	for _, tokens := range [][]int32{{1, 2, 3, 4 + 1<<16}, {1, 2, 3, 4 - 1<<31}} {
		if m := tree.Match("", tokens); m.Tokens != 3 {
			t.Errorf("%v matches %d tokens of 1 2 3 4, want 3", tokens, m.Tokens)
		}
	}
	if m := tree.Match("", []int32{1, 2, 3, 4}); m.Tokens != 4 {
		t.Errorf("the same tokens match %d, want 4", m.Tokens)
	}
}

// TestFault04_salts_run_together: salts and tokens that read alike when joined. Same salt
// hits, different salt misses.
func TestFault04_salts_run_together(t *testing.T) {
	type key struct {
		salt   string
		tokens []int32
	}
	keys := []key{
		{"org_1", []int32{2345, 0}}, {"org_12345", []int32{0, 0}}, {"org_12", []int32{345, 0}},
		{"", []int32{1, 2345}}, {"1", []int32{2345, 1}}, {"\x00", []int32{7, 7}}, {"\x00\x00", []int32{7, 8}},
	}
	tree := New(2)
	for i, k := range keys {
		for _, other := range keys {
			if m := tree.Match(k.salt, other.tokens); m.Tokens != 0 {
				t.Errorf("salt %q, before anything is cached under it, matches %d tokens of %v", k.salt, m.Tokens, other.tokens)
			}
		}
		cache(t, tree, k.salt, k.tokens, paging.BlockID(i))
		if m := tree.Match(k.salt, k.tokens); m.Tokens != 2 || !slices.Equal(m.Blocks(), []paging.BlockID{paging.BlockID(i)}) {
			t.Errorf("salt %q matches %d of its own tokens, want 2", k.salt, m.Tokens)
		}
	}
	for _, k := range keys {
		for _, other := range keys {
			want, other := shared(k.tokens, other.tokens), other
			if m := tree.Match(k.salt, other.tokens); m.Tokens != want {
				t.Errorf("salt %q matches %d tokens of %q's %v, want the %d that its own %v shares", k.salt, m.Tokens, other.salt, other.tokens, want, k.tokens)
			}
		}
	}
}

// TestFault09_lock_skips_the_node: a lock protects the node it ends at and every one above
// it, and nothing else.
func TestFault09_lock_skips_the_node(t *testing.T) {
	tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	for whole := range 5 {
		tree := New(2)
		cache(t, tree, "", tokens, 0)
		l := tree.Lock(tree.Match("", tokens[:2*whole]))
		if got := tree.Stats().Evictable; got != 4-whole {
			t.Errorf("lock of %d blocks of 4: %d evictable", whole, got)
		}
		if got, want := tree.Evict(9), []paging.BlockID{3, 2, 1, 0}[:4-whole]; !slices.Equal(got, want) {
			t.Errorf("lock of %d blocks of 4: evicted %v, want %v", whole, got, want)
		}
		check(t, tree, l)
		if m := tree.Match("", tokens); m.Tokens != 2*whole {
			t.Errorf("lock of %d blocks of 4: %d tokens left", whole, m.Tokens)
		}
		tree.Unlock(l)
		if got := tree.Evict(9); len(got) != whole {
			t.Errorf("after unlock: evicted %v, want %d blocks", got, whole)
		}
		check(t, tree)
	}
}

// TestFault10_split_bookkeeping: both halves of a split node keep its locks and its place
// in the order of eviction, and evictable + protected = all blocks.
func TestFault10_split_bookkeeping(t *testing.T) {
	tree := New(2)
	cache(t, tree, "", []int32{1, 1, 1, 1, 1, 1}, 0) // blocks 0 1 2, the oldest
	cache(t, tree, "", []int32{2, 2, 2, 2}, 3)       // blocks 3 4
	old := tree.Lock(tree.Match("", []int32{1, 1, 1, 1, 1, 1}))
	tree.Unlock(old) // now 1... is the most recent

	// Split it, unlocked, where nothing else happens to it: the lock is on [0,2) only.
	l := tree.Lock(tree.Match("", []int32{1, 1}))
	if s := tree.Stats(); s.Blocks != 5 || s.Evictable != 4 {
		t.Errorf("after the split: %+v, want 4 of 5 blocks evictable", s)
	}
	check(t, tree, l)
	if got, want := tree.Evict(3), []paging.BlockID{4, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v: the lower half of the split is still the more recent", got, want)
	}
	check(t, tree, l)

	// Split a locked node: both halves are locked, and unlocking frees both.
	deep := tree.Lock(tree.Match("", []int32{1, 1, 1, 1}))
	tree.Insert(deep, []int32{1, 1}, []paging.BlockID{5})
	check(t, tree, l, deep)
	third := tree.Lock(tree.Match("", []int32{1, 1, 1, 1}))
	check(t, tree, l, deep, third)
	if s := tree.Stats(); s.Evictable != 0 {
		t.Errorf("all is locked, %d blocks evictable", s.Evictable)
	}
	tree.Unlock(l)
	tree.Unlock(third)
	check(t, tree, deep)
	if got := tree.Evict(9); len(got) != 0 {
		t.Errorf("evicted locked blocks %v", got)
	}
	tree.Unlock(deep)
	check(t, tree)
	if s := tree.Stats(); s.Evictable != s.Blocks || s.Blocks != 3 {
		t.Errorf("nothing is locked: %+v", s)
	}
}

// TestFault11_pins_too_much: a short match of a long run pins its own blocks, not the run.
func TestFault11_pins_too_much(t *testing.T) {
	tree := New(4)
	run := make([]int32, 4*100)
	for i := range run {
		run[i] = int32(i)
	}
	cache(t, tree, "", run, 0)
	m := tree.Match("", run[:10]) // two blocks, and two rows that are copied
	l := tree.Lock(m)
	if m.Tokens != 10 || tree.Stats().Evictable != 98 {
		t.Errorf("%d tokens matched, %d blocks evictable, want 10 and 98", m.Tokens, tree.Stats().Evictable)
	}
	if got := len(tree.Evict(1000)); got != 98 {
		t.Errorf("evicted %d blocks, want 98", got)
	}
	tree.Unlock(l)
	check(t, tree)
	if tree.Stats().Evictable != 2 {
		t.Errorf("%d blocks evictable, want 2", tree.Stats().Evictable)
	}
}

// TestMisuse: a caller's bug panics, before it can hand out a wrong block.
func TestMisuse(t *testing.T) {
	for name, misuse := range map[string]func(tree *Tree, l *Lock){
		"block size 0":            func(*Tree, *Lock) { New(0) },
		"second unlock":           func(tree *Tree, l *Lock) { tree.Unlock(l); tree.Unlock(l) },
		"insert after unlock":     func(tree *Tree, l *Lock) { tree.Unlock(l); tree.Insert(l, nil, nil) },
		"half a block":            func(tree *Tree, l *Lock) { tree.Insert(l, []int32{1}, []paging.BlockID{9}) },
		"a block too few":         func(tree *Tree, l *Lock) { tree.Insert(l, []int32{1, 1, 1, 1}, []paging.BlockID{9}) },
		"another tree's match":    func(tree *Tree, l *Lock) { tree.Lock(New(2).Match("", nil)) },
		"match used after a lock": func(tree *Tree, _ *Lock) { m := tree.Match("a", nil); tree.Lock(m); tree.Lock(m) },
		"share after unlock":      func(tree *Tree, l *Lock) { tree.Unlock(l); tree.Share(l) },
		"match used after share":  func(tree *Tree, l *Lock) { m := tree.Match("a", nil); tree.Share(l); m.Idle() },
		"match used after evict":  func(tree *Tree, _ *Lock) { m := tree.Match("a", nil); tree.Evict(1); m.Blocks() },
		"match used after unlock": func(tree *Tree, l *Lock) { m := tree.Match("a", nil); tree.Unlock(l); m.Idle() },
		"match used after insert": func(tree *Tree, l *Lock) {
			m := tree.Match("a", nil)
			tree.Insert(l, []int32{3, 3}, []paging.BlockID{9})
			m.Idle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, locks := plant()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(tree, locks[0])
		})
	}
}

// TestBlocksStops: a loop over the tree's blocks may end early.
func TestBlocksStops(t *testing.T) {
	tree, _ := plant()
	var all []paging.BlockID
	for id := range tree.Blocks {
		all = append(all, id)
	}
	slices.Sort(all)
	if !slices.Equal(all, []paging.BlockID{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("blocks %v", all)
	}
	for n := range len(all) {
		seen := 0
		for range tree.Blocks {
			if seen++; seen > n {
				break
			}
		}
		if seen != n+1 {
			t.Errorf("stopped after %d blocks, want %d", seen, n+1)
		}
	}
}
