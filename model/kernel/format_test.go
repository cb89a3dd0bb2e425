package kernel

import (
	"math"
	"slices"
	"testing"
)

// halfValue is a half by its definition, (-1)^s * 1.f * 2^(e-15), or 0.f * 2^-14 for e = 0.
func halfValue(h uint16) float32 {
	exponent, fraction := int(h/1024%32), float64(h%1024)
	v := (1 + fraction/1024) * math.Pow(2, float64(exponent-15))
	switch {
	case exponent == 31 && fraction > 0:
		return float32(math.NaN())
	case exponent == 31:
		v = math.Inf(1)
	case exponent == 0:
		v = fraction / 1024 * math.Pow(2, -14)
	}
	if h >= 0x8000 {
		v = -v
	}
	return float32(v)
}

func TestWidenHalf(t *testing.T) {
	for h := range 1 << 16 {
		got, want := widenHalf(uint16(h)), halfValue(uint16(h))
		if !sameFloat(got, want) && !(got != got && want != want) {
			t.Fatalf("half %#04x is %g, want %g", h, got, want)
		}
		if back := roundHalf(got); back != uint16(h) && got == got {
			t.Fatalf("half %#04x is %g, which rounds to %#04x", h, got, back)
		}
	}
}

// TestRounding compares with the nearest of all 65,536 values, the even one of two.
func TestRounding(t *testing.T) {
	uppers, halves := make([]uint16, 0, 1<<15), make([]uint16, 0, 1<<15)
	for h := range uint16(0x7f80) {
		uppers = append(uppers, h)
	}
	for h := range uint16(0x7c00) {
		halves = append(halves, h)
	}
	upper := func(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }
	half := func(h uint16) float64 { return float64(halfValue(h)) }
	nearest := func(sorted []uint16, value func(uint16) float64, x float64) uint16 {
		i, found := slices.BinarySearchFunc(sorted, x, func(h uint16, x float64) int {
			switch v := value(h); {
			case v < x:
				return -1
			case v > x:
				return 1
			}
			return 0
		})
		if found {
			return sorted[i]
		}
		// Past the largest the next step, were there one, would be infinity's place.
		above, code := 2*value(sorted[len(sorted)-1])-value(sorted[len(sorted)-2]), sorted[len(sorted)-1]+1
		if i < len(sorted) {
			above, code = value(sorted[i]), sorted[i]
		}
		below := value(sorted[i-1])
		if up, down := above-x, x-below; up < down || up == down && code%2 == 0 {
			return code
		}
		return sorted[i-1]
	}
	r := newRand(t)
	for i := range 200000 {
		bits := r.Uint32() & 0x7fffffff
		switch {
		case i%4 == 1:
			bits = bits&0x7fff0000 | 0x8000 // a tie of bfloat16
		case i%4 == 2: // the range of halves
			bits = math.Float32bits(float32(math.Exp2(r.Float64()*44 - 27)))
		case i%4 == 3:
			bits = math.Float32bits(float32(math.Exp2(r.Float64()*33-16)))&^0x1fff | 0x1000 // a tie of halves
		}
		x := math.Float32frombits(bits)
		if x != x || math.IsInf(float64(x), 0) {
			continue
		}
		for _, sign := range []uint16{0, 0x8000} {
			v := math.Float32frombits(bits | uint32(sign)<<16)
			if got, want := roundUpper(v), sign|nearest(uppers, upper, float64(x)); got != want {
				t.Fatalf("%g (%#08x) rounds to bfloat16 %#04x, want %#04x", v, math.Float32bits(v), got, want)
			}
			want := sign | 0x7c00
			if x < 65536 {
				want = sign | nearest(halves, half, float64(x))
			}
			if got := roundHalf(v); got != want {
				t.Fatalf("%g (%#08x) rounds to half %#04x, want %#04x", v, math.Float32bits(v), got, want)
			}
		}
	}
	for _, v := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0x7f800001)} {
		for _, back := range []float32{widenUpper(roundUpper(v)), widenHalf(roundHalf(v))} {
			if back != v && (v == v || back == back) {
				t.Errorf("%g becomes %g", v, back)
			}
		}
	}
}

// TestExact: what is kept in 16 bits comes back with the same bits.
func TestExact(t *testing.T) {
	for _, c := range []struct {
		weights []float32
		want    Format
	}{
		{[]float32{1, 0, -2, 1.5}, BFloat16},
		{[]float32{1 + 1.0/128, 0x1p-130, 0x1.8p127}, BFloat16},
		{[]float32{1 + 1.0/1024, 65504, -0x1p-24, float32(math.Inf(1))}, Float16},
		{[]float32{1 + 1.0/2048}, Float32},
		{[]float32{1 + 1.0/1024, 65536}, Float32},
		{[]float32{1 + 1.0/1024, 0x1p-25}, Float32},
		{[]float32{1 + 1.0/1024, 1 + 1.0/128, 1e30}, Float32},
		{[]float32{math.Float32frombits(0x7fc00001)}, Float32}, // the payload counts
	} {
		want := c.want
		if !best().widens {
			want = Float32
		}
		if got := Exact(c.weights); got != want {
			t.Errorf("%g: %v, want %v", c.weights, got, want)
		}
	}
}
