package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// constants are lines of one float each in read-only memory. Their values are those of
// the scalar loops in activation.go; a test compares the bits of the results.
type constants struct {
	base    Mem
	offsets map[string]int
}

func newConstants() *constants {
	c := &constants{base: GLOBL("constants", RODATA|NOPTR), offsets: map[string]int{}}
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"minusInf", math.Inf(-1)}, {"zero", 0}, {"one", 1}, {"minusHalf", -.5},
		{"expLow", -87.3}, {"expHigh", 88.3}, {"log2e", 1.44269504088896341}, {"round", 12582912},
		{"ln2High", 0.693359375}, {"ln2Low", -2.12194440e-4},
		{"p0", 1.9875691500e-4}, {"p1", 1.3981999507e-3}, {"p2", 8.3334519073e-3},
		{"p3", 4.1665795894e-2}, {"p4", 1.6666665459e-1}, {"p5", 5.0000001201e-1},
		{"geluC0", -1.5957691216057308}, {"geluC1", -0.0713548162726009}, {"geluLow", -16},
		{"erfHigh", 16}, {"erfP", 0.27},
		{"a0", 0.1077215041}, {"a1", 0.1075289115}, {"a2", 0.1019072714}, {"a3", 0.07168153165}, {"a4", 0.1086707843},
		{"a5", -0.0704116756}, {"a6", 0.1708196288}, {"a7", -0.1269793761}, {"a8", 0.02906143216},
	} {
		c.word(v.name, math.Float32bits(float32(v.value)))
	}
	c.word("magnitude", 0x7fffffff)
	return c
}

func (c *constants) word(name string, bits uint32) {
	at := 64 * len(c.offsets)
	c.offsets[name] = at
	for i := range 16 {
		DATA(at+4*i, U32(bits))
	}
}

func (c *constants) at(name string) Mem {
	at, ok := c.offsets[name]
	if !ok {
		panic(name)
	}
	return c.base.Offset(at)
}

// exp is the exponential of expScalar; its bounds stay in registers.
type exp struct {
	set       set
	c         *constants
	low, high reg.VecVirtual
}

func (s set) newExp(c *constants) exp {
	e := exp{s, c, s.reg(), s.reg()}
	VMOVUPS(c.at("expLow"), e.low)
	VMOVUPS(c.at("expHigh"), e.high)
	return e
}

// emit replaces x by exp(x). Of two operands VMINPS and VMAXPS return the first, in
// Go's order, if one is NaN: x stands there.
func (e exp) emit(x reg.VecVirtual) {
	s, c := e.set, e.c
	var keep reg.OpmaskVirtual
	var keepVec reg.VecVirtual
	const notLess = 5 // or unordered
	if s.regs == 1 {
		keep = K()
		VCMPPS(Imm(notLess), e.low, x, keep)
	} else {
		keepVec = s.reg()
		VCMPPS(Imm(notLess), e.low, x, keepVec)
	}
	VMINPS(x, e.high, x)
	VMAXPS(x, e.low, x)
	t, n, r, y := s.reg(), s.reg(), s.reg(), s.reg()
	VMOVUPS(c.at("round"), t)
	VFMADD231PS(c.at("log2e"), x, t)
	VSUBPS(c.at("round"), t, n)
	VMOVAPS(x, r)
	VFNMADD231PS(c.at("ln2High"), n, r)
	VFNMADD231PS(c.at("ln2Low"), n, r)
	VMOVUPS(c.at("p0"), y)
	for _, p := range []string{"p1", "p2", "p3", "p4", "p5"} {
		VFMADD213PS(c.at(p), r, y)
	}
	VMULPS(r, r, n)
	VFMADD213PS(r, n, y)
	VADDPS(c.at("one"), y, y)
	VPSLLD(Imm(23), t, t)
	VPADDD(t, y, y)
	VFMADD231PS(c.at("zero"), x, y) // NaN stays NaN, whatever was added to its bits
	if s.regs == 1 {
		VMOVAPS_Z(y, keep, x)
	} else {
		VANDPS(keepVec, y, x)
	}
}

// gelu writes x / (1 + exp(x(geluC0 + geluC1*x^2))).
func (s set) gelu(c *constants) {
	s.begin("gelu", "replaces x[:n] by its GELU, the tanh form.", "func(n int, x *float32)")
	n, p := load64("n"), load64("x")
	e := s.newExp(c)
	low := s.reg()
	VMOVUPS(c.at("geluLow"), low)
	s.lines("gelu", n, []reg.GPVirtual{p}, func(k *mask) {
		x := s.line()
		s.get(Mem{Base: p}, k, x)
		for _, v := range x {
			VMAXPS(v, low, v)
			y := s.reg()
			VMULPS(v, v, y)
			u := s.reg()
			VMOVUPS(c.at("geluC0"), u)
			VFMADD231PS(c.at("geluC1"), y, u)
			VMULPS(v, u, u)
			e.emit(u)
			VADDPS(c.at("one"), u, u)
			VDIVPS(u, v, v)
		}
		s.put(x, k, Mem{Base: p})
	})
	end()
}

