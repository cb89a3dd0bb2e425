package kvcache

import (
	"fmt"

	"tailor/paging"
)

// Check proves the invariants of the cache: of its allocator, of its tree, and of both
// against the tables of the live sequences. It takes time linear in the cache. The error
// names the block, node or sequence.
func (m *Manager) Check() error {
	if err := m.blocks.Check(); err != nil {
		return err
	}
	if err := m.tree.Check(m.locks()); err != nil {
		return err
	}

	// Count all references again, from nothing.
	refs := make([]int, m.cfg.Blocks)
	for id := range m.tree.Blocks {
		refs[id]++
	}
	inTree := append([]int(nil), refs...)
	if err := m.past.check(inTree); err != nil {
		return fmt.Errorf("kvcache: %w", err)
	}
	for i, s := range m.live {
		if s.index != i || s.m != m {
			return fmt.Errorf("kvcache: sequence %d thinks it is %d, or another manager's", i, s.index)
		}
		for _, id := range s.table.Blocks(0, s.table.Len()) {
			refs[id]++
		}
	}
	for id, want := range refs {
		if got := m.blocks.Refs(paging.BlockID(id)); got != want {
			return fmt.Errorf("kvcache: block %d has %d refs; tables and tree hold it %d times", id, got, want)
		}
	}
	for i, s := range m.live {
		if err := m.checkSequence(s, inTree); err != nil {
			return fmt.Errorf("kvcache: sequence %d of %d tokens, %d computed: %w", i, len(s.tokens), s.computed, err)
		}
	}
	return nil
}

// checkSequence checks a sequence's table: first the tree's blocks for its full computed
// tokens, then blocks of its own. inTree counts how often the tree holds a block.
func (m *Manager) checkSequence(s *Sequence, inTree []int) error {
	size := m.cfg.BlockSize
	shared := s.computed / size
	switch {
	case s.cached > s.computed || s.computed > len(s.tokens):
		return fmt.Errorf("%d tokens cached", s.cached)
	case s.table.Len() != paging.BlocksFor(len(s.tokens), size):
		return fmt.Errorf("it holds %d blocks", s.table.Len())
	case s.lock.Tokens() != shared*size:
		return fmt.Errorf("its lock covers %d tokens", s.lock.Tokens())
	}
	match := m.tree.Match(s.salt, s.tokens[:shared*size])
	if match.Tokens != shared*size || match.Idle() != 0 {
		return fmt.Errorf("the tree has %d of its %d full tokens, %d blocks not locked", match.Tokens, shared*size, match.Idle())
	}
	for i, id := range match.Blocks() {
		if s.table.At(i) != id {
			return fmt.Errorf("its block %d is %d, the tree's is %d", i, s.table.At(i), id)
		}
	}
	for i := shared; i < s.table.Len(); i++ {
		if id := s.table.At(i); inTree[id] != 0 || m.blocks.Refs(id) != 1 {
			return fmt.Errorf("its block %d, %d, is not its own: %d refs, %d times in the tree", i, id, m.blocks.Refs(id), inTree[id])
		}
	}
	return nil
}
