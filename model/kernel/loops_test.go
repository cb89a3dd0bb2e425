package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestPanel compares random shapes with the oracle's bits.
func TestPanel(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for range 120 {
			rows, k, width := 1+r.IntN(30), 1+r.IntN(60), lanes*(1+r.IntN(3))
			lda, ldc, lds := k+r.IntN(9), width+r.IntN(9), 0
			if r.IntN(2) == 0 {
				lds = width + r.IntN(9)
			}
			a, b := newGuarded(r, rows*lda, 1), newGuarded(r, k*width, 1)
			start, c := newGuarded(r, rows*max(lds, width), 1), newGuarded(r, rows*ldc, 1)
			expected := append([]float32(nil), c.floats()...)
			want.panel(rows, k, a.floats(), lda, b.floats(), width, start.floats(), lds, expected, ldc)
			o.panel(rows, k, a.floats(), lda, b.floats(), width, start.floats(), lds, c.floats(), ldc)
			what := fmt.Sprintf("%d rows, k %d, width %d, strides %d %d %d", rows, k, width, lda, lds, ldc)
			sameBits(t, what, c.floats(), expected)
			c.check(t, what)
		}
	})
}

// TestPanel16 compares the loops on weights of 16 bits with the oracle's bits.
func TestPanel16(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for range 120 {
			rows, k, width := 1+r.IntN(30), 1+r.IntN(150), lanes*(1+r.IntN(3))
			lda, ldc, lds := k+r.IntN(9), width+r.IntN(9), 0
			if r.IntN(2) == 0 {
				lds = width + r.IntN(9)
			}
			a := newGuarded(r, rows*lda, 1)
			start := newGuarded(r, rows*max(lds, width), 1)
			for _, f := range []Format{Float16, BFloat16} {
				b := make([]uint16, f.rows(k)*width)
				for i := range b {
					if b[i] = roundUpper(float32(r.NormFloat64())); f == Float16 {
						b[i] = roundHalf(float32(r.NormFloat64() * math.Exp2(float64(-r.IntN(25)))))
					}
				}
				run := o.panelBF16
				if f == Float16 {
					run = o.panelF16
				}
				c := newGuarded(r, rows*ldc, 1)
				expected := append([]float32(nil), c.floats()...)
				want.panel16(f, rows, k, a.floats(), lda, b, width, start.floats(), lds, expected, ldc)
				run(rows, k, a.floats(), lda, b, width, start.floats(), lds, c.floats(), ldc)
				what := fmt.Sprintf("%v, %d rows, k %d, width %d, strides %d %d %d", f, rows, k, width, lda, lds, ldc)
				sameBits(t, what, c.floats(), expected)
				c.check(t, what)
			}
		}
	})
}

// TestPairs compares with the oracle's bits, among them those of sums that underflow.
func TestPairs(t *testing.T) {
	forEachPairs(t, func(t *testing.T, o *ops, want oracle) {
		if o.pairs == nil {
			t.Skip("these instructions do not multiply pairs of bfloat16")
		}
		r, rounds := newRand(t), 120
		if testing.Short() {
			rounds = 40
		}
		for round := range rounds {
			rows, k, width := 1+r.IntN(70), 2*(1+r.IntN(80)), lanes*(1+r.IntN(3))
			low := 0
			if round%4 == 0 {
				rows, low = 1+r.IntN(20), 70 // products at the lower end of float32
			}
			lda, ldc, lds := k+r.IntN(9), width+r.IntN(9), 0
			if r.IntN(2) == 0 {
				lds = width + r.IntN(9)
			}
			random := func(n int) []uint16 {
				w := make([]uint16, n)
				for i := range w {
					w[i] = roundUpper(float32(r.NormFloat64() * math.Exp2(float64(-low+r.IntN(12)))))
				}
				return w
			}
			a, b := random(rows*lda), random(k*width)
			start, c := newGuarded(r, rows*max(lds, width), math.Exp2(float64(-2*low))), newGuarded(r, rows*ldc, 1)
			expected := append([]float32(nil), c.floats()...)
			want.pairs(rows, k, a, lda, b, width, start.floats(), lds, expected, ldc)
			o.pairs(rows, k, a, lda, b, width, start.floats(), lds, c.floats(), ldc)
			what := fmt.Sprintf("%d rows, k %d, width %d, strides %d %d %d", rows, k, width, lda, lds, ldc)
			sameBits(t, what, c.floats(), expected)
			c.check(t, what)
		}
	})
}

