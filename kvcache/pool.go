package kvcache

import (
	"unsafe"

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
// of float32 or of bfloat16: one of wide and narrow has it, the other has no block. A block
// lies in one piece, so that copying its rows stays local. It is never cleared: the rows of
// a released block stay as they are until its next holder writes them.
type pool struct {
	wide   storage[float32]
	narrow storage[uint16]
	free   func() error // gives the storage back
}

func newPool(cfg Config) (*pool, error) {
	p := new(pool)
	var err error
	if cfg.BFloat16 {
		p.narrow, p.free, err = newStorage[uint16](cfg)
	} else {
		p.wide, p.free, err = newStorage[float32](cfg)
	}
	return p, err
}

// touch writes to every page of storage that holds no rows yet.
func (p *pool) touch() {
	touch(p.wide.data)
	touch(p.narrow.data)
}

// touch writes a zero to each 4 KiB, the smallest page there is.
func touch[T number](data []T) {
	var zero T
	for i := 0; i < len(data); i += 4096 / int(unsafe.Sizeof(zero)) {
		data[i] = zero
	}
}

// copyRows copies the first rows token rows of src to dst in all layers. src and dst may
// be the same block.
func (p *pool) copyRows(dst, src paging.BlockID, rows int) {
	p.wide.copyRows(dst, src, rows)
	p.narrow.copyRows(dst, src, rows)
}

// number is the type of a key or a value: float32, or bfloat16 as uint16.
type number interface{ float32 | uint16 }

// storage is a pool's numbers. The zero storage has no layer, and no block.
type storage[T number] struct {
	cfg  Config
	half int // numbers of one layer's keys, or values, of one block
	data []T
}

func newStorage[T number](cfg Config) (storage[T], func() error, error) {
	s := storage[T]{cfg: cfg, half: cfg.Heads * cfg.HeadDim * cfg.BlockSize}
	n := cfg.PoolBytes() / cfg.numberBytes()
	if cfg.PoolBytes() < mapFrom {
		s.data = make([]T, n)
		return s, func() error { return nil }, nil
	}
	data, free, err := mapNumbers[T](n)
	s.data = data
	return s, free, err
}

// keys returns a layer's keys of one block: [heads][headDim][blockSize].
func (s *storage[T]) keys(layer int, id paging.BlockID) []T {
	from := (int(id)*s.cfg.Layers + layer) * 2 * s.half
	return s.data[from : from+s.half : from+s.half]
}

// values returns a layer's values of one block: [heads][blockSize][headDim].
func (s *storage[T]) values(layer int, id paging.BlockID) []T {
	from := (int(id)*s.cfg.Layers+layer)*2*s.half + s.half
	return s.data[from : from+s.half : from+s.half]
}

// copyRows copies token rows. Keys lie a column per token, so theirs is a strided copy.
func (s *storage[T]) copyRows(dst, src paging.BlockID, rows int) {
	size, dim := s.cfg.BlockSize, s.cfg.HeadDim
	for layer := range s.cfg.Layers {
		to, from := s.keys(layer, dst), s.keys(layer, src)
		for at := 0; at < len(to); at += size { // one dimension of one head
			copy(to[at:at+rows], from[at:at+rows])
		}
		to, from = s.values(layer, dst), s.values(layer, src)
		for at := 0; at < len(to); at += size * dim { // one head
			copy(to[at:at+rows*dim], from[at:at+rows*dim])
		}
	}
}
