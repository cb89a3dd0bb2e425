package kernel

import (
	"runtime"
	"sync"
	"testing"
)

// TestSameBitsUnderPreemption multiplies on more threads than there are processors
// while the collector stops them again and again: registers must survive.
func TestSameBitsUnderPreemption(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		const rows, in, out = 23, 200, 150
		r := newRand(t)
		src, w := newGuarded(r, rows*in, 1).floats(), newGuarded(r, in*out, 1).floats()
		mem, err := NewMemory(MatrixSize(Float32, in, out))
		if err != nil {
			t.Fatal(err)
		}
		x := Pack(mem, Float32, w, nil, in, out)
		expected := make([]float32, rows*out)
		want.panel(rows, in, src, in, w, out, make([]float32, out), 0, expected, out)
		want.gelu(expected)
		stop := make(chan struct{})
		var collector, workers sync.WaitGroup
		collector.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
		for range 3 {
			workers.Go(func() {
				team := newTeam(2, 1, o)
				defer team.Close()
				dst := make([]float32, rows*out)
				for range 100 {
					clear(dst)
					team.Matmul(dst, src, rows, x, GELUNew)
					for i := range dst {
						if dst[i] != expected[i] {
							t.Errorf("float %d is %g, want %g", i, dst[i], expected[i])
							return
						}
					}
				}
			})
		}
		workers.Wait()
		close(stop)
		collector.Wait()
	})
}
