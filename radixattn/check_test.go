package radixattn

import (
	"strings"
	"testing"

	"tailor/paging"
)

// plant returns a tree with blocks of 2 and the locks on it:
//
//	"a" locks 2
//	  [0,2) 1 2 | blocks 0 | locks 2
//	    [2,3) 3 | locks 2
//	      [3,4) 4 | blocks 1 | locks 1
//	      [3,6) 5 6 7 | blocks 2 3 | locks 1
//	  [0,2) 8 8 | blocks 4 | evict 1
//	  [0,4) 9 9 9 9 | blocks 5 6 | evict 2
func plant() (*Tree, []*Lock) {
	t := New(2)
	next := paging.BlockID(0)
	insert := func(tokens ...int32) *Lock {
		l := t.Lock(t.Match("a", nil))
		blocks := make([]paging.BlockID, len(tokens)/2)
		for i := range blocks {
			blocks[i] = next
			next++
		}
		for range t.Insert(l, tokens, blocks) {
			next-- // the duplicates come first
		}
		return l
	}
	locks := []*Lock{insert(1, 2, 3, 4)}
	l := t.Lock(t.Match("a", []int32{1, 2, 3, 5}))
	t.Insert(l, []int32{3, 5, 6, 7}, []paging.BlockID{next, next + 1})
	next += 2
	locks = append(locks, l)
	t.Unlock(insert(8, 8))
	t.Unlock(insert(9, 9, 9, 9))
	return t, locks
}

// TestCheckFindsWhatIsBroken breaks each invariant in one place.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	type damage struct {
		what string
		do   func(t *Tree, root *node)
		want string
	}
	at := func(root *node, first int32) *node { return root.child(first) }
	for _, d := range []damage{
		{"tokens counter", func(t *Tree, _ *node) { t.tokens++ }, "counters"},
		{"evictable counter", func(t *Tree, _ *node) { t.evictable-- }, "counters"},
		{"lock count too high", func(_ *Tree, r *node) { at(r, 1).child(3).child(4).locks++ }, "[3,4)"},
		{"lock count missing above", func(_ *Tree, r *node) { at(r, 1).locks-- }, "[0,2)"},
		{"root's lock count", func(_ *Tree, r *node) { r.locks++ }, "3 locks"},
		{"a block lost", func(_ *Tree, r *node) { at(r, 9).blocks = at(r, 9).blocks[:1] }, "owns 1 blocks"},
		{"a block twice", func(_ *Tree, r *node) { at(r, 9).blocks[1] = 1 }, "block 1 is also in"},
		{"a leaf inside a block", func(_ *Tree, r *node) { n := at(r, 9); n.tokens = n.tokens[:3]; n.blocks = n.blocks[:1] }, "inside a block"},
		{"a gap between parent and child", func(_ *Tree, r *node) { at(r, 1).child(3).child(4).start++ }, "does not follow"},
		{"a wrong edge", func(_ *Tree, r *node) { at(r, 9).tokens[0] = 7 }, "token 9"},
		{"a node without tokens", func(_ *Tree, r *node) { at(r, 9).tokens = nil }, "no token"},
		{"two edges of one token", func(_ *Tree, r *node) { r.kids.edges[1] = r.kids.edges[0] }, "the only one"},
		{"an empty set of children", func(_ *Tree, r *node) { at(r, 9).kids = &children{} }, "0 children"},
		{"an index that is off", func(_ *Tree, r *node) { r.kids.index = map[int32]int32{1: 1, 8: 0, 9: 2} }, "is not the child"},
		{"a node in two places", func(_ *Tree, r *node) { at(r, 8).kids = at(r, 9).kids; r.attach(at(r, 9)) }, "the only one"},
		{"locked and listed", func(t *Tree, r *node) { t.order.push(at(r, 1)) }, "locked and listed"},
		{"unlocked and not listed", func(t *Tree, r *node) { t.order.remove(at(r, 9)) }, "listed for eviction, 1 counted"},
		{"listed and not in the tree", func(t *Tree, _ *node) { t.order.push(&node{}) }, "not in the tree"},
		{"list miscounted", func(t *Tree, _ *node) { t.order.len++ }, "3 counted"},
		{"a last node that is not", func(t *Tree, r *node) { t.order.zero.newest = at(r, 8) }, "not the most recent"},
		{"more hits than above", func(_ *Tree, r *node) { at(r, 1).child(3).hits = 9 }, "9 hits"},
		{"used after what is above", func(t *Tree, r *node) { at(r, 9).used = 0 }, "used last at 0"},
		{"a broken link", func(t *Tree, _ *node) { t.order.zero.newest.older = nil }, "linked wrongly"},
		{"a listed root", func(t *Tree, r *node) { t.order.push(r) }, "listed for eviction"},
		{"a root with tokens", func(_ *Tree, r *node) { r.tokens = []int32{1} }, "tokens or blocks"},
		{"an empty root", func(t *Tree, _ *node) { t.root("b") }, `root "b"`},
		{"a root under another salt", func(t *Tree, r *node) { t.salts[r] = "b" }, "way back"},
	} {
		tree, locks := plant()
		if err := tree.Check(locks); err != nil {
			t.Fatalf("before any damage: %v\n%v", err, tree)
		}
		d.do(tree, tree.roots["a"])
		if err := tree.Check(locks); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: got %v, want it to say %q", d.what, err, d.want)
		}
	}
}

