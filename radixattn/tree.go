package radixattn

import (
	"fmt"

	"tailor/paging"
)

// Invariants of a Tree (Check proves them):
//   - A node starts where its parent ends, and covers at least one token. Siblings differ
//     in their first token.
//   - A node owns exactly the blocks whose last row it covers: end/B - start/B of them.
//     No block is in the tree twice.
//   - A leaf ends at a block boundary, and so does a node at which a lock ends. An unlocked
//     node that ends inside a block has two children or more.
//   - A node's lock count is the number of locks that end at it or below it. So a lock
//     protects its own node and all ancestors.
//   - The unlocked nodes are listed in the order of eviction, children before parents.
//   - A node has at least the hits of each child, and all its blocks were hit as often as
//     it was: where hits differ there is a boundary between nodes.
//   - A root without children and without locks is gone.

// Tree maps token prefixes, under a salt, to blocks. See the package comment. A salt is an
// opaque key of its own, never joined with anything: "a" and "ab" share nothing.
type Tree struct {
	blockSize int
	roots     map[string]*node // by salt
	salts     map[*node]string // the way back, to drop a root that has become empty
	order     order
	clock     func() uint32
	now       uint32 // the time of the last Unlock, in ticks
	version   uint64 // counts changes, so that a stale Match is found out

	nodes, tokens, blocks, evictable int
}

// Option sets what New otherwise chooses.
type Option func(*Tree)

// WithEviction sets the order of eviction. The default is LRU.
func WithEviction(e Eviction) Option { return func(t *Tree) { t.order.eviction = e } }

// WithClock sets the clock that says when a node was used last, in ticks of any length. A
// clock that goes back is taken to stand still. The default counts the calls of Unlock.
func WithClock(clock func() uint32) Option { return func(t *Tree) { t.clock = clock } }

// New returns an empty tree for blocks of blockSize token rows.
func New(blockSize int, options ...Option) *Tree {
	if blockSize < 1 {
		panic(fmt.Sprintf("radixattn: block size %d", blockSize))
	}
	t := &Tree{blockSize: blockSize, roots: make(map[string]*node), salts: make(map[*node]string)}
	for _, option := range options {
		option(t)
	}
	if e := t.order.eviction; int(e) >= len(evictionNames) {
		panic(fmt.Sprintf("radixattn: %v", e))
	}
	return t
}

// time returns the time, which never goes back.
func (t *Tree) time() uint32 {
	if t.clock == nil {
		return t.now
	}
	return max(t.now, t.clock())
}

// Stats counts what is in a tree. Its fields are maintained, not computed: reading costs
// nothing.
type Stats struct {
	Tokens    int // tokens covered by nodes
	Blocks    int // blocks owned by nodes
	Evictable int // blocks that no lock covers
	Nodes     int // nodes, without roots
	Salts     int // roots
}

// Stats returns the current counts.
func (t *Tree) Stats() Stats {
	return Stats{Tokens: t.tokens, Blocks: t.blocks, Evictable: t.evictable, Nodes: t.nodes, Salts: len(t.roots)}
}

// root returns the root of a salt, making it if need be.
func (t *Tree) root(salt string) *node {
	r := t.roots[salt]
	if r == nil {
		r = &node{}
		t.roots[salt] = r
		t.salts[r] = salt
	}
	return r
}

// dropIfEmpty removes a root that has neither children nor locks, so that salts seen
// once do not stay for ever.
func (t *Tree) dropIfEmpty(r *node) {
	if r.kids == nil && r.locks == 0 {
		delete(t.roots, t.salts[r])
		delete(t.salts, r)
	}
}

// Blocks calls yield with every block in the tree, in no particular order, until yield
// returns false.
func (t *Tree) Blocks(yield func(paging.BlockID) bool) {
	var walk func(n *node) bool
	walk = func(n *node) bool {
		for _, id := range n.blocks {
			if !yield(id) {
				return false
			}
		}
		if n.kids == nil {
			return true
		}
		for _, e := range n.kids.edges {
			if !walk(e.child) {
				return false
			}
		}
		return true
	}
	for _, r := range t.roots {
		if !walk(r) {
			return
		}
	}
}
