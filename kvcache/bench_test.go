package kvcache

import (
	"math/rand/v2"
	"testing"
)

// benchCache returns a full cache of 4096 blocks of 16 tokens: ten system prompts of 500
// tokens, and questions of 20 more. Its rows are narrow, since the tests of the kernels
// measure floats.
func benchCache(b *testing.B) (*Manager, func() []int32) {
	m, err := New(Config{Blocks: 4096, BlockSize: 16, Layers: 4, Heads: 4, HeadDim: 4})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []int32 {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(r.IntN(50257))
		}
		return tokens
	}
	systems := make([][]int32, 10)
	for i := range systems {
		systems[i] = random(500)
	}
	prompt := func() []int32 { return append(systems[r.IntN(10)][:500:500], random(20)...) }
	for m.Stats().Evicted == 0 {
		request(b, m, prompt(), 0)
	}
	return m, prompt
}

// request does what the engine does for one: a prompt, then some tokens of decode.
func request(b *testing.B, m *Manager, prompt []int32, decode int) {
	s, err := m.Allocate("", prompt)
	if err != nil {
		b.Fatal(err)
	}
	m.Commit(s, s.Len()-s.Computed())
	for i := range decode {
		if err := m.Append(s, int32(i)); err != nil {
			b.Fatal(err)
		}
		m.Commit(s, 1)
	}
	m.Free(s)
}

// BenchmarkRequest is the cache's part of a request that reuses 500 tokens, in a full
// cache; decode adds 64 tokens.
func BenchmarkRequest(b *testing.B) {
	for name, decode := range map[string]int{"prefill": 0, "decode": 64} {
		b.Run(name, func(b *testing.B) {
			m, prompt := benchCache(b)
			b.ReportAllocs()
			for b.Loop() {
				request(b, m, prompt(), decode)
			}
		})
	}
}

// BenchmarkCheck proves the invariants of a full cache.
func BenchmarkCheck(b *testing.B) {
	m, _ := benchCache(b)
	for b.Loop() {
		if err := m.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExplain says why a prompt of 520 tokens, 500 of them cached, is not cached whole.
func BenchmarkExplain(b *testing.B) {
	m, prompt := benchCache(b)
	tokens := prompt()
	for b.Loop() {
		m.Explain("", tokens)
	}
}

// BenchmarkFork forks a sequence of 520 tokens, and frees the fork.
func BenchmarkFork(b *testing.B) {
	m, prompt := benchCache(b)
	s, err := m.Allocate("", prompt())
	if err != nil {
		b.Fatal(err)
	}
	m.Commit(s, s.Len()-s.Computed())
	b.ReportAllocs()
	for b.Loop() {
		f, err := m.Fork(s)
		if err != nil {
			b.Fatal(err)
		}
		m.Free(f)
	}
}

// BenchmarkView describes 1000 nodes.
func BenchmarkView(b *testing.B) {
	m, _ := benchCache(b)
	for b.Loop() {
		m.View(1000)
	}
}
