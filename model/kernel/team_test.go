package kernel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
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

// TestTeamStealsFromTheBack: the caller alone does all units, its own first and then the
// others' from their ends.
func TestTeamStealsFromTheBack(t *testing.T) {
	team := newTeam(1, 1, portable())
	defer team.Close()
	team.ranges = make([]unitRange, 3) // two threads that never come
	team.helpers = []*helper{{}, {}}
	var order []int
	team.Run(7, taskFunc(func(_, unit int) { order = append(order, unit) }))
	team.helpers = nil
	if want := []int{0, 1, 3, 2, 6, 5, 4}; !slices.Equal(order, want) {
		t.Errorf("units ran in the order %v, want %v", order, want)
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
	forEachPairs(t, func(t *testing.T, o *ops, want oracle) {
		r, rounds := newRand(t), 40
		if testing.Short() {
			rounds = 12
		}
		for range rounds {
			// Most of the time k is below stepK, sometimes above: the chain goes on.
			rows, in, out := 1+r.IntN(80), 1+r.IntN(100), 1+r.IntN(400)
			if r.IntN(4) == 0 {
				rows, in, out = 1+r.IntN(12), stepK+r.IntN(100), 1+r.IntN(100)
			}
			w, bias := newGuarded(r, in*out, 1).floats(), newGuarded(r, out, 1).floats()
			src := newGuarded(r, rows*in, 1).floats()
			turned := make([]float32, in*out)
			for i := range in {
				for j := range out {
					turned[j*in+i] = w[i*out+j]
				}
			}
			f := Format(r.IntN(4))
			if want.groups && r.IntN(2) == 0 {
				f = BFloat16Pairs
			}
			mem, err := NewMemory(2 * MatrixSize(f, in, out))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []*Matrix{Pack(mem, f, w, bias, in, out), PackTransposed(mem, f, turned, bias, in, out)} {
				act := Activation(r.IntN(3))
				expected := want.product(o, f, rows, src, w, bias, in, out)
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
					what := fmt.Sprintf("%v, %d rows from %d, %d x %d, %d threads", f, rows, first, in, out, threads)
					sameBits(t, what, dst.floats()[first*out:], expected[first*out:])
					dst.check(t, what)
					team.Close()
				}
				column := make([]float32, in)
				j := r.IntN(out)
				x.Column(column, j)
				sameBits(t, "column", column, asFormat(f, turned[j*in:][:in]))
			}
			runtime.KeepAlive(mem)
		}
	})
}

// TestRoundedRowsArePadded: an odd row follows on what a longer one left, which is no
// number here.
func TestRoundedRowsArePadded(t *testing.T) {
	forEachPairs(t, func(t *testing.T, o *ops, _ oracle) {
		mem, err := NewMemory(MatrixSize(BFloat16Pairs, 6, 1) + MatrixSize(BFloat16Pairs, 5, 1))
		if err != nil {
			t.Fatal(err)
		}
		ones := []float32{1, 1, 1, 1, 1, 1}
		even, odd := Pack(mem, BFloat16Pairs, ones, nil, 6, 1), Pack(mem, BFloat16Pairs, ones[:5], nil, 5, 1)
		team := newTeam(1, 1, o)
		defer team.Close()
		nan, dst := slices.Repeat([]float32{float32(math.NaN())}, 12), make([]float32, 2)
		team.Matmul(dst, nan, 2, even, None)
		team.Matmul(dst, ones, 1, odd, None)
		if dst[0] != 5 {
			t.Errorf("five ones sum to %g", dst[0])
		}
	})
}

// product is the oracle's product of rows with weights kept in a format.
func (o oracle) product(instructions *ops, f Format, rows int, src, w, bias []float32, in, out int) []float32 {
	dst := make([]float32, rows*out)
	if f != BFloat16Pairs || instructions.pairs == nil {
		o.panel(rows, in, src, in, asFormat(f, w), out, bias, 0, dst, out)
		return dst
	}
	// An odd k is made even with zeros.
	k := (in + 1) / 2 * 2
	a, b := make([]uint16, rows*k), make([]uint16, k*out)
	for i := range in {
		for r := range rows {
			a[r*k+i] = roundUpper(src[r*in+i])
		}
		for j := range out {
			b[i/2*2*out+2*j+i%2] = roundUpper(w[i*out+j])
		}
	}
	o.pairs(rows, k, a, k, b, out, bias, 0, dst, out)
	return dst
}

// asFormat is weights after they were kept in a format.
func asFormat(f Format, w []float32) []float32 {
	kept := make([]float32, len(w))
	for i, v := range w {
		switch f {
		case Float32:
			kept[i] = v
		case Float16:
			kept[i] = widenHalf(roundHalf(v))
		default:
			kept[i] = widenUpper(roundUpper(v))
		}
	}
	return kept
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
	m.Reset()
	if b := m.Take(600); a[2] != 0 || b[515] != 0 || &b[2] != &a[2] {
		t.Errorf("after Reset the room is not the same, or not zero: %g, %g", a[2], b[515])
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
