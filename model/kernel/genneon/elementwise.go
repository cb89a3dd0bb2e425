package main

import "fmt"

// The loops over single floats go line by line: 16 floats in four registers, and whole
// lines only. What is left over at the end of a row, the caller pads to a line.
//
// line is the registers of a line, or half of them where a loop needs many lines.
type line []vec

// lines deals out registers, a line at a time.
type lines struct {
	each int // registers of a line
	next vec
}

func (l *lines) line() line {
	v := vectors(l.next, l.each)
	l.next += vec(l.each)
	return v
}

// one is a single register.
func (l *lines) one() vec {
	l.next++
	return l.next - 1
}

// each writes d = n op m for all registers of a line; n and m are lines or one register.
func (a *assembly) each(op three, d line, n, m any) {
	of := func(x any, i int) vec {
		if l, ok := x.(line); ok {
			return l[i]
		}
		return x.(vec)
	}
	for i, v := range d {
		a.do(op, v, of(n, i), of(m, i))
	}
}

// fill sets all registers of a line to a constant.
func (a *assembly) fill(l line, constant string) {
	for i := 0; i < len(l); i += 2 {
		a.load(rTable, a.constant(constant), l[i:i+2]...)
	}
}

// whole sets one register to a constant.
func (a *assembly) whole(constant string, v vec) { a.load(rTable, a.constant(constant), v) }

const (
	rLines gp = 0
	rX     gp = 1
	rDst   gp = 2
	rTable gp = 24 // the constants
)

// softmax writes the passes over scores: the largest, and the exponentials with their sum.
func (a *assembly) softmax() {
	a.begin("mostNEON", "replaces most[i] by the largest of itself and x[16j+i], over n lines.", "n int, x, most *float32", "")
	a.pass("most", func(x, most line) { a.each(fmax, most, most, x) })

	l := &lines{each: 4}
	a.begin("expSumNEON", "replaces x[16j+i] by exp(x[16j+i] - top) and adds that to sums[i], over n lines.", "n int, x *float32, top float32, sums *float32", "")
	e, x, sums, top := a.newExp(l), l.line(), l.line(), l.one()
	a.argument("n", rLines)
	a.argument("x", rX)
	a.argument("sums", rDst)
	a.op("MOVD", "$constants<>(SB)", rTable)
	a.everywhere("top", top)
	a.load(rDst, 0, sums...)
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		a.each(fsub, x, x, top)
		e.emit(x)
		a.store(rX, 0, x...)
		a.each(fadd, sums, sums, x)
		a.op("ADD", imm(64), rX)
	})
	a.store(rDst, 0, sums...)
	a.end()
}

// pass writes a loop that gathers from lines at x in a line of results.
func (a *assembly) pass(results string, body func(x, gathered line)) {
	gathered, x := line(vectors(0, 4)), line(vectors(4, 4))
	a.argument("n", rLines)
	a.argument("x", rX)
	a.argument(results, rDst)
	a.load(rDst, 0, gathered...)
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		a.op("ADD", imm(64), rX)
		body(x, gathered)
	})
	a.store(rDst, 0, gathered...)
	a.end()
}

// norm writes the three passes of a layer norm.
func (a *assembly) norm() {
	a.begin("sumNEON", "adds x[16j+i] to sums[i], over n lines.", "n int, x, sums *float32", "")
	a.pass("sums", func(x, sums line) { a.each(fadd, sums, sums, x) })

	a.begin("squaresNEON", "adds the square of x[16j+i] - mean to sums[i], over n lines.", "n int, x *float32, mean float32, sums *float32", "")
	const mean = vec(8)
	a.everywhere("mean", mean)
	a.pass("sums", func(x, sums line) {
		a.each(fsub, x, x, mean)
		a.each(fmla, sums, x, x)
	})

	a.begin("normNEON", "computes dst = (x-mean)*inv*gain + bias, over n lines.", "n int, dst, x, gain, bias *float32, mean, inv float32", "")
	const rGain, rBias gp = 3, 4
	l := &lines{each: 4}
	x, gain, bias, m, inv := l.line(), l.line(), l.line(), l.one(), l.one()
	a.argument("n", rLines)
	a.argument("dst", rDst)
	a.argument("x", rX)
	a.argument("gain", rGain)
	a.argument("bias", rBias)
	a.everywhere("mean", m)
	a.everywhere("inv", inv)
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		a.load(rGain, 0, gain...)
		a.load(rBias, 0, bias...)
		a.each(fsub, x, x, m)
		a.each(fmul, x, x, inv)
		a.each(fmla, bias, x, gain)
		a.store(rDst, 0, bias...)
		for _, r := range []gp{rX, rGain, rBias, rDst} {
			a.op("ADD", imm(64), r)
		}
	})
	a.end()
}

