package kernel

import (
	"runtime"
	"sync"
	"testing"
)

// TestSameBitsUnderPreemption multiplies on more threads than there are processors
// while the collector stops them again and again: registers must survive.
func TestSameBitsUnderPreemption(t *testing.T) {
	forEachPairs(t, func(t *testing.T, o *ops, want oracle) {
		rows, in, out, f, passes := 23, 200, 150, Float32, 100
		if want.groups {
			rows, f = 55, BFloat16Pairs // tiles of all heights
		}
		if !o.widens && want.groups {
			passes = 10 // slow, and no assembly
		}
		if testing.Short() {
			passes = (passes + 3) / 4
		}
		r := newRand(t)
		src, w := newGuarded(r, rows*in, 1).floats(), newGuarded(r, in*out, 1).floats()
		mem, err := NewMemory(MatrixSize(f, in, out))
		if err != nil {
			t.Fatal(err)
		}
		x := Pack(mem, f, w, nil, in, out)
		expected := want.product(o, f, rows, src, w, make([]float32, out), in, out)
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
				for range passes {
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
