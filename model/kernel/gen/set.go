package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// set is an instruction set. A line is 16 floats, 64 bytes: one register of AVX-512,
// two of AVX2. Loops are written in lines, so reductions keep 16 partial sums in both.
type set struct {
	name string
	regs int // registers of a line
}

var (
	avx512 = set{"AVX512", 1}
	avx2   = set{"AVX2", 2}
)

// line is 16 floats in registers.
type line []reg.VecVirtual

// mask selects the first n floats of a line.
type mask struct {
	k   reg.OpmaskVirtual // AVX-512
	vec line              // AVX2
}

func imm(n int32) Op            { return I32(n) }
func ref(label string) LabelRef { return LabelRef(label) }

// width is the bytes of one register.
func (s set) width() int { return 64 / s.regs }

func (s set) reg() reg.VecVirtual {
	if s.regs == 1 {
		return ZMM()
	}
	return YMM()
}

func (s set) line() line {
	l := line{}
	for range s.regs {
		l = append(l, s.reg())
	}
	return l
}

func (s set) zero(l line) {
	for _, r := range l {
		if s.regs == 1 {
			VPXORD(r, r, r)
		} else {
			VPXOR(r, r, r)
		}
	}
}

// at is register i of the line at m.
func (s set) at(m Mem, i int) Mem { return m.Offset(i * s.width()) }

func (s set) load(m Mem, l line) {
	for i, r := range l {
		VMOVUPS(s.at(m, i), r)
	}
}

func (s set) store(l line, m Mem) {
	for i, r := range l {
		VMOVUPS(r, s.at(m, i))
	}
}

// loadPart loads the floats that k selects; the others are 0, and not touched in
// memory.
func (s set) loadPart(m Mem, k mask, l line) {
	for i, r := range l {
		s.loadPartRegister(m, k, i, r)
	}
}

// loadPartRegister loads register i of the part of a line.
func (s set) loadPartRegister(m Mem, k mask, i int, r reg.VecVirtual) {
	if s.regs == 1 {
		VMOVUPS_Z(m, k.k, r)
	} else {
		VMASKMOVPS(s.at(m, i), k.vec[i], r)
	}
}

func (s set) storePart(l line, k mask, m Mem) {
	for i, r := range l {
		if s.regs == 1 {
			VMOVUPS(r, k.k, m)
		} else {
			VMASKMOVPS(r, k.vec[i], s.at(m, i))
		}
	}
}

// clearRest sets the floats of l that k does not select to 0.
func (s set) clearRest(k mask, l line) {
	for i, r := range l {
		if s.regs == 1 {
			VMOVAPS_Z(r, k.k, r)
		} else {
			VANDPS(k.vec[i], r, r)
		}
	}
}

// mask makes the mask of the first n floats, 0 <= n <= 16. It spends n.
func (s set) mask(n reg.GPVirtual) mask {
	if s.regs == 1 {
		one := GP64()
		MOVQ(imm(1), one)
		SHLXQ(n, one, one)
		DECQ(one)
		k := K()
		KMOVW(one.As32(), k)
		return mask{k: k}
	}
	table := GP64()
	LEAQ(masks(), table)
	NEGQ(n)
	m := Mem{Base: table, Index: n, Scale: 4, Disp: 64}
	l := s.line()
	s.load(m, l)
	return mask{vec: l}
}

var maskTable *Mem

// masks is 16 words of ones, then 16 of zeros.
func masks() Mem {
	if maskTable == nil {
		m := GLOBL("masks", RODATA|NOPTR)
		for i := range 32 {
			v := U32(0)
			if i < 16 {
				v = 0xffffffff
			}
			DATA(4*i, v)
		}
		maskTable = &m
	}
	return *maskTable
}

// begin starts the function name+set.
func (s set) begin(name, doc, signature string) {
	TEXT(name+s.name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(name + s.name + " " + doc)
}

// end ends a function. The upper halves are cleared, since SSE code after them would be
// slow.
func end() {
	VZEROUPPER()
	RET()
}

func load64(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// loadBytes loads a count of floats as a distance in bytes.
func loadBytes(name string) reg.GPVirtual {
	r := load64(name)
	SHLQ(Imm(2), r)
	return r
}

// broadcast loads a scalar parameter into every float of a register.
func (s set) broadcast(name string) reg.VecVirtual {
	r := s.reg()
	VBROADCASTSS(must(Param(name).Resolve()).Addr, r)
	return r
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// rowsOf addresses rows at a distance of ld bytes from base: one base register per
// three rows.
type rowsOf struct {
	bases []reg.GPVirtual
	ld    reg.GPVirtual
}

func newRows(base, ld reg.GPVirtual, rows int) rowsOf {
	r := rowsOf{[]reg.GPVirtual{base}, ld}
	for i := 1; i < (rows+2)/3; i++ {
		b := GP64()
		LEAQ(Mem{Base: r.bases[i-1], Index: ld, Scale: 2}, b)
		ADDQ(ld, b)
		r.bases = append(r.bases, b)
	}
	return r
}

func (r rowsOf) at(i int) Mem {
	m := Mem{Base: r.bases[i/3]}
	if i%3 > 0 {
		m.Index, m.Scale = r.ld, uint8(i%3)
	}
	return m
}

func (r rowsOf) advance(bytes int32) {
	for _, b := range r.bases {
		ADDQ(imm(bytes), b)
	}
}

// lines runs body over n floats at pointers, line by line, then over the rest, for
// which k selects the floats there are. n is spent and the pointers advance.
func (s set) lines(label string, n reg.GPVirtual, pointers []reg.GPVirtual, body func(k *mask)) {
	rest, done := label+"_rest"+s.name, label+"_done"+s.name
	loop := label + "_loop" + s.name
	SUBQ(imm(16), n)
	JL(ref(rest))
	Label(loop)
	body(nil)
	for _, p := range pointers {
		ADDQ(imm(64), p)
	}
	SUBQ(imm(16), n)
	JGE(ref(loop))
	Label(rest)
	ADDQ(imm(16), n)
	JZ(ref(done))
	k := s.mask(n)
	body(&k)
	Label(done)
}

// get loads a line or the part of it that k selects.
func (s set) get(m Mem, k *mask, l line) {
	if k == nil {
		s.load(m, l)
	} else {
		s.loadPart(m, *k, l)
	}
}

func (s set) put(l line, k *mask, m Mem) {
	if k == nil {
		s.store(l, m)
	} else {
		s.storePart(l, *k, m)
	}
}

// fold reduces a line to a float in the lowest place: halves onto halves.
func (s set) fold(l line, op func(a, b, dst Op)) reg.VecVirtual {
	var y reg.VecVirtual
	if s.regs == 1 {
		y = YMM()
		VEXTRACTF64X4(Imm(1), l[0], y)
		op(y, l[0].AsY(), y)
	} else {
		y = l[0]
		op(l[1], y, y)
	}
	x, z := YMM(), YMM()
	VEXTRACTF128(Imm(1), y, x.AsX())
	op(x.AsX(), y.AsX(), x.AsX())
	VMOVHLPS(x.AsX(), x.AsX(), z.AsX())
	op(z.AsX(), x.AsX(), x.AsX())
	VMOVSHDUP(x.AsX(), z.AsX())
	op(z.AsX(), x.AsX(), x.AsX())
	return x
}

func addPS(a, b, dst Op) { VADDPS(a, b, dst) }
func maxPS(a, b, dst Op) { VMAXPS(a, b, dst) }

func label(format string, args ...any) string { return fmt.Sprintf(format, args...) }
