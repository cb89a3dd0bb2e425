package radixattn

import (
	"errors"
	"fmt"

	"tailor/paging"
)

// Check proves the invariants of the tree, given all its locks that are not yet unlocked,
// in time linear in the tree. The error names the node and the block.
func (t *Tree) Check(live []*Lock) error {
	c := checker{t: t, at: make(map[*node]place), owner: make(map[paging.BlockID]*node), locks: make(map[*node]int32)}
	for _, l := range live {
		if l.node == nil {
			return errors.New("radixattn: a live lock holds no node")
		}
		c.locks[l.node]++
	}
	for salt, r := range t.roots {
		if err := c.root(salt, r); err != nil {
			return fmt.Errorf("radixattn: root %q: %w", salt, err)
		}
	}
	if len(c.locks) > 0 {
		return fmt.Errorf("radixattn: %d locks end at nodes that are not in the tree", len(c.locks))
	}
	if err := c.order(); err != nil {
		return fmt.Errorf("radixattn: %w", err)
	}
	if got := t.Stats(); got != c.sum {
		return fmt.Errorf("radixattn: counters say %+v, the tree has %+v", got, c.sum)
	}
	return nil
}

// place is where a node was found, for messages.
type place struct {
	salt string
	n    *node
}

func (p place) String() string {
	return fmt.Sprintf("node %q [%d,%d) starting %v", p.salt, p.n.start, p.n.end(), p.n.tokens[:min(4, len(p.n.tokens))])
}

type checker struct {
	t     *Tree
	at    map[*node]place          // every node met, without roots
	owner map[paging.BlockID]*node // every block met
	locks map[*node]int32          // locks by the node they end at, not met yet
	sum   Stats
}

func (c *checker) root(salt string, r *node) error {
	c.sum.Salts++
	switch {
	case r.parent != nil || r.start != 0 || len(r.tokens) > 0 || len(r.blocks) > 0:
		return errors.New("it has a parent, tokens or blocks")
	case r.older != nil || r.newer != nil || c.t.order.zero.oldest == r:
		return errors.New("it is listed for eviction")
	case c.t.salts[r] != salt || len(c.t.salts) != len(c.t.roots):
		return fmt.Errorf("the way back to the salt leads to %q", c.t.salts[r])
	case r.kids == nil && r.locks == 0:
		return errors.New("it is empty and still there")
	}
	locks, err := c.children(salt, r)
	if err != nil {
		return err
	}
	if r.locks != locks {
		return fmt.Errorf("%d locks counted, %d end at it or below", r.locks, locks)
	}
	return nil
}

// children checks everything below n, and returns the number of locks at n and below.
func (c *checker) children(salt string, n *node) (locks int32, err error) {
	locks = c.locks[n]
	delete(c.locks, n)
	if n.kids == nil {
		return locks, nil
	}
	edges, index := n.kids.edges, n.kids.index
	if len(edges) == 0 || index != nil && len(index) != len(edges) {
		return 0, fmt.Errorf("[%d,%d) has %d children, %d indexed", n.start, n.end(), len(edges), len(index))
	}
	seen := make(map[int32]bool, len(edges))
	for i, e := range edges {
		at := place{salt, e.child}
		switch {
		case len(e.child.tokens) == 0:
			return 0, fmt.Errorf("child %d of [%d,%d) covers no token", e.token, n.start, n.end())
		case e.child.tokens[0] != e.token || seen[e.token] || index != nil && index[e.token] != int32(i):
			return 0, fmt.Errorf("%v is not the child of token %d, or not the only one", at, e.token)
		case e.child.parent != n || int(e.child.start) != n.end():
			return 0, fmt.Errorf("%v does not follow its parent [%d,%d)", at, n.start, n.end())
		}
		seen[e.token] = true
		below, err := c.node(at)
		if err != nil {
			return 0, fmt.Errorf("%v: %w", at, err)
		}
		locks += below
	}
	return locks, nil
}

