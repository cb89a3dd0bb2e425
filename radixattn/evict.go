package radixattn

import (
	"slices"

	"tailor/paging"
)

// Evict takes up to n unlocked blocks out of the tree and returns them: fewer than n only
// if no more are unlocked. Which leaf goes first is up to the tree's [Eviction]; of a leaf
// it is the last block, so that every prefix left behind is still whole.
func (t *Tree) Evict(n int) []paging.BlockID {
	evicted := make([]paging.BlockID, 0, min(max(n, 0), t.evictable))
	for len(evicted) < n {
		leaf := t.order.first()
		if leaf == nil {
			break
		}
		t.version++
		keep := max(0, len(leaf.blocks)-(n-len(evicted)))
		for i := len(leaf.blocks) - 1; i >= keep; i-- {
			evicted = append(evicted, leaf.blocks[i])
		}
		t.truncate(leaf, keep)
	}
	return evicted
}

// truncate cuts an unlocked leaf back to the end of its first keep blocks, and removes it
// if that leaves no token: where it starts inside a block, the tokens before that belong
// to its parent, and to the siblings that have the block's other copies.
func (t *Tree) truncate(leaf *node, keep int) {
	end := (leaf.first(t.blockSize) + keep) * t.blockSize
	left := max(0, end-int(leaf.start))
	t.tokens -= len(leaf.tokens) - left
	t.blocks -= len(leaf.blocks) - keep
	t.evictable -= len(leaf.blocks) - keep
	if left == 0 {
		t.remove(leaf)
		return
	}
	leaf.tokens = shrink(leaf.tokens, left)
	leaf.blocks = shrink(leaf.blocks, keep)
}

// remove takes a leaf out of the tree. If one sibling is left, the parent need not end
// inside a block for it any more; and if that sibling was hit as often and is the parent's
// neighbour in the order of eviction, nothing tells the two apart. So a parent that ends
// inside a block never becomes a leaf.
func (t *Tree) remove(leaf *node) {
	parent := leaf.parent
	parent.unlink(leaf)
	t.order.remove(leaf)
	t.nodes--
	if parent.isRoot() {
		t.dropIfEmpty(parent)
		return
	}
	if last := parent.onlyChild(); last != nil && parent.locks == 0 {
		t.mend(last, parent.hits == last.hits && parent.older == last)
	}
}

// shrink cuts a slice to n elements, and moves it to an array of its own once more than
// half of the old one would lie idle.
func shrink[E any](s []E, n int) []E {
	if 2*n < cap(s) {
		return slices.Clone(s[:n])
	}
	return s[:n]
}
