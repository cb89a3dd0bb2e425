package main

import "fmt"

// exp is the exponential of expScalar on lines.
type exp struct {
	*assembly
	zero                     vec
	c                        vec // whatever constant is multiplied with
	t, under, first, r, last line
}

func (a *assembly) newExp(l *lines) exp {
	e := exp{a, l.one(), l.one(), l.line(), l.line(), l.line(), l.line(), l.line()}
	a.zero(e.zero)
	return e
}

// emit replaces x by exp(x).
func (e exp) emit(x line) {
	c, n := e.c, e.first
	e.whole("expLow", c)
	e.each(fcmgt, e.under, c, x)
	e.each(fmax, x, x, c)
	e.whole("expHigh", c)
	e.each(fmin, x, x, c)
	e.fill(e.t, "round")
	e.whole("log2e", c)
	e.each(fmla, e.t, x, c)
	e.whole("round", c)
	e.each(fsub, n, e.t, c)
	for i := range x {
		e.op("VMOV", fmt.Sprintf("%v.B16", x[i]), fmt.Sprintf("%v.B16", e.r[i]))
	}
	e.whole("ln2High", c)
	e.each(fmls, e.r, n, c)
	e.whole("ln2Low", c)
	e.each(fmls, e.r, n, c)
	e.whole("p0", c)
	y, next := e.first, e.last
	e.polynomial(&y, &next, e.r, c, "p1", "p2", "p3", "p4", "p5")
	e.each(fmul, next, e.r, e.r)
	e.each(fmla, e.r, y, next)
	e.whole("one", c)
	e.each(fadd, y, e.r, c)
	for i := range x {
		t, v := fmt.Sprintf("%v.S4", e.t[i]), fmt.Sprintf("%v.S4", y[i])
		e.op("VSHL", imm(23), t, t)
		e.op("VADD", t, v, v)
	}
	e.each(fmla, y, x, e.zero) // NaN stays NaN
	e.each(bic, x, y, e.under)
}

// polynomial goes from y = first to y = y*x + constant for each constant. A constant is
// loaded to where the sum is made, so y and next change places.
func (a *assembly) polynomial(y, next *line, x line, first any, constants ...string) {
	for i, c := range constants {
		if i == 0 {
			a.fill(*y, c)
			a.each(fmla, *y, x, first)
			continue
		}
		a.fill(*next, c)
		a.each(fmla, *next, *y, x)
		*y, *next = *next, *y
	}
}

// elementwise opens a function over lines of floats at x, which counts half lines if the
// lines have half the registers.
func (a *assembly) elementwise(name, doc string, l *lines) {
	a.begin(name+"NEON", fmt.Sprintf(doc, 4*l.each), "n int, x *float32", "")
	a.argument("n", rLines)
	a.argument("x", rX)
	a.op("MOVD", "$constants<>(SB)", rTable)
}

// gelu writes x / (1 + exp(x(geluC0 + geluC1*x^2))).
func (a *assembly) gelu() {
	l := &lines{each: 4}
	a.elementwise("gelu", "replaces n times %d floats by their GELU, the tanh form.", l)
	e, x, u := a.newExp(l), l.line(), l.line()
	c := e.c
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		a.whole("geluLow", c)
		a.each(fmax, x, x, c)
		a.fill(u, "geluC0")
		a.each(fmul, e.t, x, x)
		a.whole("geluC1", c)
		a.each(fmla, u, e.t, c)
		a.each(fmul, u, u, x)
		e.emit(u)
		a.whole("one", c)
		a.each(fadd, u, u, c)
		a.each(fdiv, x, x, u)
		a.store(rX, 0, x...)
		a.op("ADD", imm(16*l.each), rX)
	})
	a.end()
}

// geluErf writes max(x, 0) - |x|*Phi(-|x|), half a line at a time.
func (a *assembly) geluErf() {
	l := &lines{each: 2}
	a.elementwise("geluErf", "replaces n times %d floats by their GELU, the exact form.", l)
	e, x, t, u, q, next := a.newExp(l), l.line(), l.line(), l.line(), l.line(), l.line()
	c := e.c
	a.countdown(rLines, func() {
		a.load(rX, 0, x...)
		for i := range x {
			a.fabs(t[i], x[i])
		}
		a.whole("erfHigh", c)
		a.each(fmin, t, t, c)
		a.fill(u, "one")
		a.whole("erfP", c)
		a.each(fmla, u, t, c)
		a.whole("one", c)
		a.each(fdiv, u, c, u)
		a.whole("a8", c)
		p, free := q, next
		a.polynomial(&p, &free, u, c, "a7", "a6", "a5", "a4", "a3", "a2", "a1", "a0")
		a.each(fmul, p, p, u)
		a.each(fmul, u, t, t)
		a.whole("minusHalf", c)
		a.each(fmul, u, u, c)
		e.emit(u)
		a.each(fmul, p, p, u)
		a.each(fmax, x, x, e.zero)
		a.each(fmls, x, t, p)
		a.store(rX, 0, x...)
		a.op("ADD", imm(16*l.each), rX)
	})
	a.end()
}
