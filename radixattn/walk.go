package radixattn

import (
	"maps"
	"slices"

	"tailor/paging"
)

// BlockView is a block in its place.
type BlockView struct {
	Salt   string
	Parent paging.BlockID // the block before it on its path; NoBlock: it begins the path
	ID     paging.BlockID
	Path   []int32 // all tokens up to the block's last row; valid until yield returns
}

// Walk calls yield with every block in the tree until yield returns false: salt by salt,
// and each block after its parent, next to it wherever the path does not branch. The tree
// must not change meanwhile.
func (t *Tree) Walk(yield func(BlockView) bool) {
	w := walker{size: t.blockSize, yield: yield}
	for _, salt := range slices.Sorted(maps.Keys(t.roots)) {
		w.salt, w.path, w.blocks = salt, w.path[:0], w.blocks[:0]
		if !w.below(t.roots[salt]) {
			return
		}
	}
}

type walker struct {
	size   int
	salt   string
	yield  func(BlockView) bool
	path   []int32 // tokens from the root to the end of the node walked
	blocks []paging.BlockID
}

// below walks what is under n, given the path to n.
func (w *walker) below(n *node) bool {
	if n.kids == nil {
		return true
	}
	tokens, blocks := len(w.path), len(w.blocks)
	for _, e := range n.kids.edges {
		w.path = append(w.path[:tokens], e.child.tokens...)
		w.blocks = w.blocks[:blocks]
		for _, id := range e.child.blocks {
			parent := paging.NoBlock
			if len(w.blocks) > 0 {
				parent = w.blocks[len(w.blocks)-1]
			}
			w.blocks = append(w.blocks, id)
			if !w.yield(BlockView{Salt: w.salt, Parent: parent, ID: id, Path: w.path[:len(w.blocks)*w.size]}) {
				return false
			}
		}
		if !w.below(e.child) {
			return false
		}
	}
	return true
}
