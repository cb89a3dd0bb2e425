package kvcache

import (
	"fmt"
	"math"

	"tailor/paging"
)

// Config says how many blocks a cache has, and the shape of one.
type Config struct {
	Blocks    int // number of blocks
	BlockSize int // token rows in a block
	Layers    int
	Heads     int
	HeadDim   int
}

// Validate checks that all fields are positive and that the pool can be addressed.
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
	const most = 1 << 45 // bytes; far above any machine and far below an overflow
	if bytes := 8 * float64(c.Blocks) * float64(c.BlockSize) * float64(c.Layers) * float64(c.Heads) * float64(c.HeadDim); bytes > most {
		return fmt.Errorf("kvcache: a pool of %.3g bytes (%d blocks of %d tokens) is beyond all memory", bytes, c.Blocks, c.BlockSize)
	}
	return nil
}

// BlockBytes returns the bytes of one block: keys and values of BlockSize tokens in all
// layers, as float32.
func (c Config) BlockBytes() int {
	return c.Layers * 2 * c.Heads * c.HeadDim * c.BlockSize * 4
}

// pool is the storage of all blocks, in one allocation:
//
//	[blocks][layers] { keys [heads][headDim][blockSize], values [heads][blockSize][headDim] }
//
// A block lies in one piece, so that copying its rows stays local. It is never cleared:
// the rows of a released block stay as they are until its next holder writes them.
type pool struct {
	cfg  Config
	half int // floats of one layer's keys, or values, of one block
	data []float32
}

func newPool(cfg Config) *pool {
	half := cfg.Heads * cfg.HeadDim * cfg.BlockSize
	return &pool{cfg: cfg, half: half, data: make([]float32, cfg.Blocks*cfg.Layers*2*half)}
}

// keys returns a layer's keys of one block: [heads][headDim][blockSize].
func (p *pool) keys(layer int, id paging.BlockID) []float32 {
	from := (int(id)*p.cfg.Layers + layer) * 2 * p.half
	return p.data[from : from+p.half : from+p.half]
}

// values returns a layer's values of one block: [heads][blockSize][headDim].
func (p *pool) values(layer int, id paging.BlockID) []float32 {
	from := (int(id)*p.cfg.Layers+layer)*2*p.half + p.half
	return p.data[from : from+p.half : from+p.half]
}

// copyRows copies the first rows token rows of src to dst in all layers. Keys lie a
// column per token, so theirs is a strided copy. src and dst may be the same block.
func (p *pool) copyRows(dst, src paging.BlockID, rows int) {
	size, dim := p.cfg.BlockSize, p.cfg.HeadDim
	for layer := range p.cfg.Layers {
		to, from := p.keys(layer, dst), p.keys(layer, src)
		for at := 0; at < len(to); at += size { // one dimension of one head
			copy(to[at:at+rows], from[at:at+rows])
		}
		to, from = p.values(layer, dst), p.values(layer, src)
		for at := 0; at < len(to); at += size * dim { // one head
			copy(to[at:at+rows*dim], from[at:at+rows*dim])
		}
	}
}
