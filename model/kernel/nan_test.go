package kernel

import (
	"math"
	"testing"
)

// TestNaNStaysNaN: exp adds an exponent to the bits of its result, which must not make a
// number of a NaN, whatever the bits below its quiet one are.
func TestNaNStaysNaN(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		for _, bits := range []uint32{0x7fc00000, 0x7fc001ff, 0x7fffffff, 0xffc00001, 0xffffffff, 0x7fc00100} {
			for _, n := range []int{1, 16, 35} {
				x, y, s := make([]float32, n), make([]float32, n), make([]float32, n)
				x[n/2], y[n/2], s[n/2] = math.Float32frombits(bits), math.Float32frombits(bits), math.Float32frombits(bits)
				o.gelu(x)
				o.geluErf(y)
				sum := o.softmax(s)
				if x[n/2] == x[n/2] || y[n/2] == y[n/2] || sum == sum {
					t.Errorf("NaN %#x among %d: gelu %g, geluErf %g, sum %g", bits, n, x[n/2], y[n/2], sum)
				}
			}
		}
	})
}
