package model

import "fmt"

// ContiguousKV is the KV of one sequence in one piece of memory: for tests, scoring and
// comparison, where nothing is shared.
type ContiguousKV struct {
	blockSize, blocks, blockFloats int
	keys, values                   []float32 // [layer][block][blockFloats]
}

// NewContiguousKV makes room for capacity tokens in blocks of blockSize.
func NewContiguousKV(cfg Config, blockSize, capacity int) *ContiguousKV {
	if blockSize < 1 || capacity < 1 {
		panic(fmt.Sprintf("model: KV of %d tokens in blocks of %d", capacity, blockSize))
	}
	kv := &ContiguousKV{
		blockSize:   blockSize,
		blocks:      (capacity + blockSize - 1) / blockSize,
		blockFloats: cfg.Width * blockSize,
	}
	n := cfg.Layers * kv.blocks * kv.blockFloats
	kv.keys, kv.values = make([]float32, n), make([]float32, n)
	return kv
}

// BlockSize is the number of token rows in a block.
func (kv *ContiguousKV) BlockSize() int { return kv.blockSize }

// Keys returns a layer's keys of one block, [heads][headDim][blockSize].
func (kv *ContiguousKV) Keys(layer, block int) []float32 { return kv.of(kv.keys, layer, block) }

// Values returns a layer's values of one block, [heads][blockSize][headDim].
func (kv *ContiguousKV) Values(layer, block int) []float32 { return kv.of(kv.values, layer, block) }

func (kv *ContiguousKV) of(all []float32, layer, block int) []float32 {
	if block >= kv.blocks {
		panic(fmt.Sprintf("model: block %d of a KV of %d blocks", block, kv.blocks))
	}
	i := (layer*kv.blocks + block) * kv.blockFloats
	return all[i : i+kv.blockFloats : i+kv.blockFloats]
}
