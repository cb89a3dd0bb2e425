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
		{"locked and listed", func(t *Tree, r *node) { t.lru.push(at(r, 1)) }, "locked and listed"},
		{"unlocked and not listed", func(t *Tree, r *node) { t.lru.remove(at(r, 9)) }, "listed for eviction, 1 counted"},
		{"listed and not in the tree", func(t *Tree, _ *node) { t.lru.push(&node{}) }, "not in the tree"},
		{"list miscounted", func(t *Tree, _ *node) { t.lru.len++ }, "3 counted"},
		{"a broken link", func(t *Tree, _ *node) { t.lru.newest.older = nil }, "linked wrongly"},
		{"a listed root", func(t *Tree, r *node) { t.lru.push(r) }, "listed for eviction"},
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
	tree.lru.remove(parent)
	parent.newer, tree.lru.oldest.older, tree.lru.oldest = tree.lru.oldest, parent, parent
	tree.lru.len++
	if err := tree.Check(nil); err == nil || !strings.Contains(err.Error(), "after its parent") {
		t.Errorf("a parent listed before its children: %v", err)
	}
	// A node that ends inside a block and has one child left.
	tree, locks = plant()
	for _, l := range locks {
		tree.Unlock(l)
	}
	parent = tree.roots["a"].child(1) // [0,3) now: unlocking joined it with [2,3)
	tree.lru.remove(parent.child(4))
	parent.unlink(parent.child(4))
	if err := tree.Check(nil); err == nil || !strings.Contains(err.Error(), "single child") {
		t.Errorf("a parent with a single child inside a block: %v", err)
	}
}
