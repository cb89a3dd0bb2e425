package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileRows is the number of queries that share a pass over keys and values.
const tileRows = 6

// scores writes the loops of queries with keys, which lie transposed, in runs of up to 16
// positions: a line holds one dimension of one run.
func (s set) scores(e element) {
	for rows := 1; rows <= tileRows; rows++ {
		name := label("scores%s%d", e.name, rows)
		s.begin(name, label("computes out[r*ldo+t] = scale * sum over i < dim of q[r*ldq+i]*keys[t/size][offset+i*ldk+t%%size]%s for %d rows and t < n, size <= 16, and writes 16 a run. It prefetches the next run, there is a pointer more than runs, and what lies ahead elements behind each.", e.doc, rows),
			label("func(n, size, dim int, q *float32, ldq int, keys **%[1]s, offset, ldk, ahead int, scale float32, out *float32, ldo int)", e.elem))
		n, runs, out := load64("n"), load64("keys"), load64("out")
		ldq, ldk, ahead := loadBytes("ldq"), e.distance("ldk"), e.distance("ahead")
		run := name + "_run" + s.name
		Label(run)
		part := s.part(e, s.inRun(n))
		keys, next := s.runs(e, runs)
		var acc []line
		for range rows {
			l := s.line()
			s.zero(l)
			acc = append(acc, l)
		}
		q, dim := newRows(load64("q"), ldq, rows), load64("dim")
		kv, qv := s.line(), s.reg()
		loop := name + "_loop" + s.name
		Label(loop)
		s.elementsPart(part, keys, kv)
		PREFETCHT0(Mem{Base: next})
		PREFETCHT1(Mem{Base: keys, Index: ahead, Scale: 1})
		for r := range acc {
			s.weigh(kv, q.at(r), qv, acc[r])
		}
		q.advance(4)
		ADDQ(ldk, keys)
		ADDQ(ldk, next)
		DECQ(dim)
		JNZ(ref(loop))
		row, ldo := GP64(), loadBytes("ldo")
		MOVQ(out, row)
		f := s.broadcast("scale")
		for _, l := range acc {
			for _, r := range l {
				VMULPS(f, r, r)
			}
			s.store(l, Mem{Base: row})
			ADDQ(ldo, row)
		}
		size := load64("size")
		LEAQ(Mem{Base: out, Index: size, Scale: 4}, out)
		SUBQ(size, n)
		JG(ref(run))
		end()
	}
}

// weigh adds the line times the float at m to the line acc. free is a register to use.
func (s set) weigh(l line, m Mem, free reg.VecVirtual, acc line) {
	if s.regs == 1 {
		// Half as many instructions as below, and half as fast again: in a loop of one line
		// they are what bounds it.
		VFMADD231PS_BCST(m, l[0], acc[0])
		return
	}
	VBROADCASTSS(m, free)
	for i := range l {
		VFMADD231PS(l[i], free, acc[i])
	}
}

// inRun is how many of the n positions left are in the run at hand.
func (s set) inRun(n reg.GPVirtual) reg.GPVirtual {
	count := load64("size")
	CMPQ(n, count)
	CMOVQLT(n, count)
	return count
}

// runs takes the pointers to the next run and to the one after it.
func (s set) runs(e element, at reg.GPVirtual) (run, next reg.GPVirtual) {
	run, next = GP64(), GP64()
	offset := e.distance("offset")
	MOVQ(Mem{Base: at}, run)
	ADDQ(imm(8), at)
	MOVQ(Mem{Base: at}, next)
	ADDQ(offset, run)
	ADDQ(offset, next)
	return run, next
}

// values writes the loops that weigh values: 64 columns at a time where there are as
// many, and up to 16 for the rest.
func (s set) values(e element) {
	for rows := 1; rows <= tileRows; rows++ {
		s.valuesPart(e, rows)
		if s.regs == 1 || rows == 1 {
			s.valuesWhole(e, rows, 4)
		} else {
			s.valuesWhole(e, rows, 1)
		}
	}
}

func (s set) valuesWhole(e element, rows, lines int) {
	name := label("values%s%dx%d", e.name, rows, 16*lines)
	s.begin(name, label("continues dst[r*ldd+j] += p[r*ldp+t]*v[t/size][offset+t%%size*ldv+j]%s over t < n for %d rows and %d columns. It prefetches the next run, there is a pointer more than runs, and what lies ahead elements behind each.", e.doc, rows, 16*lines),
		label("func(n, size int, p *float32, ldp int, v **%[1]s, offset, ldv, ahead int, dst *float32, ldd int)", e.elem))
	out := newRows(load64("dst"), loadBytes("ldd"), rows)
	acc := make([][]line, rows)
	for r := range acc {
		for j := range lines {
			l := s.line()
			s.load(out.at(r).Offset(64*j), l)
			acc[r] = append(acc[r], l)
		}
	}
	s.valuesLoop(e, name, rows, acc, nil)
	out = newRows(load64("dst"), loadBytes("ldd"), rows)
	for r := range acc {
		for j, l := range acc[r] {
			s.store(l, out.at(r).Offset(64*j))
		}
	}
	end()
}