func (a *assembly) add() {
	a.begin("addNEON", "computes dst += src, over n lines.", "n int, dst, src *float32", "")
	l := &lines{each: 4}
	dst, src := l.line(), l.line()
	a.argument("n", rLines)
	a.argument("dst", rDst)
	a.argument("src", rX)
	a.countdown(rLines, func() {
		a.load(rDst, 0, dst...)
		a.load(rX, 0, src...)
		a.each(fadd, dst, dst, src)
		a.store(rDst, 0, dst...)
		a.op("ADD", imm(64), rX)
		a.op("ADD", imm(64), rDst)
	})
	a.end()
}

func (a *assembly) scale() {
	a.begin("scaleNEON", "computes x *= f, over n lines.", "n int, x *float32, f float32", "")
	l := &lines{each: 4}
	x, f := l.line(), l.one()
	a.argument("n", rLines)
	a.argument("x", rX)
	a.everywhere("f", f)
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		a.each(fmul, x, x, f)
		a.store(rX, 0, x...)
		a.op("ADD", imm(64), rX)
	})
	a.end()
}

// round writes the loop that rounds float32 to bfloat16, to nearest, ties to even. Adding
// just under half of the last place kept, and that place's own bit, carries where
// rounding does; a NaN keeps its upper half and becomes quiet.
func (a *assembly) round() {
	a.begin("roundNEON", "computes dst = src rounded to bfloat16, over n lines.", "n int, dst *uint16, src *float32", "")
	l := &lines{each: 4}
	x, t, number, one, half, quiet := l.line(), l.line(), l.line(), l.one(), l.one(), l.one()
	a.argument("n", rLines)
	a.argument("dst", rDst)
	a.argument("src", rX)
	for _, w := range []struct {
		v    vec
		bits int
	}{{one, 1}, {half, 0x7fff}, {quiet, 0x400000}} {
		a.op("MOVD", imm(w.bits), rTable)
		a.op("VDUP", rTable, fmt.Sprintf("%v.S4", w.v))
	}
	words := func(name string, n, m, d vec) {
		a.op(name, fmt.Sprintf("%v.S4", n), fmt.Sprintf("%v.S4", m), fmt.Sprintf("%v.S4", d))
	}
	bytes := func(name string, n, m, d vec) {
		a.op(name, fmt.Sprintf("%v.B16", n), fmt.Sprintf("%v.B16", m), fmt.Sprintf("%v.B16", d))
	}
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		a.each(fcmeq, number, x, x)
		for i, v := range x {
			a.op("VUSHR", imm(16), fmt.Sprintf("%v.S4", v), fmt.Sprintf("%v.S4", t[i]))
			bytes("VAND", one, t[i], t[i])
			words("VADD", half, t[i], t[i])
			words("VADD", v, t[i], t[i])
			bytes("VORR", quiet, v, v)
			bytes("VBIT", number[i], t[i], v) // t where it is a number
		}
		// The upper halves of the words of two registers.
		for i := 0; i < len(x); i += 2 {
			a.op("VUZP2", fmt.Sprintf("%v.H8", x[i+1]), fmt.Sprintf("%v.H8", x[i]), fmt.Sprintf("%v.H8", t[i/2]))
		}
		a.store(rDst, 0, t[:2]...)
		a.op("ADD", imm(64), rX)
		a.op("ADD", imm(32), rDst)
	})
	a.end()
}
