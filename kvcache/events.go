package kvcache

import (
	"tailor/paging"
	"tailor/radixattn"
)

// BlockID is the number of a block in the pool.
type BlockID = paging.BlockID

// NoBlock is the id of no block.
const NoBlock = paging.NoBlock

// BlockView is a block in its place in the prefix tree.
type BlockView = radixattn.BlockView

// Sink is told what the prefix tree holds, change by change and in their order: whoever
// applies them to what Walk showed has what Walk would show. Slices are the cache's own:
// valid until the call returns, and not to be changed.
type Sink interface {
	// Stored says that the tree took blocks, each the child of the one before and the first
	// of parent, which is NoBlock if they begin a path. path is all tokens from the path's
	// beginning to the end of the last block.
	Stored(salt string, parent BlockID, path []int32, blocks []BlockID)
	// Removed says that blocks were evicted, children before parents. There is one at least.
	Removed(blocks []BlockID)
	// Cleared says that the tree holds nothing any more.
	Cleared()
}

// Watch has sink told of all changes from now on, instead of who was told before; nil:
// nobody is.
func (m *Manager) Watch(sink Sink) { m.sink = sink }

// Walk calls yield with every block in the prefix tree, salt by salt and each after its
// parent, until yield returns false. It takes time linear in the tree.
func (m *Manager) Walk(yield func(BlockView) bool) { m.tree.Walk(yield) }

// tellStored tells of the blocks [from, to) of s.
func (m *Manager) tellStored(s *Sequence, from, to int) {
	if m.sink == nil || from == to {
		return
	}
	parent := NoBlock
	if from > 0 {
		parent = s.table.At(from - 1)
	}
	m.sink.Stored(s.salt, parent, s.tokens[:to*m.cfg.BlockSize], s.table.Blocks(from, to))
}
