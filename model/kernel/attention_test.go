package kernel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// blocks is a KV of one layer whose blocks lie in any order, full of NaN until written.
type blocks struct {
	size, floats int
	table        []int
	narrow       bool

	keys, values     []float32
	keys16, values16 []uint16
}

func newBlocks(r *rand.Rand, narrow bool, size, positions, width int) *blocks {
	n := (positions + size - 1) / size
	b := &blocks{size: size, floats: size * width, table: r.Perm(n), narrow: narrow}
	if n *= b.floats; narrow {
		const nan = 0x7fc0
		b.keys16, b.values16 = slices.Repeat([]uint16{nan}, n), slices.Repeat([]uint16{nan}, n)
	} else {
		nan := []float32{float32(math.NaN())}
		b.keys, b.values = slices.Repeat(nan, n), slices.Repeat(nan, n)
	}
	return b
}

func (b *blocks) BlockSize() int { return b.size }
func (b *blocks) BFloat16() bool { return b.narrow }

func (b *blocks) Keys(_, block int) []float32    { return blockOf(b, b.keys, block) }
func (b *blocks) Values(_, block int) []float32  { return blockOf(b, b.values, block) }
func (b *blocks) Keys16(_, block int) []uint16   { return blockOf(b, b.keys16, block) }
func (b *blocks) Values16(_, block int) []uint16 { return blockOf(b, b.values16, block) }

func blockOf[T element](b *blocks, all []T, block int) []T {
	i := b.table[block] * b.floats
	return all[i : i+b.floats : i+b.floats]
}

// kept is the queries, keys and values as a KV keeps them.
func kept(narrow bool, qkv []float32, width int) []float32 {
	if !narrow {
		return qkv
	}
	qkv = slices.Clone(qkv)
	for i, v := range qkv {
		if i%(3*width) >= width {
			qkv[i] = nearest16(v)
		}
	}
	return qkv
}

// nearest16 is the bfloat16 nearest to a finite number: of its two neighbours, the one that
// is nearer, or has an even last bit.
func nearest16(x float32) float32 {
	low := math.Float32bits(x) &^ 0xffff
	high := low + 0x10000
	a, b := math.Float32frombits(low), math.Float32frombits(high)
	toA, toB := math.Abs(float64(x)-float64(a)), math.Abs(float64(x)-float64(b))
	if toA < toB || toA == toB && low&0x10000 == 0 {
		return a
	}
	return b
}

// attention is the oracle's attention of the last row of qkv[n][3*width].
func (o oracle) attention(qkv []float32, n int, h Heads) []float32 {
	width, dim := h.width(), h.Dim
	out := make([]float32, width)
	for head := range h.Heads {
		q := qkv[(n-1)*3*width+head*dim:][:dim]
		s := make([]float32, n)
		for p := range n {
			o.scores(1, 1, dim, q, dim, qkv[p*3*width+width+head*dim:], 1, h.Scale, s[p:], 1)
		}
		sum := o.softmax(s)
		for d := range dim {
			var x float32
			for p := range n {
				x = o.madd(s[p], qkv[p*3*width+2*width+head*dim+d], x)
			}
			out[head*dim+d] = x * (1 / sum)
		}
	}
	return out
}

// TestAttendSameBits stores and attends to random sequences in random chunks, blocks
// and threads, several in one call and of both types, and compares every row with the
// oracle: a row attends to its own chunk's keys and values as the blocks keep them.
func TestAttendSameBits(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		rounds := 25
		if testing.Short() {
			rounds = 3
		}
		for range rounds {
			h := Heads{Heads: 1 + r.IntN(3), Dim: 1 + r.IntN(90), Scale: 0.4}
			width := h.width()
			team := newTeam(1+r.IntN(4), 120, o)
			type sequence struct {
				qkv, kept []float32
				n         int
				kv        *blocks
				at        int
			}
			var all []*sequence
			for range 1 + r.IntN(3) {
				n := 1 + r.IntN(120)
				size := []int{1, 3, 16, 20, 64, 256}[r.IntN(6)]
				narrow, qkv := r.IntN(2) == 0, newGuarded(r, n*3*width, 1).floats()
				all = append(all, &sequence{qkv, kept(narrow, qkv, width), n, newBlocks(r, narrow, size, n, width), 0})
			}
			for {
				longest := []int{1, tileRows, 40}[r.IntN(3)]
				var spans []Span
				var qkv []float32
				var from []*sequence
				rows := 0
				for _, s := range all {
					if n := min(s.n-s.at, 1+r.IntN(longest)); n > 0 {
						spans = append(spans, Span{KV: s.kv, Start: s.at, Rows: n, Source: rows, Out: rows})
						qkv = append(qkv, s.qkv[s.at*3*width:][:n*3*width]...)
						from = append(from, s)
						rows += n
						s.at += n
					}
				}
				if rows == 0 {
					break
				}
				team.Store(qkv, spans, h)
				dst := newGuarded(r, rows*width, 1)
				team.Attend(dst.floats(), qkv, spans, h)
				for i, s := range spans {
					for j := range s.Rows {
						expected := want.attention(from[i].kept, s.Start+j+1, h)
						sameBits(t, fmt.Sprintf("position %d, blocks of %d, bfloat16 %v, heads %+v", s.Start+j, from[i].kv.size, from[i].kv.narrow, h),
							dst.floats()[(s.Out+j)*width:][:width], expected)
					}
				}
				dst.check(t, "attend")
			}
			team.Close()
		}
	})
}