// geluErf writes max(x, 0) - |x|*Phi(-|x|).
func (s set) geluErf(c *constants) {
	s.begin("geluErf", "replaces x[:n] by its GELU, the exact form.", "func(n int, x *float32)")
	n, p := load64("n"), load64("x")
	e := s.newExp(c)
	high, one := s.reg(), s.reg()
	VMOVUPS(c.at("erfHigh"), high)
	VMOVUPS(c.at("one"), one)
	s.lines("geluErf", n, []reg.GPVirtual{p}, func(k *mask) {
		x := s.line()
		s.get(Mem{Base: p}, k, x)
		for _, v := range x {
			t, u, q := s.reg(), s.reg(), s.reg()
			VANDPS(c.at("magnitude"), v, t)
			VMINPS(t, high, t)
			VMOVAPS(one, u)
			VFMADD231PS(c.at("erfP"), t, u)
			VDIVPS(u, one, u)
			VMOVUPS(c.at("a8"), q)
			for _, a := range []string{"a7", "a6", "a5", "a4", "a3", "a2", "a1", "a0"} {
				VFMADD213PS(c.at(a), u, q)
			}
			VMULPS(u, q, q)
			VMULPS(t, t, u)
			VMULPS(c.at("minusHalf"), u, u)
			e.emit(u)
			VMULPS(u, q, q)
			VMAXPS(c.at("zero"), v, v)
			VFNMADD231PS(q, t, v)
		}
		s.put(x, k, Mem{Base: p})
	})
	end()
}

// norm writes the layer norm of one row in three passes over it, which is in the
// first-level cache.
func (s set) norm() {
	s.begin("norm", "computes dst = (x-mean)/sqrt(variance+eps)*gain + bias over n floats.",
		"func(n int, dst *float32, x *float32, gain *float32, bias *float32, eps float32)")
	n, x := load64("n"), load64("x")
	width := XMM()
	VXORPS(width, width, width)
	VCVTSI2SSQ(n, width, width)

	pass := func(name string, at reg.GPVirtual, more []reg.GPVirtual, body func(k *mask)) {
		count := GP64()
		MOVQ(n, count)
		s.lines(name, count, append(more, at), body)
	}
	at := GP64()
	MOVQ(x, at)
	sum := s.line()
	s.zero(sum)
	pass("normSum", at, nil, func(k *mask) {
		v := s.line()
		s.get(Mem{Base: at}, k, v)
		for i, r := range v {
			VADDPS(r, sum[i], sum[i])
		}
	})
	total := s.fold(sum, addPS)
	mean := s.reg()
	VDIVSS(width, total.AsX(), total.AsX())
	VBROADCASTSS(total.AsX(), mean)

	MOVQ(x, at)
	squares := s.line()
	s.zero(squares)
	pass("normSquares", at, nil, func(k *mask) {
		v := s.line()
		s.get(Mem{Base: at}, k, v)
		for _, r := range v {
			VSUBPS(mean, r, r)
		}
		if k != nil {
			s.clearRest(*k, v)
		}
		for i, r := range v {
			VFMADD231PS(r, r, squares[i])
		}
	})
	variance := s.fold(squares, addPS).AsX()
	VDIVSS(width, variance, variance)
	VADDSS(must(Param("eps").Resolve()).Addr, variance, variance)
	VSQRTSS(variance, variance, variance)
	one := GP32()
	MOVL(U32(math.Float32bits(1)), one)
	oneX := XMM()
	VMOVD(one, oneX)
	VDIVSS(variance, oneX, oneX)
	inv := s.reg()
	VBROADCASTSS(oneX, inv)

	dst, gain, bias := load64("dst"), load64("gain"), load64("bias")
	pass("normScale", x, []reg.GPVirtual{dst, gain, bias}, func(k *mask) {
		v, g, b := s.line(), s.line(), s.line()
		s.get(Mem{Base: x}, k, v)
		s.get(Mem{Base: gain}, k, g)
		s.get(Mem{Base: bias}, k, b)
		for i, r := range v {
			VSUBPS(mean, r, r)
			VMULPS(inv, r, r)
			VFMADD213PS(b[i], g[i], r)
		}
		s.put(v, k, Mem{Base: dst})
	})
	end()
}

func (s set) add() {
	s.begin("add", "computes dst[i] += src[i] over n floats.", "func(n int, dst *float32, src *float32)")
	n, dst, src := load64("n"), load64("dst"), load64("src")
	s.lines("add", n, []reg.GPVirtual{dst, src}, func(k *mask) {
		a, b := s.line(), s.line()
		s.get(Mem{Base: dst}, k, a)
		s.get(Mem{Base: src}, k, b)
		for i := range a {
			VADDPS(b[i], a[i], a[i])
		}
		s.put(a, k, Mem{Base: dst})
	})
	end()
}

func (s set) scale() {
	s.begin("scale", "computes x[i] *= f over n floats.", "func(n int, x *float32, f float32)")
	n, x := load64("n"), load64("x")
	f := s.broadcast("f")
	s.lines("scale", n, []reg.GPVirtual{x}, func(k *mask) {
		v := s.line()
		s.get(Mem{Base: x}, k, v)
		for _, r := range v {
			VMULPS(f, r, r)
		}
		s.put(v, k, Mem{Base: x})
	})
	end()
}
