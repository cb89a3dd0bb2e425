package kernel

import (
	"fmt"
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
