package radixattn

import (
	"slices"
)

// firstTokens bounds the tokens that a view shows of a node: enough to tell siblings apart.
const firstTokens = 8

// NodeView is what a view says of one node.
type NodeView struct {
	// Salt numbers the salts of the view from 0 on, as they appear. The salt itself stays
	// out of it: whoever knows it can reuse what is cached under it.
	Salt     int     `json:"salt"`
	Parent   int     `json:"parent"` // index of the parent in the view; -1: none, it starts its path
	Depth    int     `json:"depth"`  // number of nodes above it
	Start    int     `json:"start"`  // position of its first token
	Tokens   int     `json:"tokens"`
	First    []int32 `json:"first"` // its first tokens, 8 at most
	Blocks   int     `json:"blocks"`
	Locks    int     `json:"locks"` // locks that end at it or below
	Hits     int     `json:"hits"`  // calls of Lock that covered it
	Children int     `json:"children"`
	Tick     uint32  `json:"-"` // when the last lock went; now, while there is one
}

// View describes up to limit nodes, given all locks that are not yet unlocked: first those
// that are locked, then the others from the one that stays longest to the one to evict
// first. Under LRU these are the most recently used first. Every node comes after its
// parent. The time it takes depends on limit and on the locks, not on the tree.
func (t *Tree) View(live []*Lock, limit int) []NodeView {
	v := viewer{t: t, limit: max(0, min(limit, t.nodes)), at: make(map[*node]int), salts: make(map[*node]int)}
	v.nodes = make([]NodeView, 0, v.limit)
	for _, l := range live {
		v.path(l.mustHold())
	}
	for n := range t.order.backward() {
		if len(v.nodes) == v.limit {
			break
		}
		v.add(n)
	}
	return v.nodes
}

type viewer struct {
	t     *Tree
	limit int
	nodes []NodeView
	at    map[*node]int // place in nodes
	salts map[*node]int // number of a root
}

// path adds a locked node after those above it, as far as they are not there yet.
func (v *viewer) path(n *node) {
	var missing []*node
	for ; !n.isRoot(); n = n.parent {
		if _, there := v.at[n]; there {
			break
		}
		missing = append(missing, n)
	}
	for _, n := range slices.Backward(missing) {
		if len(v.nodes) < v.limit {
			v.add(n)
		}
	}
}

// add adds a node whose parent is there.
func (v *viewer) add(n *node) {
	view := NodeView{
		Parent: -1,
		Start:  int(n.start),
		Tokens: len(n.tokens),
		First:  slices.Clone(n.tokens[:min(firstTokens, len(n.tokens))]),
		Blocks: len(n.blocks),
		Locks:  int(n.locks),
		Hits:   int(n.hits),
		Tick:   n.used,
	}
	if n.locks > 0 {
		view.Tick = v.t.time()
	}
	if n.kids != nil {
		view.Children = len(n.kids.edges)
	}
	if p := n.parent; p.isRoot() {
		number, known := v.salts[p]
		if !known {
			number = len(v.salts)
			v.salts[p] = number
		}
		view.Salt = number
	} else {
		view.Parent = v.at[p]
		view.Depth, view.Salt = v.nodes[view.Parent].Depth+1, v.nodes[view.Parent].Salt
	}
	v.at[n] = len(v.nodes)
	v.nodes = append(v.nodes, view)
}
