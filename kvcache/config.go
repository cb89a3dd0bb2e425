package kvcache

import (
	"fmt"
	"math"

	"tailor/radixattn"
)

// Eviction says what a cache gives up first when it is short of blocks.
type Eviction = radixattn.Eviction

const (
	// LRU gives up what was used longest ago.
	LRU = radixattn.LRU
	// LFU gives up what was reused least often and, among equals, was used longest ago.
	// What a sequence finds again after a preemption counts like any other reuse; a Fork
	// does not count.
	LFU = radixattn.LFU
)

// Config says how many blocks a cache has, the shape of one, and which go first.
type Config struct {
	Blocks    int // number of blocks
	BlockSize int // token rows in a block
	Layers    int
	Heads     int
	HeadDim   int
	BFloat16  bool // keys and values are bfloat16, half the bytes, instead of float32
	Eviction  Eviction
}

// mostBytes bounds a pool: far above any machine and far below an overflow.
const mostBytes = 1 << 45

// Validate checks that all numbers are positive and that the pool can be addressed.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"Blocks", c.Blocks}, {"BlockSize", c.BlockSize}, {"Layers", c.Layers}, {"Heads", c.Heads}, {"HeadDim", c.HeadDim},
	} {
		if f.value < 1 || f.value > math.MaxInt32 {
			return fmt.Errorf("kvcache: %s is %d, must be 1 to %d", f.name, f.value, math.MaxInt32)
		}
	}
	if bytes := 2 * float64(c.numberBytes()) * float64(c.Blocks) * float64(c.BlockSize) * float64(c.Layers) * float64(c.Heads) * float64(c.HeadDim); bytes > mostBytes {
		return fmt.Errorf("kvcache: a pool of %.3g bytes (%d blocks of %d tokens) is beyond all memory", bytes, c.Blocks, c.BlockSize)
	}
	if _, err := c.Eviction.MarshalText(); err != nil {
		return fmt.Errorf("kvcache: %w", err)
	}
	return nil
}

// numberBytes is the size of one number of a key or a value.
func (c Config) numberBytes() int {
	if c.BFloat16 {
		return 2
	}
	return 4
}

// BlockBytes returns the bytes of one block: keys and values of BlockSize tokens in all
// layers, as float32 or bfloat16.
func (c Config) BlockBytes() int {
	return c.Layers * 2 * c.Heads * c.HeadDim * c.BlockSize * c.numberBytes()
}

// PoolBytes returns the bytes of the rows of all blocks. What the cache needs beside them
// to find its way, some 300 bytes for a block of 16 tokens, is not in it.
func (c Config) PoolBytes() int { return c.Blocks * c.BlockBytes() }

// BlocksFor returns the largest number of blocks whose PoolBytes are within a budget, which
// may be 0. Only the shape of a block is taken from c.
func (c Config) BlocksFor(bytes int) int {
	if c.BlockBytes() < 1 {
		panic(fmt.Sprintf("kvcache: blocks of %d bytes", c.BlockBytes()))
	}
	return min(max(bytes, 0)/c.BlockBytes(), math.MaxInt32)
}
