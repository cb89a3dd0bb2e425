package weights

import (
	"math"
	"testing"
)

// Every half, against the definition: (-1)^s * 1.f * 2^(e-15), or 0.f * 2^-14 for e = 0.
func TestFloat16(t *testing.T) {
	for h := range 1 << 16 {
		got := float16(uint16(h))
		sign := 1.0
		if h >= 0x8000 {
			sign = -1
		}
		exponent, fraction := h/1024%32, float64(h%1024)
		var want float64
		switch {
		case exponent == 31 && fraction > 0:
			// A NaN: its sign and its payload, at the upper end of the fraction.
			bits := math.Float32bits(got)
			if got == got || bits>>31 != uint32(h)>>15 || bits>>13&0x3FF != uint32(fraction) {
				t.Fatalf("%04X -> %08X, want a NaN with its sign and payload", h, bits)
			}
			continue
		case exponent == 31:
			want = math.Inf(int(sign))
		case exponent == 0:
			want = math.Copysign(fraction/1024*math.Pow(2, -14), sign)
		default:
			want = sign * (1 + fraction/1024) * math.Pow(2, float64(exponent-15))
		}
		if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
			t.Fatalf("%04X -> %g, want %g", h, got, want)
		}
	}
}

// Every bfloat16: (-1)^s * 1.f * 2^(e-127) with 7 bits of fraction.
func TestBFloat16(t *testing.T) {
	for b := range 1 << 16 {
		got := bfloat16(uint16(b))
		sign := 1.0
		if b >= 0x8000 {
			sign = -1
		}
		exponent, fraction := b/128%256, float64(b%128)
		var want float64
		switch {
		case exponent == 255 && fraction > 0:
			if got == got {
				t.Fatalf("%04X -> %g, want a NaN", b, got)
			}
			continue
		case exponent == 255:
			want = math.Inf(int(sign))
		case exponent == 0:
			want = math.Copysign(fraction/128*math.Pow(2, -126), sign)
		default:
			want = sign * (1 + fraction/128) * math.Pow(2, float64(exponent-127))
		}
		if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
			t.Fatalf("%04X -> %g, want %g", b, got, want)
		}
	}
}