// TestCheckNeedsAllLocks: the lock counts are held against the locks that really live.
func TestCheckNeedsAllLocks(t *testing.T) {
	tree, locks := plant()
	if err := tree.Check(locks[:1]); err == nil {
		t.Error("a forgotten lock was not found")
	}
	if err := tree.Check(append(locks, &Lock{})); err == nil {
		t.Error("a lock without a node was not found")
	}
	if err := tree.Check(append(locks, &Lock{node: &node{}})); err == nil {
		t.Error("a lock on a node outside the tree was not found")
	}

	// Children that would be evicted after their parent.
	tree, locks = plant()
	for _, l := range locks {
		tree.Unlock(l)
	}
	parent := tree.roots["a"].child(1)
	tree.order.remove(parent)
	parent.newer, tree.order.zero.oldest.older, tree.order.zero.oldest = tree.order.zero.oldest, parent, parent
	tree.order.len++
	parent.used, parent.child(4).used, parent.child(5).used = 0, 0, 0 // or that would be found first
	if err := tree.Check(nil); err == nil || !strings.Contains(err.Error(), "after its parent") {
		t.Errorf("a parent listed before its children: %v", err)
	}
	// A node that ends inside a block and has one child left.
	tree, locks = plant()
	for _, l := range locks {
		tree.Unlock(l)
	}
	parent = tree.roots["a"].child(1) // [0,3) now: unlocking joined it with [2,3)
	tree.order.remove(parent.child(4))
	parent.unlink(parent.child(4))
	if err := tree.Check(nil); err == nil || !strings.Contains(err.Error(), "single child") {
		t.Errorf("a parent with a single child inside a block: %v", err)
	}
}

// TestCheckFindsWrongRanks breaks each invariant of the lists by rank.
func TestCheckFindsWrongRanks(t *testing.T) {
	for _, d := range []struct {
		what string
		do   func(o *order)
		want string
	}{
		{"a hit that moved no node", func(o *order) { o.ranks[2].oldest.hits++ }, "rank 2"},
		{"a list in the wrong place", func(o *order) { o.ranks[1], o.ranks[2] = o.ranks[2], o.ranks[1] }, "not where it is looked for"},
		{"a list without a place", func(o *order) { delete(o.ranks, 3) }, "2 ranks and 3 in the heap"},
		{"a list that knows another place", func(o *order) { o.ranks[2].at = 0 }, "not where it is looked for"},
		{"an empty list", func(o *order) { o.remove(o.ranks[2].oldest); o.listFor(2) }, "not where it is looked for"},
		{"a list of rank 0", func(o *order) { o.ranks[1].rank = 0 }, "rank 0"},
		{"a heap out of order", func(o *order) { o.heap.Swap(0, 1) }, "out of order"},
	} {
		tree := New(1, WithEviction(LFU))
		for token := range int32(4) {
			cache(t, tree, "", []int32{token}, paging.BlockID(token))
			for range token {
				tree.Unlock(tree.Lock(tree.Match("", []int32{token})))
			}
		}
		check(t, tree)
		d.do(&tree.order)
		if err := tree.Check(nil); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: got %v, want it to say %q", d.what, err, d.want)
		}
	}
}
