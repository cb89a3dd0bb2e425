package kernel

import (
	"math"
	"strconv"
)

// Format is how a matrix keeps its weights. A product with the first three is the same
// bits for the same weights: 16 bits are widened exactly, on the way from memory to the
// multiplication, and cost half the bytes of a decode step.
type Format int

// The formats.
const (
	Float32  Format = iota
	Float16         // IEEE 754 halves
	BFloat16        // the upper halves of float32
	// BFloat16Pairs is BFloat16 whose products take the rows in bfloat16 too, rounded
	// once, where the instruction set multiplies pairs of them, at twice the speed with
	// AVX512_BF16. Elsewhere it is BFloat16.
	BFloat16Pairs
)

func (f Format) String() string {
	switch f {
	case Float32:
		return "float32"
	case Float16:
		return "float16"
	case BFloat16, BFloat16Pairs:
		return "bfloat16"
	}
	return "Format(" + strconv.Itoa(int(f)) + ")"
}

// step is how many k lie side by side in a panel.
func (f Format) step() int {
	if f == BFloat16 || f == BFloat16Pairs {
		return 2
	}
	return 1
}

// bytes is the size of a weight.
func (f Format) bytes() int {
	if f == Float32 {
		return 4
	}
	return 2
}

// Exact is the smallest format that holds every weight without rounding and costs no
// more time than Float32.
func Exact(weights []float32) Format {
	halves := best().widens
	uppers := halves
	for _, w := range weights {
		uppers = uppers && math.Float32bits(w)&0xffff == 0
		halves = halves && sameFloat(widenHalf(roundHalf(w)), w)
		if !halves && !uppers {
			return Float32
		}
	}
	if uppers {
		return BFloat16 // cheaper to widen
	}
	return Float16
}

// sameFloat compares bits, so that -0 and NaN are kept as they are.
func sameFloat(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// roundUpper rounds to bfloat16, to nearest, ties to even. A NaN becomes quiet.
func roundUpper(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16((b | 0x400000) >> 16)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// widenUpper is the float32 that a bfloat16 stands for.
func widenUpper(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// roundHalf rounds to an IEEE 754 half, to nearest, ties to even; what is too large
// becomes an infinity.
func roundHalf(x float32) uint16 {
	b := math.Float32bits(x)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7c00 | uint16(b>>13&0x3ff) | 0x200
	case b >= 0x477ff000: // 65520, halfway from the largest half to what would be next
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14 halves count in steps of 2^-24, and float32 at 0.5 too
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-(127-15)<<23)>>13)
}

// widenHalf is the float32 that a half stands for.
func widenHalf(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
