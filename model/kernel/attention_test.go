package kernel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// blocks is a KV of one layer whose blocks lie in any order, full of NaN until written.
type blocks struct {
	size, floats int
	table        []int
	keys, values []float32
}

func newBlocks(r *rand.Rand, size, positions, width int) *blocks {
	n := (positions + size - 1) / size
	b := &blocks{size: size, floats: size * width, table: r.Perm(n)}
	b.keys, b.values = make([]float32, n*b.floats), make([]float32, n*b.floats)
	for i := range b.keys {
		b.keys[i], b.values[i] = float32(math.NaN()), float32(math.NaN())
	}
	return b
}

func (b *blocks) BlockSize() int { return b.size }

func (b *blocks) Keys(_, block int) []float32 {
	i := b.table[block] * b.floats
	return b.keys[i : i+b.floats : i+b.floats]
}

func (b *blocks) Values(_, block int) []float32 {
	i := b.table[block] * b.floats
	return b.values[i : i+b.floats : i+b.floats]
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
// and threads, several in one call, and compares every row with the oracle.
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
				qkv []float32
				n   int
				kv  *blocks
				at  int
			}
			var all []*sequence
			for range 1 + r.IntN(3) {
				n := 1 + r.IntN(120)
				size := []int{1, 3, 16, 20, 64, 256}[r.IntN(6)]
				all = append(all, &sequence{newGuarded(r, n*3*width, 1).floats(), n, newBlocks(r, size, n, width), 0})
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
						expected := want.attention(from[i].qkv, s.Start+j+1, h)
						sameBits(t, fmt.Sprintf("position %d, blocks of %d, heads %+v", s.Start+j, from[i].kv.size, h),
							dst.floats()[(s.Out+j)*width:][:width], expected)
					}
				}
				dst.check(t, "attend")
			}
			team.Close()
		}
	})
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
				o.scores(1, n, dim, q[(bh*n+row)*dim:], dim, keys, keys, n, 0.25, s, lanes)
				for p := range row + 1 {
					near(t, "att", s[p], att[(bh*n+row)*n+p])
				}
				inv := 1 / o.softmax(s[:row+1])
				for p := range row + 1 {
					near(t, "attSm", s[p]*inv, attSm[(bh*n+row)*n+p])
				}
				out := make([]float32, dim)
				o.values(1, row+1, dim, s, lanes, v[bh*n*dim:], v[bh*n*dim:], out, dim)
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
