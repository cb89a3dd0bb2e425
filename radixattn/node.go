package radixattn

import (
	"slices"

	"tailor/paging"
)

// node covers the token positions [start, end()) of its path. It takes 96 bytes, so that
// short sequences do not pay more for their node than for their tokens.
type node struct {
	parent *node     // nil: a root
	kids   *children // nil: a leaf
	tokens []int32   // the run of tokens covered; empty only in a root
	blocks []paging.BlockID

	older, newer *node // neighbours in the order of eviction; nil while locked
	start        int32
	locks        int32  // locks that end at this node or below
	hits         uint32 // calls of Lock that covered this node
	used         uint32 // tick at which the last lock went
}

func (n *node) end() int     { return int(n.start) + len(n.tokens) }
func (n *node) isRoot() bool { return n.parent == nil }

// first is the number, within its path, of the first block the node may own: the block
// that position start falls into. It owns blocks first, first+1, ... whose last row is
// before end().
func (n *node) first(blockSize int) int { return int(n.start) / blockSize }

// child returns the child whose first token is token, or nil.
func (n *node) child(token int32) *node {
	if n.kids == nil {
		return nil
	}
	if i := n.kids.find(token); i >= 0 {
		return n.kids.edges[i].child
	}
	return nil
}

// anyChild returns one child of a node that has some: the same until the children change.
func (n *node) anyChild() *node { return n.kids.edges[0].child }

// onlyChild returns the child of a node that has exactly one, or nil.
func (n *node) onlyChild() *node {
	if n.kids == nil || len(n.kids.edges) != 1 {
		return nil
	}
	return n.kids.edges[0].child
}

// attach makes c a child of n.
func (n *node) attach(c *node) {
	if n.kids == nil {
		n.kids = &children{}
	}
	n.kids.add(c)
	c.parent = n
}

// unlink takes c from the children of n; c still knows its parent.
func (n *node) unlink(c *node) {
	n.kids.remove(c.tokens[0])
	if len(n.kids.edges) == 0 {
		n.kids = nil
	}
}

// split cuts n in two after k of its tokens, 0 < k < len(tokens), and returns the new
// upper half. The lower half stays the same object, because the locks that end at n end
// at its last token; it also keeps its place in the order of eviction. A block that spans
// the cut goes with the lower half. Both halves copy their tokens: halves that shared an
// array would keep all of it alive when one of them is evicted.
//
// The upper half takes over lock count, hits and last use. Where no lock covers it the
// caller is about to lock it, since a tree is split for no other reason; until then it is
// listed like any unlocked node.
func (t *Tree) split(n *node, k int) *node {
	upper := &node{
		parent: n.parent, start: n.start, tokens: slices.Clone(n.tokens[:k]),
		locks: n.locks, hits: n.hits, used: n.used,
	}
	n.parent.kids.replace(upper)

	n.start += int32(k)
	n.tokens = slices.Clone(n.tokens[k:])
	if owned := n.first(t.blockSize) - upper.first(t.blockSize); owned > 0 {
		upper.blocks = slices.Clone(n.blocks[:owned])
		n.blocks = slices.Clone(n.blocks[owned:])
	}
	upper.attach(n)

	if n.locks == 0 {
		t.order.push(upper)
	}
	t.nodes++
	return upper
}

// short is the number of tokens below which a run is not worth a node of its own for the
// sake of a boundary between it and a part of a block. Joining the two saves 160 bytes, and
// costs two copies of the run whenever a lock ends there again.
const short = 64

// mend undoes what nothing needs any more of a split between n and its parent, whose only
// child n is, and reports whether the parent is gone. No lock may end at the parent.
//
//   - A parent without blocks goes; n takes over its tokens.
//   - Where nothing tells the two apart (alike), n takes over all of the parent, its hits
//     and its place in the order of eviction included. So it does where it has no blocks
//     itself, and the parent is short.
//   - Otherwise the parent keeps its blocks, but not the tokens after the last of them:
//     these it had for the sake of children that part inside a block.
func (t *Tree) mend(n *node, alike bool) (gone bool) {
	upper := n.parent
	keep := upper.end() - upper.end()%t.blockSize - int(upper.start)
	switch {
	case keep <= 0:
		if upper.locks == 0 {
			t.order.remove(upper)
		}
		t.join(n)
		return true
	case alike || len(n.blocks) == 0 && len(upper.tokens) < short:
		if upper.locks == 0 {
			t.order.remove(n)
			t.order.replace(upper, n)
		}
		n.hits, n.used = upper.hits, upper.used
		t.join(n)
		return true
	case keep < len(upper.tokens):
		upper.kids = nil
		n.start = upper.start + int32(keep) // inside the same block as before, so n owns the same ones
		n.tokens = slices.Concat(upper.tokens[keep:], n.tokens)
		upper.tokens = shrink(upper.tokens, keep)
		upper.attach(n)
	}
	return false
}

// join gives the tokens and blocks of a parent to n, its only child, and the parent goes.
func (t *Tree) join(n *node) {
	upper := n.parent
	n.start = upper.start
	n.tokens = slices.Concat(upper.tokens, n.tokens)
	n.blocks = slices.Concat(upper.blocks, n.blocks)
	n.parent = upper.parent
	n.parent.kids.replace(n)
	t.nodes--
}
