package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// element is the type of keys and values in their blocks.
type element struct {
	name  string // in the names of the loops
	elem  string // in Go
	doc   string
	bytes int
}

var (
	wide   = element{"", "float32", "", 4}
	narrow = element{"BF16", "uint16", ", of bfloat16, widened,", 2}
)

// distance loads a count of elements as a distance in bytes.
func (e element) distance(name string) reg.GPVirtual {
	r := load64(name)
	SHLQ(Imm(uint64(log2(e.bytes))), r)
	return r
}

// elements loads the 16 elements at m as float32.
func (s set) elements(e element, m Mem, l line) {
	for i, r := range l {
		if e == wide {
			VMOVUPS(s.at(m, i), r)
			continue
		}
		VPMOVZXWD(m.Offset(i*s.width()/2), r)
		VPSLLD(Imm(16), r, r)
	}
}

// element is register i of elements as an operand: memory, if nothing has to be done to it.
func (s set) element(e element, m Mem, i int) Op {
	if e == wide {
		return s.at(m, i)
	}
	r := s.reg()
	s.elements(e, m.Offset(i*s.width()/2), line{r})
	return r
}

// part selects the first n elements of a line, 1 <= n <= 16.
//
// AVX2 has no mask for words of 16 bits. There the mask is that of whole pairs, and the
// last element, which may have no partner to be read with, is read on its own: all bytes of
// one register are that element, and lastMask leaves it in its place.
type part struct {
	e        element
	mask     mask
	last     reg.GPVirtual // bytes before the last element
	lastMask Mem
}

// splits says that a part of such elements is read as pairs and the last one.
func (s set) splits(e element) bool { return e == narrow && s.regs == 2 }

// part makes the part of the first n elements. It spends n.
func (s set) part(e element, n reg.GPVirtual) part {
	if !s.splits(e) {
		return part{e: e, mask: s.mask(n)}
	}
	p := part{e: e, last: GP64()}
	pairs, table, at := GP64(), GP64(), GP64()
	MOVQ(n, pairs)
	SHRQ(Imm(1), pairs)
	NEGQ(pairs)
	LEAQ(masks(), table)
	p.mask.vec = line{s.reg()}
	VMOVUPS(Mem{Base: table, Index: pairs, Scale: 4, Disp: 64}, p.mask.vec[0])
	LEAQ(Mem{Base: n, Index: n, Scale: 1, Disp: -2}, p.last)
	LEAQ(lastWord(), at)
	SUBQ(p.last, at)
	p.lastMask = Mem{Base: at, Disp: 30}
	return p
}

var lastWordTable *Mem

// lastWord is 32 words of zeros, but the one at 15 is all ones.
func lastWord() Mem {
	if lastWordTable == nil {
		m := GLOBL("lastWord", RODATA|NOPTR)
		for i := range 16 {
			v := U32(0)
			if i == 7 {
				v = 0xffff0000
			}
			DATA(4*i, v)
		}
		lastWordTable = &m
	}
	return *lastWordTable
}

// elementsPart loads a part of the elements at base as float32; the others are 0, and not
// touched in memory.
func (s set) elementsPart(p part, base reg.GPVirtual, l line) {
	switch {
	case p.e == wide:
		s.loadPart(Mem{Base: base}, p.mask, l)
	case s.regs == 1:
		VPMOVZXWD_Z(Mem{Base: base}, p.mask.k, l[0])
		VPSLLD(Imm(16), l[0], l[0])
	default: // s.splits(p.e)
		low, high := l[0], l[1]
		VPMASKMOVD(Mem{Base: base}, p.mask.vec[0], low)
		VPBROADCASTW(Mem{Base: base, Index: p.last, Scale: 1}, high)
		VPAND(p.lastMask, high, high)
		VPOR(high, low, low)
		VEXTRACTI128(Imm(1), low, high.AsX())
		VPMOVZXWD(high.AsX(), high)
		VPSLLD(Imm(16), high, high)
		VPMOVZXWD(low.AsX(), low)
		VPSLLD(Imm(16), low, low)
	}
}
