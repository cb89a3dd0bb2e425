package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkMatmul multiplies in the shapes of GPT-2 124M and of the bundled model.
func BenchmarkMatmul(b *testing.B) {
	for _, o := range available() {
		for _, shape := range []struct{ rows, in, out int }{
			{512, 768, 3072}, {512, 3072, 768}, {512, 768, 768}, {512, 256, 1024}, {512, 256, 256},
			{8, 768, 3072}, {1, 768, 3072}, {1, 256, 1024},
		} {
			if o.name == "portable" && shape.rows > 8 {
				continue
			}
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%dx%dx%d/T=%d", o.name, shape.rows, shape.in, shape.out, threads), func(b *testing.B) {
					mem, err := NewMemory(MatrixSize(Float32, shape.in, shape.out))
					if err != nil {
						b.Fatal(err)
					}
					w := make([]float32, shape.in*shape.out)
					for i := range w {
						w[i] = float32(i%13) - 6
					}
					x := Pack(mem, Float32, w, nil, shape.in, shape.out)
					team := newTeam(threads, 1, o)
					defer team.Close()
					src, dst := make([]float32, shape.rows*shape.in), make([]float32, shape.rows*shape.out)
					for b.Loop() {
						team.Matmul(dst, src, shape.rows, x, None)
					}
					flop := 2 * float64(shape.rows*shape.in*shape.out) * float64(b.N)
					b.ReportMetric(flop/1e9/b.Elapsed().Seconds(), "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkAttend attends in the shapes of GPT-2 124M and of the bundled model: a prompt of
// 512 in one pass, and one token behind 900 others. There are as many layers as make the
// keys and values too large for any cache, as they are between two steps of a decode.
func BenchmarkAttend(b *testing.B) {
	const layers = 24
	for _, o := range available() {
		if o.name == "portable" {
			continue
		}
		for _, shape := range []struct{ heads, dim, past, rows int }{{12, 64, 900, 1}, {8, 32, 900, 1}, {12, 64, 0, 512}, {8, 32, 0, 512}} {
			for _, narrow := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%dx%d/%d+%d/bf16=%v", o.name, shape.heads, shape.dim, shape.past, shape.rows, narrow), func(b *testing.B) {
					n, h := shape.past+shape.rows, Heads{Heads: shape.heads, Dim: shape.dim, Scale: .1}
					r := rand.New(rand.NewPCG(1, 2))
					var kvs [layers]*blocks
					team, qkv := newTeam(1, n, o), newGuarded(r, n*3*h.width(), 1).floats()
					defer team.Close()
					for i := range kvs {
						kvs[i] = newBlocks(r, narrow, 16, n, h.width())
						team.Store(qkv, []Span{{KV: kvs[i], Rows: n}}, h)
					}
					dst, i := make([]float32, shape.rows*h.width()), 0
					for b.Loop() {
						spans := []Span{{KV: kvs[i%layers], Start: shape.past, Rows: shape.rows}}
						team.Attend(dst, qkv, spans, h)
						i++
					}
				})
			}
		}
	}
}

// BenchmarkElementwise runs the row loops over 3072 floats.
func BenchmarkElementwise(b *testing.B) {
	x, y := make([]float32, 3072), make([]float32, 3072)
	for i := range y {
		y[i] = float32(i%100)/20 - 2.5
	}
	for _, o := range available() {
		for _, f := range []struct {
			name string
			run  func()
		}{
			{"gelu", func() { o.gelu(x) }},
			{"geluErf", func() { o.geluErf(x) }},
			{"softmax", func() { o.softmax(x) }},
			{"norm", func() { o.norm(x, x, y, y, 1e-5) }},
		} {
			b.Run(o.name+"/"+f.name, func(b *testing.B) {
				for b.Loop() {
					copy(x, y)
					f.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/float")
			})
		}
	}
}
