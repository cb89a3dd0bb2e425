package kernel

import "math"

// Constants of exp: x = n*ln2 + r with |r| <= ln2/2, exp(x) = 2^n * exp(r). ln2 is
// split so that n*expLn2High is exact; the polynomial is that of Cephes' expf.
const (
	expLow     = -87.3 // below, the result would be denormal: it is 0
	expHigh    = 88.3  // above, the result saturates at exp(88.3) = 2.2e38
	expLog2e   = 1.44269504088896341
	expRound   = 12582912 // 1.5 * 2^23: adding it rounds to an integer, in the low bits
	expLn2High = 0.693359375
	expLn2Low  = -2.12194440e-4
	expP0      = 1.9875691500e-4
	expP1      = 1.3981999507e-3
	expP2      = 8.3334519073e-3
	expP3      = 4.1665795894e-2
	expP4      = 1.6666665459e-1
	expP5      = 5.0000001201e-1
)

// expScalar is exp in float32, within 2 units in the last place on
// [expLow, expHigh]; exp(-inf) is 0 and NaN stays NaN.
func expScalar(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < expLow:
		return 0
	case x > expHigh:
		x = expHigh
	}
	t := float32(x*expLog2e) + expRound
	n := t - expRound
	r := x - float32(n*expLn2High)
	r -= float32(n * expLn2Low)
	p := float32(expP0)
	p = float32(p*r) + expP1
	p = float32(p*r) + expP2
	p = float32(p*r) + expP3
	p = float32(p*r) + expP4
	p = float32(p*r) + expP5
	y := float32(p*float32(r*r)) + r
	y++
	return math.Float32frombits(math.Float32bits(y) + math.Float32bits(t)<<23)
}

// Constants of the tanh form of GELU,
//
//	0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))) = x / (1 + exp(x(geluC0 + geluC1*x^2))),
//
// which needs no tanh and does not cancel where x is negative.
const (
	geluC0 = -1.5957691216057308 // -2*sqrt(2/pi)
	geluC1 = -0.0713548162726009 // geluC0 * 0.044715
	// geluLow bounds x from below: gelu(-16) is as good as 0, and -inf is no NaN.
	geluLow = -16
)

func geluScalar(x []float32) {
	for i, v := range x {
		if v < geluLow {
			v = geluLow
		}
		c := float32(geluC1*float32(v*v)) + geluC0
		x[i] = v / (1 + expScalar(c*v))
	}
}

// Constants of the exact GELU, x*Phi(x) = max(x, 0) - |x|*Phi(-|x|), where
//
//	Phi(-t) = exp(-t^2/2) * u*(erfA0 + erfA1*u + ... + erfA8*u^8), u = 1/(1 + erfP*t),
//
// the form of Abramowitz and Stegun 7.1.26 with more terms. The coefficients are a
// minimax fit on [0, 16] by Lawson's iteration, relative error 2.3e-8. Nothing cancels:
// 1 - Phi(-x) is at least 1/2.
const (
	// erfHigh bounds t from above, so that an infinity makes no 0*inf.
	erfHigh = 16
	erfP    = 0.27
	erfA0   = 0.1077215041
	erfA1   = 0.1075289115
	erfA2   = 0.1019072714
	erfA3   = 0.07168153165
	erfA4   = 0.1086707843
	erfA5   = -0.0704116756
	erfA6   = 0.1708196288
	erfA7   = -0.1269793761
	erfA8   = 0.02906143216
)

func geluErfScalar(x []float32) {
	for i, v := range x {
		t := float32(math.Abs(float64(v)))
		if t > erfHigh {
			t = erfHigh
		}
		u := 1 / (float32(erfP*t) + 1)
		p := float32(erfA8)
		p = float32(p*u) + erfA7
		p = float32(p*u) + erfA6
		p = float32(p*u) + erfA5
		p = float32(p*u) + erfA4
		p = float32(p*u) + erfA3
		p = float32(p*u) + erfA2
		p = float32(p*u) + erfA1
		p = float32(p*u) + erfA0
		p *= u
		p *= expScalar(float32(t*t) * -0.5)
		x[i] = max(v, 0) - float32(t*p)
	}
}
