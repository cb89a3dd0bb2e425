package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// round writes the loop that rounds float32 to bfloat16, to nearest, ties to even. Adding
// just under half of the last place kept, and that place's own bit, carries where
// rounding does; a NaN keeps its upper half and becomes quiet.
func (s set) round() {
	s.begin("round", "computes dst[i] = src[i] rounded to bfloat16 over n floats.", "func(n int, dst *uint16, src *float32)")
	n, dst, src := load64("n"), load64("dst"), load64("src")
	word := func(v uint32) reg.VecVirtual {
		r, w := s.reg(), GP32()
		MOVL(U32(v), w)
		VPBROADCASTD(w, r)
		return r
	}
	one, half, quiet := word(1), word(0x7fff), word(0x400000)
	s.lines("round", n, []reg.GPVirtual{src}, func(k *mask) {
		x := s.line()
		s.get(Mem{Base: src}, k, x)
		v, t, nan := x[0], s.reg(), K()
		const unordered = 3
		VCMPPS(Imm(unordered), v, v, nan)
		VPSRLD(Imm(16), v, t)
		VPANDD(one, t, t)
		VPADDD(half, t, t)
		VPADDD(v, t, t)
		VPORD(quiet, v, nan, t)
		VPSRLD(Imm(16), t, t)
		if k == nil {
			VPMOVDW(t, Mem{Base: dst})
		} else {
			VPMOVDW(t, k.k, Mem{Base: dst})
		}
		ADDQ(imm(32), dst)
	})
	end()
}