// TestAttendIsAccurate compares with attention in float64 on what the blocks keep. The
// bounds are some times what float32 loses: a rounding a product in the scores, which the
// exponential turns into relative errors of the weights, and one a position in the values.
func TestAttendIsAccurate(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		r := newRand(t)
		for _, narrow := range []bool{false, true} {
			worst := 0.0
			for range 20 {
				h := Heads{Heads: 1 + r.IntN(3), Dim: 1 + r.IntN(90), Scale: 0.2}
				n, width := 1+r.IntN(300), h.width()
				qkv := newGuarded(r, n*3*width, 1).floats()
				team := newTeam(2, n, o)
				all := Span{KV: newBlocks(r, narrow, 16, n, width), Rows: n}
				team.Store(qkv, []Span{all}, h)
				some := all // the last rows, which see most
				some.Rows = min(n, 1+r.IntN(10))
				some.Start, some.Source = n-some.Rows, n-some.Rows
				dst := make([]float32, some.Rows*width)
				team.Attend(dst, qkv, []Span{some}, h)
				team.Close()
				row := r.IntN(some.Rows)
				want := attention64(kept(narrow, qkv, width), some.Start+row+1, h)
				for i, x := range want {
					worst = max(worst, math.Abs(float64(dst[row*width+i])-x))
				}
			}
			t.Logf("bfloat16 %v: off by %.2g at most", narrow, worst)
			if !(worst < 1e-5) {
				t.Errorf("bfloat16 %v: off by %g from attention in float64", narrow, worst)
			}
		}
	})
}

// attention64 is attention of the last of n rows, in float64.
func attention64(qkv []float32, n int, h Heads) []float64 {
	width, out := h.width(), make([]float64, h.width())
	for head := range h.Heads {
		q := qkv[(n-1)*3*width+head*h.Dim:]
		weights, sum := make([]float64, n), 0.0
		for p := range n {
			for d := range h.Dim {
				weights[p] += float64(q[d]) * float64(qkv[p*3*width+width+head*h.Dim+d])
			}
			weights[p] = math.Exp(weights[p] * float64(h.Scale))
			sum += weights[p]
		}
		for p, w := range weights {
			for d := range h.Dim {
				out[head*h.Dim+d] += w / sum * float64(qkv[p*3*width+2*width+head*h.Dim+d])
			}
		}
	}
	return out
}

// TestLLMVizAttention compares scores, weights and results with what PyTorch computed
// from the same queries, keys and values.
func TestLLMVizAttention(t *testing.T) {
	const file = "../../../shared/data/models/llmviz-nano-gpt-sort/gpt-nano-sort-t0-partials.json"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("needs the llm-viz model: %v", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	floats := func(name string) []float32 {
		var v struct{ Data []byte } // base64
		if err := json.Unmarshal(all[name], &v); err != nil {
			t.Fatal(err)
		}
		f := make([]float32, len(v.Data)/4)
		for i := range f {
			f[i] = math.Float32frombits(binary.LittleEndian.Uint32(v.Data[4*i:]))
		}
		return f
	}
	const batch, heads, n, dim = 3, 3, 11, 16
	q, k, v, y := floats("q"), floats("k"), floats("v"), floats("y")
	att, attSm := floats("att"), floats("attSm")
	near := func(t *testing.T, what string, got, want float32) {
		t.Helper()
		if !(math.Abs(float64(got-want)) <= 1e-5) {
			t.Fatalf("%s is %g, want %g", what, got, want)
		}
	}
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		for bh := range batch * heads {
			keys := make([]float32, dim*n)
			for p := range n {
				for d := range dim {
					keys[d*n+p] = k[(bh*n+p)*dim+d]
				}
			}
			s := make([]float32, lanes)
			for row := range n {
				o.scores(1, n, dim, q[(bh*n+row)*dim:], dim, keyRuns(keys, n, lanes, n), 0.25, s, lanes)
				for p := range row + 1 {
					near(t, "att", s[p], att[(bh*n+row)*n+p])
				}
				inv := 1 / o.softmax(s[:row+1])
				for p := range row + 1 {
					near(t, "attSm", s[p]*inv, attSm[(bh*n+row)*n+p])
				}
				out := make([]float32, dim)
				o.values(1, row+1, dim, s, lanes, valueRuns(v[bh*n*dim:], row+1, lanes, dim), out, dim)
				for d, x := range out {
					b, head := bh/heads, bh%heads
					near(t, "y", x*inv, y[(b*n+row)*heads*dim+head*dim+d])
				}
			}
		}
	})
}

// TestSoftmaxOfLargeScores does not overflow.
func TestSoftmaxOfLargeScores(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		s := make([]float32, 1024)
		for i := range s {
			s[i] = 1e30
		}
		if sum := o.softmax(s); sum != 1024 {
			t.Errorf("1024 equal scores sum to %g", sum)
		}
	})
}
