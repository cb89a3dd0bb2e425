package kvcache

import (
	"tailor/paging"
	"tailor/radixattn"
)

// Sequence is the cache's side of one running sequence: its tokens, the blocks that hold
// their keys and values, and how far these are computed. It belongs to its Manager's
// goroutine, and must not be used after Free.
type Sequence struct {
	m     *Manager // nil after Free
	index int      // in m.live

	salt     string
	tokens   []int32
	table    paging.BlockTable // as many blocks as tokens need
	lock     *radixattn.Lock   // covers the full blocks of [0, computed): those in the tree
	cached   int
	computed int
}

// Cached returns how many leading tokens Allocate found in the cache, rows copied out of
// a shared block included.
func (s *Sequence) Cached() int { return s.cached }

// Computed returns how many leading tokens have their keys and values: those reused and
// those committed. The next token to run is Tokens()[Computed()].
func (s *Sequence) Computed() int { return s.computed }

// Len returns the number of tokens, computed or not.
func (s *Sequence) Len() int { return len(s.tokens) }

// Tokens returns all tokens. The slice aliases the sequence's own: it must not be changed
// and is valid until the next Append or Free.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Blocks returns the number of blocks the sequence holds, shared ones included.
func (s *Sequence) Blocks() int { return s.table.Len() }

// BlockSize returns the number of token rows in a block.
func (s *Sequence) BlockSize() int { return s.m.cfg.BlockSize }

// BFloat16 says that keys and values are bfloat16: then Keys16 and Values16 return them,
// and there are none for Keys and Values to return; otherwise it is the other way round.
func (s *Sequence) BFloat16() bool { return s.m.cfg.BFloat16 }

// Keys returns a layer's keys of the sequence's block: [heads][headDim][blockSize].
// Rows before Computed() may be shared with other sequences and must only be read, rows
// from Computed() on must be written before they are read.
func (s *Sequence) Keys(layer, block int) []float32 {
	return s.m.pool.wide.keys(layer, s.table.At(block))
}

// Values returns a layer's values of the sequence's block: [heads][blockSize][headDim].
// The rule for rows is that of Keys.
func (s *Sequence) Values(layer, block int) []float32 {
	return s.m.pool.wide.values(layer, s.table.At(block))
}

// Keys16 is Keys in bfloat16.
func (s *Sequence) Keys16(layer, block int) []uint16 {
	return s.m.pool.narrow.keys(layer, s.table.At(block))
}

// Values16 is Values in bfloat16.
func (s *Sequence) Values16(layer, block int) []uint16 {
	return s.m.pool.narrow.values(layer, s.table.At(block))
}
