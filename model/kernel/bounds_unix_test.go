//go:build unix

package kernel

import (
	"syscall"
	"testing"
	"unsafe"
)

// edge maps memory that ends where reading is forbidden.
type edge struct {
	t   *testing.T
	all []byte
}

func newEdge(t *testing.T) *edge {
	page := syscall.Getpagesize()
	all, err := syscall.Mmap(-1, 0, 5*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	if err := syscall.Mprotect(all[4*page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return &edge{t, all[:4*page]}
}

// last is the last n floats before the edge.
func (e *edge) last(n int) []float32 {
	b := e.all[len(e.all)-4*n:]
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
}

// last16 is the last n words of 16 bits before the edge.
func (e *edge) last16(n int) []uint16 {
	b := e.all[len(e.all)-2*n:]
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), n)
}

// TestLoopsStayInBounds runs every loop on operands that end at forbidden memory: a
// read or write past the shape is a fault.
func TestLoopsStayInBounds(t *testing.T) {
	forEachPairs(t, func(t *testing.T, o *ops, _ oracle) {
		a, b, c, d := newEdge(t), newEdge(t), newEdge(t), newEdge(t)
		for n := 1; n < 80; n++ {
			o.add(a.last(n), b.last(n))
			o.scale(a.last(n), 2)
			o.gelu(a.last(n))
			o.geluErf(a.last(n))
			o.softmax(a.last(n))
			o.norm(a.last(n), b.last(n), c.last(n), d.last(n), 1e-5)
			for rows := 1; rows <= tileRows; rows++ {
				dim := 1 + n%7
				size := 1 + (n+rows)%lanes
				lines := (n-1)/size*size + lanes
				o.scores(rows, n, dim, a.last(rows*dim), dim, keyRuns(b.last(dim*n), n, size, n), 1, d.last(rows*lines), lines)
				o.scores16(rows, n, dim, a.last(rows*dim), dim, keyRuns(b.last16(dim*n), n, size, n), 1, d.last(rows*lines), lines)
				o.values(rows, dim, n, a.last(rows*dim), dim, valueRuns(b.last(dim*n), dim, size, n), d.last(rows*n), n)
				o.values16(rows, dim, n, a.last(rows*dim), dim, valueRuns(b.last16(dim*n), dim, size, n), d.last(rows*n), n)
			}
			for width := lanes; width <= panelWidth; width += lanes {
				rows := 1 + n%19
				o.panel(rows, 5, a.last(rows*5), 5, b.last(5*width), width, c.last(width), 0, d.last(rows*width), width)
				o.panelF16(rows, 5, a.last(rows*5), 5, b.last16(5*width), width, c.last(width), 0, d.last(rows*width), width)
				for _, k := range []int{1, 5, 6} {
					pairs := (k + 1) / 2 * 2
					o.panelBF16(rows, k, a.last(rows*k), k, b.last16(pairs*width), width, c.last(width), 0, d.last(rows*width), width)
				}
				if o.pairs == nil {
					continue
				}
				rows, k := 1+n%67, []int{2, 6, 32, 38, 64}[n%5]
				o.pairs(rows, k, a.last16(rows*k), k, b.last16(k*width), width, c.last(width), 0, d.last(rows*width), width)
				o.pairs(rows, k, a.last16(rows*k), k, b.last16(k*width), width, d.last(rows*width), width, d.last(rows*width), width)
			}
			o.round(a.last16(n), b.last(n))
		}
	})
}

func TestWrongShapesPanicBeforeAssembly(t *testing.T) {
	forEachPairs(t, func(t *testing.T, o *ops, _ oracle) {
		f := func(n int) []float32 { return make([]float32, n) }
		h := func(n int) []uint16 { return make([]uint16, n) }
		for i, run := range []func(){
			func() { o.panel(2, 5, f(9), 5, f(80), 16, f(16), 0, f(32), 16) },
			func() { o.panel(2, 5, f(10), 5, f(79), 16, f(16), 0, f(32), 16) },
			func() { o.panel(2, 5, f(10), 5, f(80), 16, f(15), 0, f(32), 16) },
			func() { o.panel(2, 5, f(10), 5, f(80), 16, f(16), 0, f(31), 16) },
			func() { o.panelF16(2, 5, f(10), 5, h(79), 16, f(16), 0, f(32), 16) },
			func() { o.panelBF16(2, 5, f(10), 5, h(79), 16, f(16), 0, f(32), 16) },
			func() { o.pairs(2, 6, h(11), 6, h(96), 16, f(16), 0, f(32), 16) },
			func() { o.pairs(2, 6, h(12), 6, h(95), 16, f(16), 0, f(32), 16) },
			func() { o.pairs(40, 6, h(239), 6, h(96), 16, f(16), 0, f(640), 16) },
			func() { o.pairs(40, 6, h(240), 6, h(95), 16, f(16), 0, f(640), 16) },
			func() { o.pairs(40, 6, h(240), 6, h(96), 16, f(15), 0, f(640), 16) },
			func() { o.pairs(40, 6, h(240), 6, h(96), 16, f(16), 0, f(639), 16) },
			func() { o.round(h(3), f(4)) },
			func() { o.scores(1, 4, 3, f(2), 3, keyRuns(f(12), 4, 4, 4), 1, f(16), 16) },
			func() { o.scores(1, 5, 3, f(3), 3, keyRuns(f(15), 4, 4, 5).less(1), 1, f(20), 20) },
			func() { o.scores(1, 5, 3, f(3), 3, keyRuns(f(15), 5, 4, 5), 1, f(4), 20) },
			func() { o.scores16(1, 4, 3, f(2), 3, keyRuns(h(12), 4, 4, 4), 1, f(16), 16) },
			func() { o.scores16(1, 5, 3, f(3), 3, keyRuns(h(15), 4, 4, 5).less(1), 1, f(20), 20) },
			func() { o.values16(1, 4, 3, f(3), 4, valueRuns(h(12), 4, 4, 3), f(3), 3) },
			func() { o.values16(1, 5, 3, f(5), 5, valueRuns(h(12), 4, 4, 3).less(1), f(3), 3) },
			func() { o.values16(1, 4, 3, f(4), 4, valueRuns(h(12), 4, 4, 3), f(2), 3) },
			func() { o.values(1, 4, 3, f(3), 4, valueRuns(f(12), 4, 4, 3), f(3), 3) },
			func() { o.values(1, 5, 3, f(5), 5, valueRuns(f(12), 4, 4, 3).less(1), f(3), 3) },
			func() { o.values(1, 4, 3, f(4), 4, valueRuns(f(12), 4, 4, 3), f(2), 3) },
			func() { o.add(f(3), f(4)) },
			func() { o.norm(f(3), f(4), f(4), f(4), 1) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("call %d does not panic", i)
					}
				}()
				run()
			}()
		}
	})
}
