// Command gen writes the vector assembly of package kernel for amd64: every loop once
// for AVX-512 and once for AVX2 with FMA, from one description, so that both compute
// the same bits; and the matrix loops on tiles of AMX, with the vectors that sum in the
// tiles' order. Run it with go generate in model/kernel. It is a module of its own, so
// that the assembler library burdens nobody who only builds Tailor.
package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
)

func main() {
	build.ConstraintExpr("amd64,!purego")
	c := newConstants()
	for _, s := range []set{avx512, avx2} {
		s.panels()
		for _, e := range []element{wide, narrow} {
			s.scores(e)
			s.values(e)
		}
		s.softmax(c)
		s.norm()
		s.gelu(c)
		s.geluErf(c)
		s.add()
		s.scale()
		s.peaks()
		s.stream()
	}
	avx512.pairs()
	avx512.round()
	groups()
	relax()
	pass.Compile = pass.Concat(pass.Compile, encode)
	build.Generate()
}

// relax tells the processor that this is a spin, for some 50 to 150 nanoseconds.
func relax() {
	build.TEXT("relax", build.NOSPLIT, "func()")
	build.Doc("relax pauses for a moment inside a spin.")
	n := build.GP64()
	build.MOVQ(imm(4), n)
	build.Label("relax_loop")
	build.PAUSE()
	build.DECQ(n)
	build.JNZ(ref("relax_loop"))
	build.RET()
}
