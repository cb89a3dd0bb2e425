package main

import "fmt"

// Go's assembler has few of the vector instructions. Those below are written as words,
// with their name in a comment, in the order of the processor's manual: destination
// first. All work on four float32 unless their name says otherwise.

// An instruction of the form destination, first source, second source, by its word with
// all registers zero.
type three struct {
	name string
	word uint32
}

var (
	fadd  = three{"fadd", 0x4e20d400}
	fsub  = three{"fsub", 0x4ea0d400}
	fmul  = three{"fmul", 0x6e20dc00}
	fdiv  = three{"fdiv", 0x6e20fc00}
	fmla  = three{"fmla", 0x4e20cc00} // d += n*m, rounded once
	fmls  = three{"fmls", 0x4ea0cc00} // d -= n*m, rounded once
	fmax  = three{"fmax", 0x4e20f400} // NaN if either is
	fmin  = three{"fmin", 0x4ea0f400} // NaN if either is
	fcmgt = three{"fcmgt", 0x6ea0e400}
	fcmeq = three{"fcmeq", 0x4e20e400}
	bic   = three{"bic", 0x4e601c00} // d = n &^ m
)

func (a *assembly) word(w uint32, format string, operands ...any) {
	fmt.Fprintf(&a.code, "\tWORD    $0x%08x // %s\n", w, fmt.Sprintf(format, operands...))
}

// do writes d = n op m, and for fmla and fmls d = d op n*m.
func (a *assembly) do(op three, d, n, m vec) {
	form := "4s"
	if op == bic {
		form = "16b"
	}
	a.word(op.word|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.%[5]s, v%[3]d.%[5]s, v%[4]d.%[5]s", op.name, d, n, m, form)
}

// fmlaLane writes d += n * m[lane].
func (a *assembly) fmlaLane(d, n, m vec, lane int) { a.byLane("fmla", 0x4f801000, d, n, m, lane) }

// fmulLane writes d = n * m[lane].
func (a *assembly) fmulLane(d, n, m vec, lane int) { a.byLane("fmul", 0x4f809000, d, n, m, lane) }

func (a *assembly) byLane(name string, word uint32, d, n, m vec, lane int) {
	low, high := uint32(lane&1), uint32(lane>>1)
	a.word(word|low<<21|high<<11|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.4s, v%d.4s, v%d.s[%d]", name, d, n, m, lane)
}

func (a *assembly) fabs(d, n vec) {
	a.word(0x4ea0f800|uint32(n)<<5|uint32(d), "fabs v%d.4s, v%d.4s", d, n)
}

// fcvtl widens the lower four halves of n, fcvtl2 the upper four.
func (a *assembly) fcvtl(d, n vec) {
	a.word(0x0e217800|uint32(n)<<5|uint32(d), "fcvtl v%d.4s, v%d.4h", d, n)
}

func (a *assembly) fcvtl2(d, n vec) {
	a.word(0x4e217800|uint32(n)<<5|uint32(d), "fcvtl2 v%d.4s, v%d.8h", d, n)
}

// shll moves the lower four words of 16 bits of n to the upper halves of words of 32,
// shll2 the upper four.
func (a *assembly) shll(d, n vec) {
	a.word(0x2e613800|uint32(n)<<5|uint32(d), "shll v%d.4s, v%d.4h, #16", d, n)
}

func (a *assembly) shll2(d, n vec) {
	a.word(0x6e613800|uint32(n)<<5|uint32(d), "shll2 v%d.4s, v%d.8h, #16", d, n)
}

// loadAt and storeAt move a whole register to and from base plus index, in bytes.
func (a *assembly) loadAt(base, index gp, d vec) {
	a.word(0x3ce06800|uint32(index)<<16|uint32(base)<<5|uint32(d), "ldr q%d, [x%d, x%d]", d, base, index)
}

func (a *assembly) storeAt(d vec, base, index gp) {
	a.word(0x3ca06800|uint32(index)<<16|uint32(base)<<5|uint32(d), "str q%d, [x%d, x%d]", d, base, index)
}

// loadHalf loads 16 bits, zeros above them.
func (a *assembly) loadHalf(base gp, d vec) {
	a.word(0x7d400000|uint32(base)<<5|uint32(d), "ldr h%d, [x%d]", d, base)
}
