package main

import "fmt"

// peakChains is how many registers peak adds to: more than any processor has
// multiplications in flight. It is neonChains in the Go code.
const peakChains = 24

// peak writes a loop that does nothing but multiply and add: what no kernel can exceed.
func (a *assembly) peak() {
	a.begin("peakNEON", fmt.Sprintf("does n passes of %d multiply-adds of a register.", peakChains), "n int", "")
	all := vectors(0, peakChains+1)
	a.argument("n", rLines)
	a.zero(all...)
	factor := all[peakChains]
	a.countdown(rLines, func() {
		for _, v := range all[:peakChains] {
			a.do(fmla, v, factor, factor)
		}
	})
	a.end()
}

// stream writes a loop that does nothing but read: the limit of what decode can do, which
// reads every weight for every token.
func (a *assembly) stream() {
	a.begin("streamNEON", "returns the exclusive or of all words of n*256 bytes at p.", "n int, p *byte", "uint32")
	read, sums := vectors(0, 16), vectors(16, 16)
	xor := func(n, d vec) {
		a.op("VEOR", fmt.Sprintf("%v.B16", n), fmt.Sprintf("%v.B16", d), fmt.Sprintf("%v.B16", d))
	}
	a.argument("n", rLines)
	a.argument("p", rX)
	a.zero(sums...)
	a.countdown(rLines, func() {
		a.load(rX, 0, read...)
		for i, v := range read {
			xor(v, sums[i])
		}
		a.op("ADD", imm(256), rX)
	})
	for n := len(sums) / 2; n > 0; n /= 2 {
		for i := range n {
			xor(sums[i+n], sums[i])
		}
	}
	a.op("VMOV", fmt.Sprintf("%v.D[0]", sums[0]), rX)
	a.op("VMOV", fmt.Sprintf("%v.D[1]", sums[0]), rDst)
	a.op("EOR", rDst, rX)
	a.op("EOR", fmt.Sprintf("%v>>32", rX), rX)
	a.op("MOVW", rX, a.parameter("ret"))
	a.end()
}
