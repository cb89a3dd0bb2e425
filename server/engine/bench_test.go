package engine

import (
	"testing"

	"tailor/model"
)

// BenchmarkStep is what a step costs beside the model: 32 sequences decode, the logits
// are always the same.
func BenchmarkStep(b *testing.B) {
	m := path
	logits := make([]float32, 512*m.shape.Vocab)
	m.open = func(Config) forwarder {
		return forwardFunc(func([]model.Chunk) []float32 { return logits })
	}
	r := newRig(b, m, 1024, 16, Config{})
	b.ReportAllocs()
	for b.Loop() {
		if len(r.s.running) == 0 {
			for i := range 32 {
				req := Request{Tokens: seqFrom(i, 8), MaxTokens: 248, Sampling: greedy(), IgnoreEOS: true}
				if _, err := r.e.Submit(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		}
		r.e.turn(r.s)
	}
}
