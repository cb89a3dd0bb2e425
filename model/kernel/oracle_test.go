package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// fused is a*b + c with one rounding, the arithmetic of the assembly: the product is
// exact in float64; the sum is rounded to odd there, so that the second rounding, to
// float32, is as good as the only one.
func fused(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := p + q
	if math.IsInf(s, 0) || math.IsNaN(s) {
		return float32(s)
	}
	t := s - p
	if rest := (p - (s - t)) + (q - t); rest != 0 && math.Float64bits(s)&1 == 0 {
		if (rest > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}

// rounded is a*b + c with two roundings, the arithmetic of the scalar loops.
func rounded(a, b, c float32) float32 { return float32(a*b) + c }

type madd func(a, b, c float32) float32

// oracle states every loop once more, element by element in the order that the package
// documents, over either arithmetic.
type oracle struct {
	madd  madd
	flush bool // pairs counts denormals as zero
	// groups says that pairs sums in groups of 32 as AMX does, fused and without denormals in
	// either arithmetic.
	groups bool
}

func (o oracle) panel(rows, k int, a []float32, lda int, b []float32, width int, start []float32, lds int, c []float32, ldc int) {
	for r := range rows {
		for j := range width {
			x := start[r*lds+j]
			for i := range k {
				x = o.madd(a[r*lda+i], b[i*width+j], x)
			}
			c[r*ldc+j] = x
		}
	}
}

// panel16 is panel on weights of 16 bits.
func (o oracle) panel16(f Format, rows, k int, a []float32, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	o.panel(rows, k, a, lda, unpack(f, k, b, width), width, start, lds, c, ldc)
}

// unpack is the weights of a panel of 16 bits as [k][width] of float32.
func unpack(f Format, k int, b []uint16, width int) []float32 {
	w := make([]float32, k*width)
	for i := range k {
		for j := range width {
			if f == Float16 {
				w[i*width+j] = halfValue(b[i*width+j])
			} else {
				w[i*width+j] = math.Float32frombits(uint32(b[i/2*2*width+2*j+i%2]) << 16)
			}
		}
	}
	return w
}

// pairs adds the odd product of each pair first. With the fused arithmetic denormals count
// as zero.
func (o oracle) pairs(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	w := unpack(BFloat16, k, b, width)
	if o.groups {
		sumGroups(rows, k, a, lda, w, width, start, lds, c, ldc)
		return
	}
	madd := o.madd
	if o.flush {
		madd = func(a, b, c float32) float32 { return flushed(fused(flushed(a), flushed(b), flushed(c))) }
	}
	for r := range rows {
		for j := range width {
			x := start[r*lds+j]
			for i := range k {
				i ^= 1
				x = madd(math.Float32frombits(uint32(a[r*lda+i])<<16), w[i*width+j], x)
			}
			c[r*ldc+j] = x
		}
	}
}

// sumGroups goes through the products one by one: two sums of each 32, those of even and of
// odd k, become one, which is added to the result at the end of the 32.
func sumGroups(rows, k int, a []uint16, lda int, w []float32, width int, start []float32, lds int, c []float32, ldc int) {
	for r := range rows {
		for j := range width {
			x, even, odd := start[r*lds+j], float32(0), float32(0)
			for i := 0; i < k; i += 2 {
				even = flushedFused(math.Float32frombits(uint32(a[r*lda+i])<<16), w[i*width+j], even)
				odd = flushedFused(math.Float32frombits(uint32(a[r*lda+i+1])<<16), w[(i+1)*width+j], odd)
				if i%32 == 30 || i+2 == k {
					x = flushedFused(x, 1, flushedFused(even, 1, odd))
					even, odd = 0, 0
				}
			}
			c[r*ldc+j] = x
		}
	}
}

// flushedFused is fused without denormals: the sum is rounded to 24 bits as if exponents had
// no end, and is zero if it is below the least normal number then.
func flushedFused(a, b, c float32) float32 {
	a, b, c = flushed(a), flushed(b), flushed(c)
	s := fused(a, b, c)
	if m := math.Abs(float64(s)); !(m < 0x1p-120) || m == 0 && (a*b == 0 || c != 0) {
		return s // far from denormals, or not finite
	}
	exact := new(big.Float).SetPrec(1000)
	exact.Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
	exact.Add(exact, big.NewFloat(float64(c)))
	exact.SetMode(big.ToNearestEven).SetPrec(24)
	if exact.Sign() != 0 && exact.MantExp(nil) <= -126 { // 0.1... times 2 to this
		return float32(math.Copysign(0, float64(exact.Sign())))
	}
	s, _ = exact.Float32()
	return s
}

// flushed turns denormals into zero of the same sign.
func flushed(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

func (o oracle) scores(rows, n, dim int, q []float32, ldq int, keys []float32, ldk int, scale float32, s []float32, lds int) {
	for r := range rows {
		for t := range n {
			var x float32
			for d := range dim {
				x = o.madd(q[r*ldq+d], keys[d*ldk+t], x)
			}
			s[r*lds+t] = x * scale
		}
	}
}

func (o oracle) values(rows, n, dim int, p []float32, ldp int, v []float32, dst []float32, ldd int) {
	for r := range rows {
		for d := range dim {
			for t := range n {
				dst[r*ldd+d] = o.madd(p[r*ldp+t], v[t*dim+d], dst[r*ldd+d])
			}
		}
	}
}

// sum adds the values in lanes: lane i has i, i+16, ...; then 8 apart, 4, 2, 1.
func (o oracle) sum(n int, f func(i int, acc float32) float32) float32 {
	var l [16]float32
	for i := range n {
		l[i%16] = f(i, l[i%16])
	}
	quarter := func(i int) float32 { return (l[i] + l[i+8]) + (l[i+4] + l[i+12]) }
	return (quarter(0) + quarter(2)) + (quarter(1) + quarter(3))
}

func (o oracle) exp(x float32) float32 {
	if math.IsNaN(float64(x)) {
		return x
	}
	if x < expLow {
		return 0
	}
	x = min(x, expHigh)
	t := o.madd(x, expLog2e, expRound)
	n := t - expRound
	r := o.madd(-n, expLn2Low, o.madd(-n, expLn2High, x))
	p := float32(expP0)
	for _, c := range []float32{expP1, expP2, expP3, expP4, expP5} {
		p = o.madd(p, r, c)
	}
	y := o.madd(p, r*r, r) + 1
	return float32(math.Ldexp(float64(y), int(n)))
}

func (o oracle) softmax(s []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range s {
		if v > top {
			top = v
		}
	}
	return o.sum(len(s), func(i int, acc float32) float32 {
		s[i] = o.exp(s[i] - top)
		return acc + s[i]
	})
}

func (o oracle) norm(dst, x, gain, bias []float32, eps float32) {
	n := float32(len(x))
	mean := o.sum(len(x), func(i int, acc float32) float32 { return acc + x[i] }) / n
	variance := o.sum(len(x), func(i int, acc float32) float32 { return o.madd(x[i]-mean, x[i]-mean, acc) }) / n
	inv := 1 / float32(math.Sqrt(float64(variance+eps)))
	for i, v := range x {
		dst[i] = o.madd((v-mean)*inv, gain[i], bias[i])
	}
}

func (o oracle) gelu(x []float32) {
	for i, v := range x {
		if v < geluLow {
			v = geluLow
		}
		x[i] = v / (1 + o.exp(o.madd(geluC1, v*v, geluC0)*v))
	}
}

func (o oracle) geluErf(x []float32) {
	for i, v := range x {
		t := min(float32(math.Abs(float64(v))), erfHigh)
		u := 1 / o.madd(erfP, t, 1)
		p := float32(erfA8)
		for _, c := range []float32{erfA7, erfA6, erfA5, erfA4, erfA3, erfA2, erfA1, erfA0} {
			p = o.madd(p, u, c)
		}
		x[i] = o.madd(-t, p*u*o.exp(t*t*-.5), max(v, 0))
	}
}

// oracleOf is the oracle whose bits a set must have.
func oracleOf(o *ops) oracle {
	if o.name == portable().name {
		return oracle{madd: rounded}
	}
	return oracle{madd: fused, flush: true, groups: o.name == amxName}
}

// forEach runs f on every set of loops that this machine has, with the oracle whose
// bits it must have.
func forEach(t *testing.T, f func(t *testing.T, o *ops, want oracle)) {
	for _, o := range available() {
		t.Run(o.name, func(t *testing.T) { f(t, o, oracleOf(o)) })
	}
}

func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// guarded is n random floats with noise around them, which check finds unchanged.
type guarded struct{ all, before []float32 }

const guard = 40

func newGuarded(r *rand.Rand, n int, spread float64) guarded {
	g := guarded{all: make([]float32, n+2*guard)}
	for i := range g.all {
		g.all[i] = float32(r.NormFloat64() * spread)
	}
	g.before = append([]float32(nil), g.all...)
	return g
}

func (g guarded) floats() []float32 { return g.all[guard : len(g.all)-guard] }

func (g guarded) check(t *testing.T, what string) {
	t.Helper()
	for _, i := range []int{0, len(g.all) - guard} {
		for j := i; j < i+guard; j++ {
			if math.Float32bits(g.all[j]) != math.Float32bits(g.before[j]) {
				t.Fatalf("%s: float %d of %d was overwritten", what, j-guard, len(g.all)-2*guard)
			}
		}
	}
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: float %d of %d is %g (%#08x), want %g (%#08x)", what, i, len(want),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func TestFused(t *testing.T) {
	r := newRand(t)
	for range 100000 {
		a, b := float32(r.NormFloat64()), float32(r.NormFloat64())
		c := float32(r.NormFloat64() * math.Exp2(float64(r.IntN(60)-30)))
		if r.IntN(2) == 0 {
			c = -float32(a*b) * float32(1+r.NormFloat64()*1e-6) // cancels
		}
		if got, want := fused(a, b, c), float32(math.FMA(float64(a), float64(b), float64(c))); math.Abs(float64(got-want)) > math.Abs(float64(want))*1.2e-7 {
			t.Fatalf("fused(%g, %g, %g) = %g, want %g", a, b, c, got, want)
		}
	}
	// 1 + 2^-24 + 2^-60 rounds up; by way of float64 it would be a tie, to even.
	if got := fused(1+1.0/(1<<12), 1.0/(1<<24)/(1+1.0/(1<<12)), 1); got < 1 {
		t.Error(got)
	}
	if got := fused(float32(math.Exp2(-30)), float32(math.Exp2(-30)), float32(1+0)); got != 1 {
		t.Error(got)
	}
	if got := fused(float32(1+math.Exp2(-20)), float32(1+math.Exp2(-20)), -1); got != float32(math.Exp2(-19)+math.Exp2(-40)) {
		t.Error(got)
	}
}
