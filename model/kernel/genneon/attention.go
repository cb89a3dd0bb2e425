package main

import "fmt"

// element is the type of keys and values.
type element struct {
	name, goType, doc string
	shift             int // of a count, for bytes
}

var (
	float32s  = element{"", "float32", "", 2}
	bfloat16s = element{"BF16", "uint16", ", a bfloat16, widened,", 1}
)

// scores writes the loops of queries with 4 to 16 keys, and with one. Keys lie transposed,
// so these are products of the queries with columns of keys.
func (a *assembly) scores(e element) {
	for rows := 1; rows <= mostRows; rows++ {
		for _, columns := range []int{16, 1} {
			doc, n := "t < n, 4 <= n <= 16", ", n int"
			if columns == 1 {
				doc, n = "t = 0", ""
			}
			a.begin(fmt.Sprintf("scores%s%dx%dNEON", e.name, rows, columns),
				fmt.Sprintf("computes out[r*ldo+t] = scale * sum over i < dim of q[r*ldq+i]*keys[i*ldk+t]%s for %d rows and %s.", e.doc, rows, doc),
				fmt.Sprintf("dim int, q *float32, ldq int, keys *%s, ldk int%s, scale float32, out *float32, ldo int", e.goType, n), "")
			p := a.product(rows, (columns+3)/4)
			for _, row := range p.results {
				p.zero(row...)
			}
			if columns == 16 {
				p.columns(e, "n")
			}
			p.rows("q", "ldq")
			p.argument("keys", rB)
			p.distance("ldk", e.shift, rLdb)
			p.run("dim", false, e.steps(p, columns))
			scale := p.take(1)[0]
			p.float("scale", scale)
			p.eachRow("out", "ldo", func(row []vec) {
				for _, v := range row {
					p.fmulLane(v, v, scale, 0)
				}
				p.storeColumns(row, columns)
			})
			a.end()
		}
	}
}

// values writes the loops that weigh values: 4 to 16 columns, one column, and for one row
// 64 columns, as many chains as hide the latency of a multiplication.
func (a *assembly) values(e element) {
	for rows := 1; rows <= mostRows; rows++ {
		a.valuesOf(e, rows, 16)
		a.valuesOf(e, rows, 1)
	}
	a.valuesOf(e, 1, 64)
}

func (a *assembly) valuesOf(e element, rows, columns int) {
	doc, cols := "j < cols, 4 <= cols <= 16", ", cols int"
	switch columns {
	case 64:
		doc, cols = "64 columns", ""
	case 1:
		doc, cols = "j = 0", ""
	}
	a.begin(fmt.Sprintf("values%s%dx%dNEON", e.name, rows, columns),
		fmt.Sprintf("continues dst[r*ldd+j] += p[r*ldp+t]*v[t*ldv+j]%s over t < n for %d rows and %s.", e.doc, rows, doc),
		fmt.Sprintf("n int, p *float32, ldp int, v *%s, ldv int, dst *float32, ldd int%s", e.goType, cols), "")
	p := a.product(rows, (columns+3)/4)
	if columns == 16 {
		p.columns(e, "cols")
	}
	p.eachRow("dst", "ldd", func(row []vec) { p.loadColumns(row, columns) })
	p.rows("p", "ldp")
	p.argument("v", rB)
	p.distance("ldv", e.shift, rLdb)
	p.run("n", false, e.steps(p, columns))
	p.eachRow("dst", "ldd", func(row []vec) { p.storeColumns(row, columns) })
	a.end()
}

// columns computes where the four vectors of up to 16 columns start, in bytes of float32,
// and of bfloat16 if need be:
// vector i at column 4i, but no further than four from the end. So nothing past the end is
// touched, and columns that two vectors share are computed twice, to the same bits.
func (p *product) columns(e element, n string) {
	p.argument(n, rPoint)
	p.op("SUB", imm(4), rPoint)
	for i := range 4 {
		r := rColumn + gp(i)
		p.op("MOVD", imm(4*i), r)
		p.op("CMP", rPoint, r)
		p.op("CSEL", "LT", r, rPoint, r)
		if e == bfloat16s {
			p.op("LSL", imm(1), r, rHalf+gp(i))
		}
		p.op("LSL", imm(2), r)
	}
}

func (p *product) loadColumns(row []vec, columns int) {
	switch columns {
	case 1:
		p.op("FMOVS", at(rPoint, 0), row[0].float())
	case 16:
		for i, v := range row {
			p.loadAt(rPoint, rColumn+gp(i), v)
		}
	default:
		p.load(rPoint, 0, row...)
	}
}

func (p *product) storeColumns(row []vec, columns int) {
	switch columns {
	case 1:
		p.op("FMOVS", row[0].float(), at(rPoint, 0))
	case 16:
		for i, v := range row {
			p.storeAt(v, rPoint, rColumn+gp(i))
		}
	default:
		p.store(rPoint, 0, row...)
	}
}

// steps are the products of n k with a number of columns: 16 are those that columns
// placed, others lie side by side.
func (e element) steps(p *product, columns int) func(n int) {
	if columns > 16 && e == float32s {
		return wholeSteps(p)
	}
	return func(n int) {
		for k := range n {
			switch {
			case columns > 16:
				for j := 0; j < len(p.results[0]); j += 2 {
					w := p.take(2)
					p.load(rB, 8*j, w[1])
					p.shll(w[0], w[1])
					p.shll2(w[1], w[1])
					p.multiply(w[0], j, k)
					p.multiply(w[1], j+1, k)
				}
			case columns == 16:
				for j := range p.results[0] {
					w := p.take(1)[0]
					e.loadFour(p, j, w)
					p.multiply(w, j, k)
				}
			default:
				w := p.take(1)[0]
				e.loadOne(p, w)
				p.multiply(w, 0, k)
			}
			p.advance()
		}
	}
}

// loadFour loads four columns from where columns placed them.
func (e element) loadFour(p *product, vector int, w vec) {
	if e == float32s {
		p.loadAt(rB, rColumn+gp(vector), w)
		return
	}
	p.op("FMOVD", fmt.Sprintf("(%v)(%v)", rB, rHalf+gp(vector)), w.float())
	p.shll(w, w)
}

func (e element) loadOne(p *product, w vec) {
	if e == float32s {
		p.op("FMOVS", at(rB, 0), w.float())
		return
	}
	p.loadHalf(rB, w)
	p.shll(w, w)
}
