package model

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// gpt2Small is the shape of GPT-2 124M.
var gpt2Small = Config{Layers: 12, Heads: 12, Width: 768, Context: 1024, Inner: 3072, Vocab: 50257,
	Epsilon: 1e-5, ScaleAttn: true, TiedHead: true, EOS: 50256}

// gpt2Model has random weights: speed does not depend on them.
var gpt2Model = sync.OnceValue(func() *Model {
	m, err := New(gpt2Small, randomTensors(gpt2Small, rand.New(rand.NewPCG(1, 2))))
	if err != nil {
		panic(err)
	}
	return m
})

func randomTokens(cfg Config, n int) []int32 {
	r, tokens := rand.New(rand.NewPCG(3, 4)), make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.IntN(cfg.Vocab))
	}
	return tokens
}

func benchModels(b *testing.B, f func(b *testing.B, m *Model, threads int)) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("gpt2/T=%d", threads), func(b *testing.B) { f(b, gpt2Model(), threads) })
	}
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("bundled/T=%d", threads), func(b *testing.B) { f(b, bundled(b), threads) })
	}
}

// BenchmarkPrefill runs a prompt of 512 tokens in one pass.
func BenchmarkPrefill(b *testing.B) {
	benchModels(b, func(b *testing.B, m *Model, threads int) {
		const n = 512
		w := m.NewWorkspace(n, threads)
		defer w.Close()
		chunks := []Chunk{{Tokens: randomTokens(m.config, n), KV: NewContiguousKV(m.config, 16, n), Logits: 1}}
		for b.Loop() {
			w.Forward(chunks)
		}
		b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}

// BenchmarkDecode runs one token of each of 1 or 8 sequences at position 256.
func BenchmarkDecode(b *testing.B) {
	for _, batch := range []int{1, 8} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			benchModels(b, func(b *testing.B, m *Model, threads int) {
				const past = 256
				w := m.NewWorkspace(past, threads)
				defer w.Close()
				var step []Chunk
				for range batch {
					kv := NewContiguousKV(m.config, 16, past+1)
					w.Forward([]Chunk{{Tokens: randomTokens(m.config, past), KV: kv}})
					step = append(step, Chunk{Tokens: randomTokens(m.config, 1), Start: past, KV: kv, Logits: 1})
				}
				for b.Loop() {
					w.Forward(step)
				}
				b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		})
	}
}
