package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is how the weights of a panel lie in memory.
type format struct {
	name  string // in the names of the loops
	elem  string // the Go type of a weight
	doc   string
	steps int // k of one pass of the loop: the weights of a pair lie side by side
	bytes int // of a line's weights in one pass
}

var (
	float32s  = format{"", "float32", "b[i*ldb+j]", 1, 64}
	float16s  = format{"F16", "uint16", "b[i*ldb+j], a half, widened", 1, 32}
	bfloat16s = format{"BF16", "uint16", "b[(i/2*ldb+j)*2+i%2], a bfloat16, widened", 2, 64}
)

// panels writes the matrix loops: for every number of rows up to the most whose results
// fit the registers, and for panels of one, two and three lines. Formats of 16 bits have
// none of two lines, which a matrix needs for its last panel at most.
func (s set) panels() {
	for _, f := range []format{float32s, float16s, bfloat16s} {
		if s.regs == 1 {
			for rows := 1; rows <= 9; rows++ {
				s.panel(rows, 1, f)
				if f == float32s {
					s.panel(rows, 2, f)
				}
				s.panel(rows, 3, f)
			}
			continue
		}
		for rows := 1; rows <= 6; rows++ {
			s.panel(rows, 1, f)
		}
		for rows := 1; rows <= 2; rows++ {
			s.panel(rows, 3, f)
		}
	}
}

// panel is rows x 16*lines results in registers, one chain over k each.
func (s set) panel(rows, lines int, f format) {
	name := label("panel%s%dx%d", f.name, rows, 16*lines)
	s.begin(name, label("computes c[r*ldc+j] = start[r*lds+j] + sum over i < k of a[r*lda+i]*%s, for %d rows and %d columns.", f.doc, rows, 16*lines),
		label("func(k int, a *float32, lda int, b *%s, ldb int, start *float32, lds int, c *float32, ldc int)", f.elem))
	acc := s.start(rows, lines)
	k := load64("k")
	a := newRows(load64("a"), loadBytes("lda"), rows)
	b, ldb := load64("b"), load64("ldb")
	SHLQ(Imm(uint64(log2(f.bytes/16))), ldb)
	var high reg.VecVirtual
	odd, done := name+"_odd"+s.name, name+"_done"+s.name
	if f.steps == 2 {
		high = s.highHalves()
		SUBQ(imm(2), k)
		JL(ref(odd))
	}
	loop := name + "_loop" + s.name
	Label(loop)
	for at := 0; at < f.bytes*lines; at += 64 {
		prefetch(rows, lines, false, Mem{Base: b, Disp: at})
	}
	for step := range f.steps {
		s.panelStep(f, step, a, b, high, acc)
	}
	a.advance(int32(4 * f.steps))
	ADDQ(ldb, b)
	if f.steps == 1 {
		DECQ(k)
		JNZ(ref(loop))
	} else {
		SUBQ(imm(2), k)
		JGE(ref(loop))
		Label(odd)
		ADDQ(imm(2), k)
		JZ(ref(done))
		s.panelStep(f, 0, a, b, high, acc)
		Label(done)
	}
	s.finish(acc)
}

// start loads the results that the chains continue.
func (s set) start(rows, lines int) [][]line {
	acc := make([][]line, rows)
	start, lds := load64("start"), loadBytes("lds")
	for r := range acc {
		for j := range lines {
			l := s.line()
			s.load(Mem{Base: start, Disp: 64 * j}, l)
			acc[r] = append(acc[r], l)
		}
		ADDQ(lds, start)
	}
	return acc
}

// finish stores the results and returns.
func (s set) finish(acc [][]line) {
	c, ldc := load64("c"), loadBytes("ldc")
	for r := range acc {
		for j, l := range acc[r] {
			s.store(l, Mem{Base: c, Disp: 64 * j})
		}
		ADDQ(ldc, c)
	}
	end()
}

// prefetch asks for the weights that come some way behind m, as measured to be best. One
// row reads faster than memory delivers, and each weight once: past the second-level cache
// is the way. Many rows multiply for longer than the hardware looks ahead, and come back
// for the panel. In between the hardware alone is fastest, and with pairs for one row too.
func prefetch(rows, lines int, pairs bool, m Mem) {
	switch {
	case rows == 1 && !pairs:
		PREFETCHNTA(m.Offset(4096))
	case rows >= 6:
		PREFETCHT1(m.Offset(2048 * lines))
	}
}

