package radixattn

// order lists the unlocked nodes from the one to evict first to the most recent one.
//
// Invariants:
//   - A node is listed exactly when no lock covers it. Roots never are.
//   - A node is listed before (older than) its parent. Nodes enter at the recent end,
//     a path at a time, leaf first; so a child can only be older.
//   - Hence the oldest node has no children: they would be older still, or locked, and
//     then so would it be. Eviction takes the oldest and need not search for a leaf.
//
// The list is the clock: a node's place in it says when its last lock went. A heap of
// leaves by time stamp does the same in logarithmic time and with more memory.
type order struct {
	oldest, newest *node
	len            int
}

// push adds a node at the recent end.
func (o *order) push(n *node) {
	n.older = o.newest
	if o.newest != nil {
		o.newest.newer = n
	} else {
		o.oldest = n
	}
	o.newest = n
	o.len++
}

// remove takes a listed node out.
func (o *order) remove(n *node) {
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		o.oldest = n.newer
	}
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		o.newest = n.older
	}
	n.older, n.newer = nil, nil
	o.len--
}