// TestPairsIsTheSameEverywhere: as long as nothing underflows the scalar loop has the bits
// of the instruction, since products of bfloat16 are exact in float32. Sums in groups are
// another order.
func TestPairsIsTheSameEverywhere(t *testing.T) {
	const rows, k, width = 3, 200, 48
	r := newRand(t)
	a, b := make([]uint16, rows*k), make([]uint16, k*width)
	for _, s := range [][]uint16{a, b} {
		for i := range s {
			s[i] = roundUpper(float32(r.NormFloat64()))
		}
	}
	bias, expected := newGuarded(r, width, 1).floats(), make([]float32, rows*width)
	pairsScalar(rows, k, a, k, b, width, bias, 0, expected, width)
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		if o.pairs == nil || want.groups {
			t.Skip("these instructions do not multiply pairs of bfloat16 in this order")
		}
		c := make([]float32, rows*width)
		o.pairs(rows, k, a, k, b, width, bias, 0, c, width)
		sameBits(t, "pairs", c, expected)
	})
}

// TestRound compares with roundUpper, which a test of its own compares with its definition.
func TestRound(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		r := newRand(t)
		for n := 1; n < 200; n++ {
			src, dst := make([]float32, n), make([]uint16, n+guard)
			for i := range src {
				src[i] = math.Float32frombits(r.Uint32())
				if r.IntN(3) == 0 {
					src[i] = math.Float32frombits(r.Uint32()&0xffff0000 | 0x8000) // a tie
				}
				if i < len(specials) {
					src[i] = specials[i]
				}
			}
			o.round(dst[:n], src)
			for i, v := range src {
				if dst[i] != roundUpper(v) {
					t.Fatalf("%g (%#08x) of %d is rounded to %#04x, want %#04x", v, math.Float32bits(v), n, dst[i], roundUpper(v))
				}
			}
			for _, v := range dst[n:] {
				if v != 0 {
					t.Fatalf("round of %d writes past its end", n)
				}
			}
		}
	})
}

// words are n random bfloat16, and noise behind them, with the floats that they stand for.
func words(r *rand.Rand, n int) (w []uint16, floats []float32) {
	w, floats = make([]uint16, n+guard), make([]float32, n)
	for i := range w {
		w[i] = uint16(r.Uint32())&0x83ff | 0x3c00 // 2^-7 to 2 and their negatives
		if i < n {
			floats[i] = math.Float32frombits(uint32(w[i]) << 16)
		} else {
			w[i] = 0x7fc0 // NaN
		}
	}
	return w[:n:n], floats
}

