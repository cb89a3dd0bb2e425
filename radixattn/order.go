package radixattn

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
)

// order lists the unlocked nodes from the one to evict first to the one that stays longest:
// by rank, and within a rank by when they were unlocked. Under LFU a node's rank is its
// hits. Under LRU all have rank 0, so there is one list and every operation takes constant
// time; otherwise it takes the logarithm of the number of different ranks, which is far
// below that of nodes.
//
// Invariants:
//   - A node is listed exactly when no lock covers it. Roots never are. Its rank does not
//     change while it is listed.
//   - A node is listed before its parent. A parent has at least the hits of its child,
//     because a lock that covers the one covers the other; and where they are equal, nodes
//     enter at the recent end, a path at a time, leaf first.
//   - Hence the first node has no children: they would be listed before it, or locked, and
//     then so would it be. Eviction takes the first and need not search for a leaf.
//   - No list but that of rank 0 is empty.
//
// A node's place says when its last lock went and so needs no time stamp. A heap of leaves
// by rank and time does the same in the logarithm of their number, with more memory for
// each of them.
type order struct {
	eviction Eviction
	zero     list             // the nodes of rank 0, where most are
	ranks    map[uint32]*list // the others, by rank
	heap     byRank           // the same, the lowest rank on top
	len      int
}

// list holds the unlocked nodes of one rank.
type list struct {
	oldest, newest *node
	rank           uint32
	at             int // its place in the heap
}

func (o *order) rank(n *node) uint32 {
	if o.eviction == LFU {
		return n.hits
	}
	return 0
}

// push adds a node as the most recent of its rank.
func (o *order) push(n *node) {
	l := o.listFor(o.rank(n))
	n.older = l.newest
	if l.newest != nil {
		l.newest.newer = n
	} else {
		l.oldest = n
	}
	l.newest = n
	o.len++
}

// listFor returns the list of a rank, making it if need be.
func (o *order) listFor(rank uint32) *list {
	if rank == 0 {
		return &o.zero
	}
	l := o.ranks[rank]
	if l == nil {
		l = &list{rank: rank}
		if o.ranks == nil {
			o.ranks = make(map[uint32]*list)
		}
		o.ranks[rank] = l
		heap.Push(&o.heap, l)
	}
	return l
}

// remove takes a listed node out.
func (o *order) remove(n *node) {
	l := &o.zero
	if rank := o.rank(n); rank > 0 {
		l = o.ranks[rank]
	}
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		l.oldest = n.newer
	}
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		l.newest = n.older
	}
	n.older, n.newer = nil, nil
	o.len--
	if l.oldest == nil && l.rank > 0 {
		heap.Remove(&o.heap, l.at)
		delete(o.ranks, l.rank)
	}
}

// replace puts n, which is not listed, in the place of a listed node, whose rank it is about
// to take over.
func (o *order) replace(listed, n *node) {
	l := &o.zero
	if rank := o.rank(listed); rank > 0 {
		l = o.ranks[rank]
	}
	n.older, n.newer = listed.older, listed.newer
	if n.older != nil {
		n.older.newer = n
	} else {
		l.oldest = n
	}
	if n.newer != nil {
		n.newer.older = n
	} else {
		l.newest = n
	}
	listed.older, listed.newer = nil, nil
}

// first returns the node to evict first, or nil.
func (o *order) first() *node {
	if o.zero.oldest == nil && len(o.heap) > 0 {
		return o.heap[0].oldest
	}
	return o.zero.oldest
}

// lists returns the lists by rank.
func (o *order) lists() []*list {
	others := slices.SortedFunc(slices.Values(o.heap), func(a, b *list) int { return cmp.Compare(a.rank, b.rank) })
	return append([]*list{&o.zero}, others...)
}

// backward yields the nodes from the one that stays longest to the one to evict first.
func (o *order) backward() iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for _, l := range slices.Backward(o.lists()) {
			for n := l.newest; n != nil; n = n.older {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// byRank is a heap of lists, each of which knows its place.
type byRank []*list

func (h byRank) Len() int           { return len(h) }
func (h byRank) Less(i, j int) bool { return h[i].rank < h[j].rank }

func (h byRank) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *byRank) Push(x any) {
	l := x.(*list)
	l.at = len(*h)
	*h = append(*h, l)
}

func (h *byRank) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return l
}
