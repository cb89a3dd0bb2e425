package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panels writes the matrix loops: for every number of rows up to the most whose results
// fit the registers, and for panels of one, two and three lines.
func (s set) panels() {
	if s.regs == 1 {
		for rows := 1; rows <= 9; rows++ {
			for lines := 1; lines <= 3; lines++ {
				s.panel(rows, lines)
			}
		}
		return
	}
	for rows := 1; rows <= 6; rows++ {
		s.panel(rows, 1)
	}
	for rows := 1; rows <= 2; rows++ {
		s.panel(rows, 3)
	}
}

// panel is rows x 16*lines results in registers, one chain over k each. Few rows stream
// the weights, and look further ahead for them.
func (s set) panel(rows, lines int) {
	name := label("panel%dx%d", rows, 16*lines)
	s.begin(name, label("computes c[r*ldc+j] = start[r*lds+j] + sum over i < k of a[r*lda+i]*b[i*ldb+j] for %d rows and %d columns.", rows, 16*lines),
		"func(k int, a *float32, lda int, b *float32, ldb int, start *float32, lds int, c *float32, ldc int)")
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
	k := load64("k")
	lda := loadBytes("lda")
	a := newRows(load64("a"), lda, rows)
	b, ldb := load64("b"), loadBytes("ldb")
	ahead := 1024 * lines
	if rows <= 2 {
		ahead = 2048
	}
	loop := name + "_loop" + s.name
	Label(loop)
	for j := range lines {
		PREFETCHT0(Mem{Base: b, Disp: ahead + 64*j})
	}
	var bv []line
	if rows > 1 && lines*s.regs*rows+lines*s.regs < 32/s.regs {
		for j := range lines {
			l := s.line()
			s.load(Mem{Base: b, Disp: 64 * j}, l)
			bv = append(bv, l)
		}
	}
	if bv != nil {
		for r := range acc {
			av := s.reg()
			VBROADCASTSS(a.at(r), av)
			for j := range lines {
				for i := range s.regs {
					VFMADD231PS(bv[j][i], av, acc[r][j][i])
				}
			}
		}
	} else {
		var av []reg.VecVirtual
		for r := range acc {
			v := s.reg()
			VBROADCASTSS(a.at(r), v)
			av = append(av, v)
		}
		for j := range lines {
			for i := range s.regs {
				m := s.at(Mem{Base: b, Disp: 64 * j}, i)
				if rows == 1 {
					VFMADD231PS(m, av[0], acc[0][j][i])
					continue
				}
				v := s.reg()
				VMOVUPS(m, v)
				for r := range acc {
					VFMADD231PS(v, av[r], acc[r][j][i])
				}
			}
		}
	}
	a.advance(4)
	ADDQ(ldb, b)
	DECQ(k)
	JNZ(ref(loop))
	c, ldc := load64("c"), loadBytes("ldc")
	for r := range acc {
		for j := range lines {
			s.store(acc[r][j], Mem{Base: c, Disp: 64 * j})
		}
		ADDQ(ldc, c)
	}
	end()
}