// TestScores compares with the oracle's bits; keys end where the block ends, so a read
// past it would be seen as NaN, and scores may write whole lines from its last run on only.
func TestScores(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for round := range 400 {
			rows, n, dim := 1+r.IntN(tileRows), 1+r.IntN(70), 1+r.IntN(70)
			size := 1 + r.IntN(lanes)
			ldk, ldq, lds := n+r.IntN(5), dim+r.IntN(9), (n-1)/size*size+lanes+r.IntN(9)
			length := func(m int) int { return (dim-1)*ldk + m }
			q, keys, s := newGuarded(r, rows*ldq, 1), newGuarded(r, dim*ldk, 1).floats(), newGuarded(r, rows*lds, 1)
			expected := append([]float32(nil), s.floats()...)
			what := fmt.Sprintf("%d rows, %d keys of %d, %d a run, strides %d %d %d", rows, n, dim, size, ldq, ldk, lds)
			if round%2 == 0 {
				some := scattered(r, keyRuns(keys, n, size, ldk), n, float32(math.NaN()), length)
				o.scores(rows, n, dim, q.floats(), ldq, some, 0.3, s.floats(), lds)
			} else {
				var keys16 []uint16
				keys16, keys = words(r, dim*ldk)
				some := scattered(r, keyRuns(keys16, n, size, ldk), n, 0x7fc0, length)
				o.scores16(rows, n, dim, q.floats(), ldq, some, 0.3, s.floats(), lds)
				what += ", bfloat16"
			}
			want.scores(rows, n, dim, q.floats(), ldq, keys, ldk, 0.3, expected, lds)
			for i := range rows {
				sameBits(t, what, s.floats()[i*lds:][:n], expected[i*lds:][:n])
			}
			s.check(t, what)
		}
	})
}

func TestValues(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for round := range 400 {
			rows, n, dim, size := 1+r.IntN(tileRows), 1+r.IntN(50), 1+r.IntN(150), 1+r.IntN(lanes)
			length := func(m int) int { return m * dim }
			ldp, ldd := n+r.IntN(9), dim+r.IntN(9)
			p, v, dst := newGuarded(r, rows*ldp, 1), newGuarded(r, n*dim, 1).floats(), newGuarded(r, rows*ldd, 1)
			expected := append([]float32(nil), dst.floats()...)
			what := fmt.Sprintf("%d rows, %d values of %d, %d a run, strides %d %d", rows, n, dim, size, ldp, ldd)
			if round%2 == 0 {
				some := scattered(r, valueRuns(v, n, size, dim), n, float32(math.NaN()), length)
				o.values(rows, n, dim, p.floats(), ldp, some, dst.floats(), ldd)
			} else {
				var v16 []uint16
				v16, v = words(r, n*dim)
				some := scattered(r, valueRuns(v16, n, size, dim), n, 0x7fc0, length)
				o.values16(rows, n, dim, p.floats(), ldp, some, dst.floats(), ldd)
				what += ", bfloat16"
			}
			want.values(rows, n, dim, p.floats(), ldp, v, expected, ldd)
			sameBits(t, what, dst.floats(), expected)
			dst.check(t, what)
		}
	})
}

func TestSoftmax(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for n := 1; n < 200; n++ {
			s := newGuarded(r, n, math.Exp2(float64(r.IntN(12)-4)))
			if n > 3 {
				s.floats()[n/2] = float32(math.Inf(-1))
			}
			expected := append([]float32(nil), s.floats()...)
			wantSum := want.softmax(expected)
			sum := o.softmax(s.floats())
			what := fmt.Sprintf("softmax of %d", n)
			sameBits(t, what, s.floats(), expected)
			sameBits(t, what+", sum", []float32{sum}, []float32{wantSum})
			s.check(t, what)
		}
		bad := []float32{1, 2, float32(math.NaN()), 3}
		if sum := o.softmax(bad); sum == sum {
			t.Errorf("a NaN among the scores is lost: sum %g", sum)
		}
	})
}

func TestNorm(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for n := 1; n < 200; n++ {
			x, gain, bias, dst := newGuarded(r, n, 3), newGuarded(r, n, 1), newGuarded(r, n, 1), newGuarded(r, n, 1)
			expected := make([]float32, n)
			want.norm(expected, x.floats(), gain.floats(), bias.floats(), 1e-5)
			o.norm(dst.floats(), x.floats(), gain.floats(), bias.floats(), 1e-5)
			what := fmt.Sprintf("norm of %d", n)
			sameBits(t, what, dst.floats(), expected)
			dst.check(t, what)
			sameBits(t, what+", source", x.all, x.before)
		}
	})
}

