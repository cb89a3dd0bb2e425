package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peaks writes loops that do nothing but multiply and add, in as many chains as hide the
// latency: what no kernel can exceed.
func (s set) peaks() {
	s.peak("peak", func(a, b, acc reg.VecVirtual) { VFMADD231PS(a, b, acc) })
	if s.regs == 1 {
		s.peak("peakPairs", dotPairs)
	}
}

// peakChains is 12 in the Go code too.
const peakChains = 12

func (s set) peak(name string, multiplyAdd func(a, b, acc reg.VecVirtual)) {
	s.begin(name, "does n passes of 12 multiply-adds of a register.", "func(n int)")
	n := load64("n")
	a := s.line()[:1]
	s.zero(a)
	var acc line
	for range peakChains {
		acc = append(acc, s.reg())
	}
	s.zero(acc)
	loop := name + "_loop" + s.name
	Label(loop)
	for _, r := range acc {
		multiplyAdd(a[0], a[0], r)
	}
	DECQ(n)
	JNZ(ref(loop))
	end()
}

// streamAhead is how many bytes in front of its loads stream prefetches.
const streamAhead = 4096

// stream writes a loop that does nothing but read: the limit of what decode can do, which
// reads every weight for every token.
func (s set) stream() {
	s.begin("stream", "returns the exclusive or of all words of n*256 bytes at p.", "func(n int, p *byte) float32")
	n, p := load64("n"), load64("p")
	var acc line
	for range 256 / s.width() {
		acc = append(acc, s.reg())
	}
	s.zero(acc)
	xor := func(a Op, b reg.VecVirtual) {
		if s.regs == 1 {
			VPXORD(a, b, b)
		} else {
			VPXOR(a, b, b)
		}
	}
	loop := "stream_loop" + s.name
	Label(loop)
	for at := 0; at < 256; at += 64 {
		PREFETCHT0(Mem{Base: p, Disp: streamAhead + at})
	}
	for i, r := range acc {
		xor(Mem{Base: p, Disp: i * s.width()}, r)
	}
	ADDQ(imm(256), p)
	DECQ(n)
	JNZ(ref(loop))
	for i, r := range acc[s.regs:] {
		xor(r, acc[i%s.regs])
	}
	word := s.fold(acc[:s.regs], func(a, b, dst Op) { VXORPS(a, b, dst) })
	Store(word.AsX(), ReturnIndex(0))
	end()
}
