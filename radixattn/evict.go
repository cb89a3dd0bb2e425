package radixattn

import (
	"slices"

	"tailor/paging"
)

// Evict takes up to n unlocked blocks out of the tree and returns them: fewer than n only
// if no more are unlocked. The least recently used leaf goes first, and of a leaf the
// last block first, so that every prefix left behind is still whole.
func (t *Tree) Evict(n int) []paging.BlockID {
	evicted := make([]paging.BlockID, 0, min(max(n, 0), t.evictable))
	for len(evicted) < n && t.lru.oldest != nil {
		t.version++
		leaf := t.lru.oldest
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

// remove takes a leaf out of the tree. If one sibling is left and it is the parent's
// neighbour in the order of eviction, then nothing tells the two apart any more and they
// become one node.
//
// A parent that ends inside a block therefore never becomes a leaf: it was last unlocked
// together with one of its children, which is its neighbour ever since and the last of
// them to go.
func (t *Tree) remove(leaf *node) {
	parent := leaf.parent
	parent.unlink(leaf)
	t.lru.remove(leaf)
	t.nodes--
	if parent.isRoot() {
		t.dropIfEmpty(parent)
		return
	}
	if last := parent.onlyChild(); last != nil && parent.locks == 0 && parent.older == last {
		t.lru.remove(parent)
		t.join(last)
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