// specials are arguments at the edges of the elementwise functions.
var specials = []float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e-45, 1e-30, -1e-30, 1, -1, 5, -5, 9, -9, 13, -13,
	15.9, -15.9, 16.1, -16.1, 88, -88, 1e20, -1e20, math.MaxFloat32, -math.MaxFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}

func TestGELU(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, want oracle) {
		r := newRand(t)
		for n := 1; n < 150; n++ {
			for _, f := range []struct {
				name      string
				got, want func([]float32)
			}{{"gelu", o.gelu, want.gelu}, {"geluErf", o.geluErf, want.geluErf}} {
				x := newGuarded(r, n, 3)
				if n > len(specials) {
					copy(x.floats(), specials)
				}
				expected := append([]float32(nil), x.floats()...)
				f.want(expected)
				f.got(x.floats())
				what := fmt.Sprintf("%s of %d", f.name, n)
				sameBits(t, what, x.floats(), expected)
				x.check(t, what)
			}
		}
	})
}

func TestAddAndScale(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		r := newRand(t)
		for n := 1; n < 70; n++ {
			x, y := newGuarded(r, n, 1), newGuarded(r, n, 1)
			expected := make([]float32, n)
			for i := range expected {
				expected[i] = (x.floats()[i] + y.floats()[i]) * 0.7
			}
			o.add(x.floats(), y.floats())
			o.scale(x.floats(), 0.7)
			sameBits(t, fmt.Sprint(n), x.floats(), expected)
			x.check(t, fmt.Sprint(n))
		}
	})
}

// ulps is the distance of got from the exact value in units of its last place.
func ulps(got float32, exact float64) float64 {
	_, e := math.Frexp(exact)
	return math.Abs(float64(got)-exact) / math.Ldexp(1, max(e, -125)-24)
}

// TestAccuracy bounds the elementwise functions' distance from package math.
func TestAccuracy(t *testing.T) {
	gelu := func(x float64) float64 { return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }
	geluErf := func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		var worstExp, worstGELU, worstErf float64
		const step = 16
		for i := -8800; i < 0; i++ {
			// A softmax of 0 and x shows exp(x).
			x := float32(i)/100 + 0.0037
			s := []float32{0, x}
			o.softmax(s)
			if exact := math.Exp(float64(x)); x > expLow {
				worstExp = max(worstExp, ulps(s[1], exact))
			} else if s[1] != 0 {
				t.Errorf("exp(%g) = %g", x, s[1])
			}
		}
		x, y, z := make([]float32, step), make([]float32, step), make([]float32, step)
		for i := -10000; i < 10000; i += step {
			for j := range x {
				x[j] = float32(i+j)/1000 + 0.00037
			}
			copy(y, x)
			copy(z, x)
			o.gelu(y)
			o.geluErf(z)
			for j, v := range x {
				// Where x is negative, GELU falls like exp(-x^2/2), and an error in x^2
				// of half a unit is x^2/2 units of the result.
				room := 1 + float64(v*v)
				worstGELU = max(worstGELU, ulps(y[j], gelu(float64(v)))/room)
				worstErf = max(worstErf, ulps(z[j], geluErf(float64(v)))/room)
			}
		}
		t.Logf("exp %.2f, gelu %.2f, geluErf %.2f units in the last place", worstExp, worstGELU, worstErf)
		if worstExp > 1 || worstGELU > 2 || worstErf > 5 {
			t.Errorf("exp %.2f, gelu %.2f, geluErf %.2f units in the last place", worstExp, worstGELU, worstErf)
		}
		edges := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), -1e30, 1e30}
		e := append([]float32(nil), edges...)
		o.gelu(edges)
		o.geluErf(e)
		for _, f := range [][]float32{edges, e} {
			if !math.IsInf(float64(f[0]), 1) || math.Abs(float64(f[1])) > 1e-37 || math.Abs(float64(f[2])) > 1e-37 || f[3] != 1e30 {
				t.Errorf("at infinities and +-1e30: %g", f)
			}
		}
	})
}
