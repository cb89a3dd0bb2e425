package main

import "fmt"

// format is how the weights of a panel lie in memory, and the products of n k with them.
type format struct {
	name, elem, doc string
	shift           int // of a column's distance from one pass to the next, in bytes
	pairs           bool
	steps           func(p *product) func(n int)
}

var formats = []format{
	{"", "float32", "b[i*ldb+j]", 2, false, wholeSteps},
	{"F16", "uint16", "b[i*ldb+j], a half, widened", 1, false, halfSteps},
	{"BF16", "uint16", "b[(i/2*ldb+j)*2+i%2], a bfloat16, widened", 2, true, pairSteps},
}

// panels writes the matrix loops: 16 columns for every number of rows that has room, and
// all 48 of a panel for one and two rows, which reads each weight once and has as many
// chains as hide the latency of a multiplication.
func (a *assembly) panels() {
	for _, f := range formats {
		for rows := 1; rows <= mostRows; rows++ {
			a.panel(f, rows, 16)
		}
		for rows := 1; rows <= 2; rows++ {
			a.panel(f, rows, 48)
		}
	}
}

func (a *assembly) panel(f format, rows, columns int) {
	a.begin(fmt.Sprintf("panel%s%dx%dNEON", f.name, rows, columns),
		fmt.Sprintf("computes c[r*ldc+j] = start[r*lds+j] + sum over i < k of a[r*lda+i]*%s, for %d rows and %d columns.", f.doc, rows, columns),
		fmt.Sprintf("k int, a *float32, lda int, b *%s, ldb int, start *float32, lds int, c *float32, ldc int", f.elem), "")
	p := a.product(rows, columns/4)
	p.eachRow("start", "lds", func(row []vec) { p.load(rPoint, 0, row...) })
	p.rows("a", "lda")
	p.argument("b", rB)
	p.distance("ldb", f.shift, rLdb)
	p.run("k", f.pairs, f.steps(p))
	p.eachRow("c", "ldc", func(row []vec) { p.store(rPoint, 0, row...) })
	a.end()
}

// wholeSteps are those of columns of float32 without gaps.
func wholeSteps(p *product) func(n int) {
	return func(n int) {
		for k := range n {
			for j := 0; j < len(p.results[0]); j += 2 {
				w := p.take(2)
				p.load(rB, 16*j, w...)
				p.multiply(w[0], j, k)
				p.multiply(w[1], j+1, k)
			}
			p.advance()
		}
	}
}

func halfSteps(p *product) func(n int) {
	return func(n int) {
		for k := range n {
			for j := 0; j < len(p.results[0]); j += 2 {
				w := p.take(2)
				p.load(rB, 8*j, w[1])
				p.fcvtl(w[0], w[1])
				p.fcvtl2(w[1], w[1])
				p.multiply(w[0], j, k)
				p.multiply(w[1], j+1, k)
			}
			p.advance()
		}
	}
}

// pairSteps widens pairs of bfloat16, which are words of 32 bits: the even k in the lower
// half, the odd one in the upper. Where there is no register left beside the mask, the
// words are read twice.
func pairSteps(p *product) func(n int) {
	upper := p.keep()
	p.op("MOVD", "$0xffff0000", rPoint)
	p.op("VDUP", rPoint, fmt.Sprintf("%v.S4", upper))
	return func(n int) {
		for k := 0; k < n; k += 2 {
			for j := range p.results[0] {
				even, odd := p.free[0], p.free[0]
				if len(p.free) > 1 {
					w := p.take(2)
					even, odd = w[0], w[1]
				}
				p.load(rB, 16*j, odd)
				p.op("VSHL", imm(16), fmt.Sprintf("%v.S4", odd), fmt.Sprintf("%v.S4", even))
				p.multiply(even, j, k)
				if k+1 == n {
					continue
				}
				if even == odd {
					p.load(rB, 16*j, odd)
				}
				p.op("VAND", fmt.Sprintf("%v.B16", upper), fmt.Sprintf("%v.B16", odd), fmt.Sprintf("%v.B16", odd))
				p.multiply(odd, j, k+1)
			}
			p.advance()
		}
	}
}
