package kernel

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// counter counts how often each unit runs.
type counter struct {
	units   []atomic.Int32
	threads int
	t       *testing.T
}

func (c *counter) Unit(thread, unit int) {
	if thread < 0 || thread >= c.threads {
		c.t.Errorf("thread %d of %d", thread, c.threads)
	}
	c.units[unit].Add(1)
}

// TestTeamRunsEveryUnitOnce starts many short runs of random sizes, with pauses long
// enough to park in between some of them.
func TestTeamRunsEveryUnitOnce(t *testing.T) {
	r := newRand(t)
	runs := 3000
	if testing.Short() {
		runs = 100
	}
	for threads := 1; threads <= 8; threads++ {
		team := NewTeam(threads, 1)
		for i := range runs {
			c := &counter{units: make([]atomic.Int32, r.IntN(40)), threads: threads, t: t}
			team.Run(len(c.units), c)
			for u := range c.units {
				if n := c.units[u].Load(); n != 1 {
					t.Fatalf("%d threads, run %d: unit %d of %d ran %d times", threads, i, u, len(c.units), n)
				}
			}
			if r.IntN(200) == 0 {
				parked(team)
			}
		}
		team.Close()
	}
}

// parked waits until all helpers of an idle team are parked.
func parked(t *Team) {
	for _, h := range t.helpers {
		for !h.parked.Load() {
			runtime.Gosched()
		}
	}
}

func TestTeamCloseEndsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for threads := 1; threads <= 4; threads++ {
		team := NewTeam(threads, 1)
		if threads%2 == 0 {
			parked(team)
		}
		team.Close()
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

// TestMatmulSameBits multiplies with shapes that are no multiple of anything on several
// numbers of threads and rows, and compares with the oracle.
func TestMatmulSameBits(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for range 12 {
			// Most of the time k is below stepK, sometimes above: the chain goes on.
			rows, in, out := 1+r.IntN(80), 1+r.IntN(100), 1+r.IntN(400)
			if r.IntN(4) == 0 {
				rows, in, out = 1+r.IntN(12), stepK+r.IntN(100), 1+r.IntN(100)
			}
			w, bias := newGuarded(r, in*out, 1).floats(), newGuarded(r, out, 1).floats()
			src := newGuarded(r, rows*in, 1).floats()
			mem, err := NewMemory(2 * MatrixSize(in, out))
			if err != nil {
				t.Fatal(err)
			}
			turned := make([]float32, in*out)
			for i := range in {
				for j := range out {
					turned[j*in+i] = w[i*out+j]
				}
			}
			for _, x := range []*Matrix{Pack(mem, w, bias, in, out), PackTransposed(mem, turned, bias, in, out)} {
				act := Activation(r.IntN(3))
				expected := make([]float32, rows*out)
				want.panel(rows, in, src, in, w, out, bias, 0, expected, out)
				switch act {
				case GELUNew:
					want.gelu(expected)
				case GELU:
					want.geluErf(expected)
				}
				for _, threads := range []int{1, 2, 5} {
					team := newTeam(threads, 1, o)
					dst := newGuarded(r, rows*out, 1)
					first := r.IntN(rows)
					team.Matmul(dst.floats()[first*out:], src[first*in:], rows-first, x, act)
					what := fmt.Sprintf("%d rows from %d, %d x %d, %d threads", rows, first, in, out, threads)
					sameBits(t, what, dst.floats()[first*out:], expected[first*out:])
					dst.check(t, what)
					team.Close()
				}
				column := make([]float32, in)
				j := r.IntN(out)
				x.Column(column, j)
				sameBits(t, "column", column, turned[j*in:][:in])
			}
			runtime.KeepAlive(mem)
		}
	})
}

func TestLayerNormSameBits(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for _, rows := range []int{1, 3, 500} {
			const width = 53
			x, residue := newGuarded(r, rows*width, 1).floats(), newGuarded(r, rows*width, 1).floats()
			gain, bias := newGuarded(r, width, 1).floats(), newGuarded(r, width, 1).floats()
			sum, expected, dst := make([]float32, rows*width), make([]float32, rows*width), make([]float32, rows*width)
			for i := range sum {
				sum[i] = x[i] + residue[i]
			}
			for i := range rows {
				want.norm(expected[i*width:], sum[i*width:][:width], gain, bias, 1e-5)
			}
			team := newTeam(3, 1, o)
			team.LayerNorm(dst, x, residue, rows, gain, bias, 1e-5)
			sameBits(t, "sum", x, sum)
			sameBits(t, "norm", dst, expected)
			clear(dst)
			team.LayerNorm(dst, x, nil, rows, gain, bias, 1e-5)
			sameBits(t, "norm without residue", dst, expected)
			team.Close()
		}
	})
}

// TestMemoryIsUnmapped drops memory and waits for the collector to unmap it.
func TestMemoryIsUnmapped(t *testing.T) {
	m, err := NewMemory(1000)
	if err != nil {
		t.Fatal(err)
	}
	a, b := m.Take(3), m.Take(500)
	a[2], b[499] = 1, 2
	if cap(a) != 16 || b[0] != 0 {
		t.Errorf("Take(3) has capacity %d, and what follows starts with %g", cap(a), b[0])
	}
	dropped := make(chan struct{})
	runtime.AddCleanup(m, func(struct{}) { close(dropped) }, struct{}{})
	runtime.KeepAlive(m)
	m, a, b = nil, nil, nil
	deadline := time.Now().Add(5 * time.Second)
	for {
		runtime.GC()
		select {
		case <-dropped:
			return
		default:
			if time.Now().After(deadline) {
				t.Fatal("the memory is still reachable")
			}
			runtime.Gosched()
		}
	}
}

func BenchmarkTeamRun(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			team := NewTeam(threads, 1)
			defer team.Close()
			c := &counter{units: make([]atomic.Int32, 2), threads: threads}
			for b.Loop() {
				team.Run(2, c)
			}
		})
	}
}