func (s set) valuesPart(e element, rows int) {
	name := label("values%s%dx", e.name, rows)
	s.begin(name, "is the same for cols <= 16 columns.",
		label("func(n, size int, p *float32, ldp int, v **%s, offset, ldv, ahead int, dst *float32, ldd int, cols int)", e.elem))
	k := s.mask(load64("cols"))
	out := newRows(load64("dst"), loadBytes("ldd"), rows)
	acc := make([][]line, rows)
	for r := range acc {
		l := s.line()
		s.loadPart(out.at(r), k, l)
		acc[r] = []line{l}
	}
	selected := part{e: e, mask: k}
	if s.splits(e) {
		selected = s.part(e, load64("cols"))
	}
	s.valuesLoop(e, name, rows, acc, &selected)
	if s.splits(e) {
		k = s.mask(load64("cols")) // again: beside the other mask there was no room for it
	}
	out = newRows(load64("dst"), loadBytes("ldd"), rows)
	for r := range acc {
		s.storePart(acc[r][0], k, out.at(r))
	}
	end()
}

func (s set) valuesLoop(e element, name string, rows int, acc [][]line, k *part) {
	n, runs := load64("n"), load64("v")
	p, ldv := newRows(load64("p"), loadBytes("ldp"), rows), e.distance("ldv")
	ahead := e.distance("ahead")
	pv := s.reg()
	run := name + "_run" + s.name
	Label(run)
	count := s.inRun(n)
	SUBQ(count, n)
	v, next := s.runs(e, runs)
	loop := name + "_loop" + s.name
	Label(loop)
	if k == nil && rows == 1 {
		VBROADCASTSS(p.at(0), pv)
		for j, l := range acc[0] {
			for i := range l {
				VFMADD231PS(s.element(e, Mem{Base: v, Disp: 16 * e.bytes * j}, i), pv, l[i])
			}
		}
	} else if k != nil && s.regs == 1 {
		vv := s.line()
		s.elementsPart(*k, v, vv)
		for r := range acc {
			s.weigh(vv, p.at(r), pv, acc[r][0])
		}
	} else if k != nil && e == wide {
		// One register of values at a time: with a mask there is no room for more.
		vv := s.reg()
		for j := range acc[0] {
			for i := range s.regs {
				s.loadPartRegister(Mem{Base: v, Disp: 64 * j}, k.mask, i, vv)
				for r := range acc {
					VBROADCASTSS(p.at(r), pv)
					VFMADD231PS(vv, pv, acc[r][j][i])
				}
			}
		}
	} else {
		var lines []line
		for j := range acc[0] {
			l := s.line()
			if k != nil {
				s.elementsPart(*k, v, l)
			} else {
				s.elements(e, Mem{Base: v, Disp: 16 * e.bytes * j}, l)
			}
			lines = append(lines, l)
		}
		for r := range acc {
			VBROADCASTSS(p.at(r), pv)
			for j, l := range lines {
				for i := range l {
					VFMADD231PS(l[i], pv, acc[r][j][i])
				}
			}
		}
	}
	for at := 0; at < 16*e.bytes*len(acc[0]); at += 64 {
		PREFETCHT0(Mem{Base: next, Disp: at})
		PREFETCHT1(Mem{Base: v, Index: ahead, Scale: 1, Disp: at})
	}
	p.advance(4)
	ADDQ(ldv, v)
	ADDQ(ldv, next)
	DECQ(count)
	JNZ(ref(loop))
	TESTQ(n, n)
	JG(ref(run))
}

// softmax writes the loop that turns scores into weights.
func (s set) softmax(c *constants) {
	s.begin("softmax", "replaces s[:n] by exp(s - max(s)) and returns the sum, n >= 1.", "func(n int, s *float32) float32")
	n, p := load64("n"), load64("s")
	count, at := GP64(), GP64()
	MOVQ(n, count)
	MOVQ(p, at)
	low := s.line()
	for i, r := range low {
		VMOVUPS(s.at(c.at("minusInf"), i), r)
	}
	top := s.line()
	for i := range top {
		VMOVAPS(low[i], top[i])
	}
	s.lines("softmaxTop", count, []reg.GPVirtual{at}, func(k *mask) {
		x := s.line()
		switch {
		case k == nil:
			s.load(Mem{Base: at}, x)
		case s.regs == 1:
			VMOVAPS(low[0], x[0])
			VMOVUPS(Mem{Base: at}, k.k, x[0])
		default:
			s.loadPart(Mem{Base: at}, *k, x)
			for i := range x {
				VBLENDVPS(k.vec[i], x[i], low[i], x[i])
			}
		}
		for i := range x {
			VMAXPS(x[i], top[i], top[i])
		}
	})
	m := s.fold(top, maxPS)
	most := s.reg()
	VBROADCASTSS(m.AsX(), most)
	sum := s.line()
	s.zero(sum)
	e := s.newExp(c)
	s.lines("softmaxExp", n, []reg.GPVirtual{p}, func(k *mask) {
		x := s.line()
		s.get(Mem{Base: p}, k, x)
		for _, r := range x {
			VSUBPS(most, r, r)
			e.emit(r)
		}
		if k != nil {
			s.clearRest(*k, x)
		}
		s.put(x, k, Mem{Base: p})
		for i, r := range x {
			VADDPS(r, sum[i], sum[i])
		}
	})
	total := s.fold(sum, addPS)
	Store(total.AsX(), ReturnIndex(0))
	end()
}
