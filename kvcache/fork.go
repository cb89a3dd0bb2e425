package kvcache

import "fmt"

// Fork starts a second sequence with the computed tokens of s, and not the tokens after
// them: the two go on differently from there, as the n answers to one prompt do. It fails
// with ErrNoFreeBlocks, and has then changed nothing.
//
// The full blocks are shared. Where s ends inside a block, its rows are copied into a fresh
// one right away. Sharing that too until one of the two writes to it would save a copy of
// at most BlockSize-1 rows only where the fork ends before its first token; and a block
// beyond those in the tree would have two owners, which no other call has to think of.
//
// Cached of the fork is that of s: the prompt was looked for once, and computed once, for
// both. It does not count as a hit either.
func (m *Manager) Fork(s *Sequence) (*Sequence, error) {
	m.mustOwn(s)
	shared, rows := s.computed/m.cfg.BlockSize, s.computed%m.cfg.BlockSize
	if rows > 0 && m.blocks.Free()+m.tree.Stats().Evictable == 0 {
		return nil, fmt.Errorf("%w: 1 needed, none free or evictable", ErrNoFreeBlocks)
	}

	f := &Sequence{m: m, index: len(m.live), salt: s.salt, cached: s.cached, computed: s.computed}
	f.tokens = append(make([]int32, 0, s.computed+m.cfg.BlockSize), s.tokens[:s.computed]...)
	for _, id := range s.table.Blocks(0, shared) {
		m.blocks.Retain(id)
	}
	f.table.Append(s.table.Blocks(0, shared)...)
	f.lock = m.tree.Share(s.lock)
	if rows > 0 {
		f.table.Append(m.take(1)...)
		m.pool.copyRows(f.table.At(shared), s.table.At(shared), rows)
	}
	m.live = append(m.live, f)
	return f, nil
}
