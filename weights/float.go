package weights

import (
	"encoding/binary"
	"math"
)

// float16 widens an IEEE 754 half, which every float32 can hold exactly. An infinity
// keeps its sign, a NaN also its payload.
func float16(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent := uint32(h>>10) & 0x1F
	fraction := uint32(h) & 0x3FF
	switch exponent {
	case 0: // zero or subnormal: fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1F: // infinity or NaN
		return math.Float32frombits(sign | 0x7F800000 | fraction<<13)
	}
	// The exponent's bias is 15 in a half and 127 in a float32.
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// bfloat16 widens a bfloat16, which is the upper half of a float32.
func bfloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// widen decodes little-endian numbers of a type from raw to the same count in dst.
func (d dtype) widen(dst []float32, raw []byte) {
	switch d {
	case "F32":
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case "F16":
		for i := range dst {
			dst[i] = float16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case "BF16":
		for i := range dst {
			dst[i] = bfloat16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
}

// dtype is a safetensors type name.
type dtype string

// size returns the bytes of one element; 0 if the type is not known. Types that are not
// read as weights are known too, because old GPT-2 files hold their attention masks in them.
func (d dtype) size() int64 {
	switch d {
	case "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0":
		return 1
	case "F16", "BF16", "I16", "U16":
		return 2
	case "F32", "I32", "U32":
		return 4
	case "F64", "I64", "U64", "C64":
		return 8
	}
	return 0
}

// readable reports whether widen knows the type.
func (d dtype) readable() bool { return d == "F32" || d == "F16" || d == "BF16" }
