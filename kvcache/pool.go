package kvcache

import (
	"tailor/paging"
)

// mapFrom is the size in bytes from which on a pool is mapped outside the Go heap. There it
// does not set the collector's pace: within the heap, garbage as large as the pool itself
// would pile up before a collection. And it can have huge pages, out of which the rows of a
// block are read 5 to 35 % faster, depending on its size.
const mapFrom = 64 << 20

// pool is the storage of all blocks, in one piece:
//
//	[blocks][layers] { keys [heads][headDim][blockSize], values [heads][blockSize][headDim] }
//
// A block lies in one piece, so that copying its rows stays local. It is never cleared:
// the rows of a released block stay as they are until its next holder writes them.
type pool struct {
	cfg  Config
	half int // floats of one layer's keys, or values, of one block
	data []float32
	free func() error // gives data back
}

func newPool(cfg Config) (*pool, error) {
	p := &pool{cfg: cfg, half: cfg.Heads * cfg.HeadDim * cfg.BlockSize}
	if cfg.PoolBytes() < mapFrom {
		p.data = make([]float32, cfg.PoolBytes()/4)
		p.free = func() error { return nil }
		return p, nil
	}
	var err error
	p.data, p.free, err = mapFloats(cfg.PoolBytes() / 4)
	return p, err
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