// node checks a node and everything below it, and returns the number of locks there.
func (c *checker) node(at place) (locks int32, err error) {
	n, size := at.n, c.t.blockSize
	c.at[n] = at
	if owns := n.end()/size - n.first(size); len(n.blocks) != owns {
		return 0, fmt.Errorf("it owns %d blocks, its tokens end %d", len(n.blocks), owns)
	}
	for _, id := range n.blocks {
		if other, twice := c.owner[id]; twice {
			return 0, fmt.Errorf("block %d is also in %v", id, c.at[other])
		}
		c.owner[id] = n
	}
	if n.end()%size != 0 && (n.kids == nil || c.locks[n] > 0) {
		return 0, errors.New("a leaf, or a lock, ends inside a block")
	}
	if p := n.parent; !p.isRoot() && (n.hits > p.hits || n.locks == 0 && p.locks == 0 && n.used > p.used) {
		return 0, fmt.Errorf("%d hits and last use at %d, above it %d and %d", n.hits, n.used, p.hits, p.used)
	}
	if n.end()%size != 0 && n.locks == 0 && len(n.kids.edges) < 2 {
		return 0, errors.New("it ends inside a block, for the sake of a single child")
	}
	locks, err = c.children(at.salt, n)
	if err != nil {
		return 0, err
	}
	if n.locks != locks {
		return 0, fmt.Errorf("%d locks counted, %d end at it or below", n.locks, locks)
	}
	c.sum.Nodes++
	c.sum.Tokens += len(n.tokens)
	c.sum.Blocks += len(n.blocks)
	if n.locks == 0 {
		c.sum.Evictable += len(n.blocks)
	}
	return locks, nil
}

// order checks the list of unlocked nodes against the nodes met.
func (c *checker) order() error {
	unlocked := 0
	for n, at := range c.at {
		if n.locks == 0 {
			unlocked++
		} else if n.older != nil || n.newer != nil {
			return fmt.Errorf("%v is locked and listed for eviction", at)
		}
	}
	listed := make(map[*node]bool)
	for _, l := range c.t.order.lists() {
		if err := c.list(l, listed); err != nil {
			return fmt.Errorf("rank %d: %w", l.rank, err)
		}
	}
	if len(listed) != unlocked || c.t.order.len != unlocked {
		return fmt.Errorf("%d nodes are unlocked, %d listed for eviction, %d counted", unlocked, len(listed), c.t.order.len)
	}
	return nil
}

// list checks the nodes of one rank, and adds them to those listed.
func (c *checker) list(l *list, listed map[*node]bool) error {
	o := &c.t.order
	if l != &o.zero && (l.rank == 0 || l.oldest == nil || o.ranks[l.rank] != l || o.heap[l.at] != l) || len(o.ranks) != len(o.heap) {
		return fmt.Errorf("it is empty or not where it is looked for, with %d ranks and %d in the heap", len(o.ranks), len(o.heap))
	}
	if l != &o.zero && o.heap[(l.at-1)/2].rank > l.rank {
		return errors.New("the heap is out of order")
	}
	var older *node
	for n := l.oldest; n != nil; older, n = n, n.newer {
		at, met := c.at[n]
		switch {
		case !met:
			return fmt.Errorf("[%d,%d) is listed for eviction and not in the tree", n.start, n.end())
		case n.older != older || listed[n]:
			return fmt.Errorf("%v is linked wrongly in the order of eviction", at)
		case o.rank(n) != l.rank:
			return fmt.Errorf("%v has %d hits", at, n.hits)
		case listed[n.parent]:
			return fmt.Errorf("%v would be evicted after its parent", at)
		case older != nil && older.used > n.used:
			return fmt.Errorf("%v was used last at %d, the one before it at %d", at, n.used, older.used)
		}
		listed[n] = true
	}
	if older != l.newest {
		return errors.New("its last node is not the most recent")
	}
	return nil
}