// panelStep adds the products of one k to all results.
func (s set) panelStep(f format, step int, a rowsOf, b reg.GPVirtual, high reg.VecVirtual, acc [][]line) {
	rows, lines := len(acc), len(acc[0])
	at := func(j int) Mem { return Mem{Base: b, Disp: f.bytes * j} }
	factor := func(r int) reg.VecVirtual {
		v := s.reg()
		VBROADCASTSS(a.at(r).Offset(4*step), v)
		return v
	}
	if s.regs == 1 && lines == 1 && rows > 1 {
		v := s.reg()
		s.weights(f, step, at(0), 0, high, v)
		for r := range acc {
			VFMADD231PS_BCST(a.at(r).Offset(4*step), v, acc[r][0][0]) // see weigh
		}
		return
	}
	if rows > 1 && lines*s.regs*rows+lines*s.regs < 32/s.regs {
		var bv []line
		for j := range lines {
			l := s.line()
			for i := range l {
				s.weights(f, step, at(j), i, high, l[i])
			}
			bv = append(bv, l)
		}
		for r := range acc {
			av := factor(r)
			for j := range lines {
				for i := range s.regs {
					VFMADD231PS(bv[j][i], av, acc[r][j][i])
				}
			}
		}
		return
	}
	var av []reg.VecVirtual
	for r := range acc {
		av = append(av, factor(r))
	}
	for j := range lines {
		for i := range s.regs {
			if rows == 1 && f == float32s {
				VFMADD231PS(s.at(at(j), i), av[0], acc[0][j][i])
				continue
			}
			v := s.reg()
			s.weights(f, step, at(j), i, high, v)
			for r := range acc {
				VFMADD231PS(v, av[r], acc[r][j][i])
			}
		}
	}
}

// weights loads register i of the line of weights at m, as float32. Of a pair, step 0 is
// the low half of each word and step 1 the high one, which high selects.
func (s set) weights(f format, step int, m Mem, i int, high, r reg.VecVirtual) {
	switch {
	case f == float32s:
		VMOVUPS(s.at(m, i), r)
	case f == float16s:
		VCVTPH2PS(m.Offset(i*s.width()/2), r)
	case step == 1 && s.regs == 1:
		VPANDD(s.at(m, i), high, r)
	case step == 1:
		VPAND(s.at(m, i), high, r)
	case s.regs == 1:
		VPSLLD(Imm(16), s.at(m, i), r)
	default:
		VMOVDQU(s.at(m, i), r)
		VPSLLD(Imm(16), r, r)
	}
}

// highHalves is a register of 0xffff0000.
func (s set) highHalves() reg.VecVirtual {
	r := s.reg()
	word, x := GP32(), XMM()
	MOVL(U32(0xffff0000), word)
	VMOVD(word, x)
	VPBROADCASTD(x, r)
	return r
}

// pairs writes the matrix loops that multiply pairs of bfloat16 with pairs of bfloat16.
func (s set) pairs() {
	for rows := 1; rows <= 9; rows++ {
		for _, lines := range []int{1, 3} {
			s.pairsPanel(rows, lines)
		}
	}
}

func (s set) pairsPanel(rows, lines int) {
	name := label("pairs%dx%d", rows, 16*lines)
	s.begin(name, label("computes c[r*ldc+j] = start[r*lds+j] + sum over i < k of a[r*lda+i]*b[(i/2*ldb+j)*2+i%%2], k even, odd i before even of each pair, for %d rows and %d columns.", rows, 16*lines),
		"func(k int, a *uint16, lda int, b *uint16, ldb int, start *float32, lds int, c *float32, ldc int)")
	acc := s.start(rows, lines)
	k, lda := load64("k"), load64("lda")
	SHLQ(Imm(1), lda)
	a := newRows(load64("a"), lda, rows)
	b, ldb := load64("b"), loadBytes("ldb")
	loop := name + "_loop" + s.name
	Label(loop)
	var bv []line
	for j := range lines {
		prefetch(rows, lines, true, Mem{Base: b, Disp: 64 * j})
		l := s.line()
		s.load(Mem{Base: b, Disp: 64 * j}, l)
		bv = append(bv, l)
	}
	for r := range acc {
		av := s.reg()
		VPBROADCASTD(a.at(r), av)
		for j := range lines {
			dotPairs(bv[j][0], av, acc[r][j][0])
		}
	}
	a.advance(4)
	ADDQ(ldb, b)
	SUBQ(imm(2), k)
	JNZ(ref(loop))
	s.finish(acc)
}

func log2(n int) int {
	l := 0
	for ; n > 1; n /= 2 {
		l++
	}
	return l
}
