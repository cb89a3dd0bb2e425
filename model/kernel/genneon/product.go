package main

import "fmt"

// The general registers of the loops that multiply rows with columns.
const (
	rK      gp = 0 // how many k
	rA      gp = 1 // the rows' factors, one register a row: R1 to R6
	rB      gp = 7 // the columns of the next k
	rLdb    gp = 8 // from one k to the next, in bytes
	rAt     gp = 9 // how far into the rows, in bytes
	rPoint  gp = 10
	rStride gp = 11
	rColumn gp = 12 // where the columns of each vector start, in bytes: R12 to R15
	rFours  gp = 19 // how many times four k
	rHalf   gp = 20 // rColumn for columns of 16 bits: R20 to R23
)

// mostRows is how many rows of 16 columns have room: 24 registers of results, six of
// factors, and two through which the columns go.
const mostRows = 6

// product is a loop that multiplies rows with columns: results stay in registers, one
// chain over k each. A row's factors come four k at a time, so that a load serves four
// multiplications by lane. The columns are read where they are used: a processor that
// renames registers has no need of more than two for them.
type product struct {
	*assembly
	results [][]vec // [row][vector of four columns]
	factors []vec   // of each row, four k
	free    []vec
	next    int // of free
}

func (a *assembly) product(rows, fours int) *product {
	p := &product{assembly: a}
	used := vec(0)
	for range rows {
		p.results = append(p.results, vectors(used, fours))
		used += vec(fours)
	}
	p.factors = vectors(used, rows)
	used += vec(rows)
	p.free = vectors(used, 32-int(used))
	return p
}

// take returns n registers to load columns to, the longest unused.
func (p *product) take(n int) []vec {
	taken := make([]vec, n)
	for i := range taken {
		taken[i] = p.free[p.next%len(p.free)]
		p.next++
	}
	return taken
}

// keep takes a register out of use by take.
func (p *product) keep() vec {
	last := len(p.free) - 1
	v := p.free[last]
	p.free = p.free[:last]
	return v
}

// multiply adds the products of one vector of columns with a k of all rows.
func (p *product) multiply(columns vec, vector, k int) {
	for r := range p.results {
		p.fmlaLane(p.results[r][vector], columns, p.factors[r], k)
	}
}

// rows points a register to each row of factors.
func (p *product) rows(base, distance string) {
	p.argument(base, rA)
	if len(p.results) > 1 {
		p.distance(distance, 2, rStride)
	}
	for r := 1; r < len(p.results); r++ {
		p.op("ADD", rStride, rA+gp(r)-1, rA+gp(r))
	}
}

// run goes over all k. steps writes the products of n k with lanes 0 to n-1 of the
// factors, of two at a time where columns lie in pairs.
func (p *product) run(k string, pairs bool, steps func(n int)) {
	p.argument(k, rK)
	p.op("MOVD", imm(0), rAt)
	tail, odd, done := p.newLabel("tail"), p.newLabel("odd"), p.newLabel("done")
	some := func(n int) {
		for r, v := range p.factors {
			switch row := rA + gp(r); n {
			case 4:
				p.loadAt(row, rAt, v)
			case 2:
				p.op("FMOVD", fmt.Sprintf("(%v)(%v)", row, rAt), v.float())
			default:
				p.op("FMOVS", fmt.Sprintf("(%v)(%v)", row, rAt), v.float())
			}
		}
		p.op("ADD", imm(4*n), rAt)
		steps(n)
	}
	p.op("LSR", imm(2), rK, rFours)
	p.op("CBZ", rFours, tail)
	p.countdown(rFours, func() { some(4) })
	p.label(tail)
	if pairs {
		p.op("TBZ", imm(1), rK, odd)
		some(2)
		p.label(odd)
		p.op("TBZ", imm(0), rK, done)
		some(1)
	} else {
		p.op("ANDS", imm(3), rK)
		p.op("BEQ", done)
		p.countdown(rK, func() { some(1) })
	}
	p.label(done)
}

// eachRow moves the results of each row from or to base.
func (p *product) eachRow(base, distance string, move func(row []vec)) {
	p.argument(base, rPoint)
	if len(p.results) > 1 {
		p.distance(distance, 2, rStride)
	}
	for r, row := range p.results {
		if r > 0 {
			p.op("ADD", rStride, rPoint)
		}
		move(row)
	}
}

// advance goes to the columns of the next k.
func (p *product) advance() { p.op("ADD", rLdb, rB) }
