package blocklog

import (
	"testing"

	"tailor/kvcache"
)

// BenchmarkStored is what a chunk of 32 blocks and what one block of decode cost the step
// loop, at the end of 1024 tokens and of blocks of 16.
func BenchmarkStored(b *testing.B) {
	kv, err := kvcache.New(kvcache.Config{Blocks: 128, BlockSize: 16, Layers: 1, Heads: 1, HeadDim: 1})
	if err != nil {
		b.Fatal(err)
	}
	path, blocks := make([]int32, 1024), make([]kvcache.BlockID, 64)
	for i := range blocks {
		blocks[i] = kvcache.BlockID(i)
	}
	for name, n := range map[string]int{"prefill": 32, "decode": 1} {
		b.Run(name, func(b *testing.B) {
			l := New(kv)
			b.ReportAllocs()
			for b.Loop() {
				l.Stored("", blocks[63-n], path, blocks[64-n:])
			}
		})
	}
}

// BenchmarkSnapshot copies 65,536 blocks.
func BenchmarkSnapshot(b *testing.B) {
	kv, err := kvcache.New(kvcache.Config{Blocks: 1 << 16, BlockSize: 16, Layers: 1, Heads: 1, HeadDim: 1})
	if err != nil {
		b.Fatal(err)
	}
	tokens := make([]int32, 1024)
	for i := range (1 << 16) / 64 {
		tokens[0] = int32(i)
		run(b, kv, "", tokens...)
	}
	l := New(kv)
	for b.Loop() {
		l.Snapshot(kv)
	}
}
