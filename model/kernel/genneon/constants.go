package main

import (
	"fmt"
	"math"
)

// constant is a float32 in read-only memory, eight times: the two registers of a paired
// load. The values are those of the scalar loops in activation.go; a test of package
// kernel compares the bits of the results.
type constant struct {
	name  string
	value float64
}

var constants = []constant{
	{"one", 1}, {"minusHalf", -.5},
	{"expLow", -87.3}, {"expHigh", 88.3}, {"log2e", 1.44269504088896341}, {"round", 12582912},
	{"ln2High", 0.693359375}, {"ln2Low", -2.12194440e-4},
	{"p0", 1.9875691500e-4}, {"p1", 1.3981999507e-3}, {"p2", 8.3334519073e-3},
	{"p3", 4.1665795894e-2}, {"p4", 1.6666665459e-1}, {"p5", 5.0000001201e-1},
	{"geluC0", -1.5957691216057308}, {"geluC1", -0.0713548162726009}, {"geluLow", -16},
	{"erfHigh", 16}, {"erfP", 0.27},
	{"a0", 0.1077215041}, {"a1", 0.1075289115}, {"a2", 0.1019072714}, {"a3", 0.07168153165}, {"a4", 0.1086707843},
	{"a5", -0.0704116756}, {"a6", 0.1708196288}, {"a7", -0.1269793761}, {"a8", 0.02906143216},
}

const constantBytes = 32

// constant is where a constant stands in the table.
func (a *assembly) constant(name string) int {
	for i, c := range constants {
		if c.name == name {
			return constantBytes * i
		}
	}
	panic("no constant " + name)
}

// table writes the constants.
func (a *assembly) table() {
	a.code.WriteByte('\n')
	for i, c := range constants {
		bits := uint64(math.Float32bits(float32(c.value)))
		for at := 0; at < constantBytes; at += 8 {
			fmt.Fprintf(&a.code, "DATA constants<>+%d(SB)/8, $0x%016x\n", constantBytes*i+at, bits<<32|bits)
		}
	}
	fmt.Fprintf(&a.code, "GLOBL constants<>(SB), RODATA|NOPTR, $%d\n", constantBytes*len(constants))
}
