package model

import "fmt"

// ContiguousKV is the KV of one sequence in one piece of memory: for tests, scoring and
// comparison, where nothing is shared.
type ContiguousKV struct {
	blockSize, blocks, blockFloats int
	bfloat16                       bool

	// [layer][block][blockFloats], of the type at hand
	keys, values     []float32
	keys16, values16 []uint16
}

// NewContiguousKV makes room for capacity tokens in blocks of blockSize, in float32.
func NewContiguousKV(cfg Config, blockSize, capacity int) *ContiguousKV {
	return NewContiguousKVAs(F32, cfg, blockSize, capacity)
}

// NewContiguousKVAs is NewContiguousKV with keys and values of a type; Auto is F32.
func NewContiguousKVAs(dtype DType, cfg Config, blockSize, capacity int) *ContiguousKV {
	if blockSize < 1 || capacity < 1 {
		panic(fmt.Sprintf("model: KV of %d tokens in blocks of %d", capacity, blockSize))
	}
	kv := &ContiguousKV{
		blockSize:   blockSize,
		blocks:      (capacity + blockSize - 1) / blockSize,
		blockFloats: cfg.Width * blockSize,
		bfloat16:    dtype == BF16,
	}
	n := cfg.Layers * kv.blocks * kv.blockFloats
	if kv.bfloat16 {
		kv.keys16, kv.values16 = make([]uint16, n), make([]uint16, n)
	} else {
		kv.keys, kv.values = make([]float32, n), make([]float32, n)
	}
	return kv
}

// BlockSize is the number of token rows in a block.
func (kv *ContiguousKV) BlockSize() int { return kv.blockSize }

// BFloat16 says that keys and values are bfloat16.
func (kv *ContiguousKV) BFloat16() bool { return kv.bfloat16 }

// Keys returns a layer's keys of one block, [heads][headDim][blockSize].
func (kv *ContiguousKV) Keys(layer, block int) []float32 { return blockOf(kv, kv.keys, layer, block) }

// Values returns a layer's values of one block, [heads][blockSize][headDim].
func (kv *ContiguousKV) Values(layer, block int) []float32 {
	return blockOf(kv, kv.values, layer, block)
}

// Keys16 is Keys in bfloat16.
func (kv *ContiguousKV) Keys16(layer, block int) []uint16 {
	return blockOf(kv, kv.keys16, layer, block)
}

// Values16 is Values in bfloat16.
func (kv *ContiguousKV) Values16(layer, block int) []uint16 {
	return blockOf(kv, kv.values16, layer, block)
}

func blockOf[T float32 | uint16](kv *ContiguousKV, all []T, layer, block int) []T {
	if block >= kv.blocks || all == nil {
		panic(fmt.Sprintf("model: block %d of a KV of %d blocks, bfloat16 %v, as %T", block, kv.blocks, kv.bfloat16, all))
	}
	i := (layer*kv.blocks + block) * kv.blockFloats
	return all[i : i+kv.blockFloats : i+kv.blockFloats]
}
