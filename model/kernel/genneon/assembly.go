package main

import (
	"bytes"
	"fmt"
	"strings"
)

// A vec is one of the vector registers V0 to V31, a gp one of the general registers.
// R16 to R18 and R26 to R30 have uses of their own in Go or in its linker, so no loop
// touches them.
type (
	vec int
	gp  int
)

func (v vec) String() string { return fmt.Sprintf("V%d", int(v)) }
func (r gp) String() string  { return fmt.Sprintf("R%d", int(r)) }

// float is the name of a vector register in the assembler's loads and stores.
func (v vec) float() string { return fmt.Sprintf("F%d", int(v)) }

// vectors are the registers from first on.
func vectors(first vec, n int) []vec {
	all := make([]vec, n)
	for i := range all {
		all[i] = first + vec(i)
	}
	return all
}

// A parameter of a function; its type is int, float32 or a pointer.
type parameter struct {
	name, kind string
	offset     int
}

// assembly collects functions. A function is written from begin to end.
type assembly struct {
	code, stubs bytes.Buffer
	parameters  []parameter // of the current function
	labels      int
}

// begin opens a function without a frame. parameters are what stands between the
// parentheses of its declaration, result the type of what it returns, if anything.
func (a *assembly) begin(name, doc, parameters, result string) {
	a.parameters = nil
	size := 0
	place := func(name, kind string) {
		bytes := 8
		if kind == "float32" || kind == "uint32" {
			bytes = 4
		}
		size = (size + bytes - 1) / bytes * bytes
		a.parameters = append(a.parameters, parameter{name, kind, size})
		size += bytes
	}
	fields := strings.Split(parameters, ", ")
	for i, f := range fields {
		// In "x, y *float32" the type stands behind the last name.
		kind := ""
		for _, rest := range fields[i:] {
			if _, k, found := strings.Cut(rest, " "); found {
				kind = k
				break
			}
		}
		n, _, _ := strings.Cut(f, " ")
		place(n, kind)
	}
	declaration := fmt.Sprintf("func %s(%s)", name, parameters)
	if result != "" {
		size = (size + 7) / 8 * 8
		place("ret", result)
		declaration += " " + result
	}
	fmt.Fprintf(&a.stubs, "\n// %s %s\n//\n//go:noescape\n%s\n", name, doc, declaration)
	fmt.Fprintf(&a.code, "\n// %s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", declaration, name, size)
}

func (a *assembly) end() { a.op("RET") }

// op writes an instruction. Operands stand in Go's order, the destination last.
func (a *assembly) op(name string, operands ...any) {
	var text []string
	for _, o := range operands {
		text = append(text, fmt.Sprint(o))
	}
	fmt.Fprintf(&a.code, "\t%s\n", strings.TrimRight(fmt.Sprintf("%-7s %s", name, strings.Join(text, ", ")), " "))
}

// newLabel is a name for a place in the current function.
func (a *assembly) newLabel(name string) string {
	a.labels++
	return fmt.Sprintf("%s%d", name, a.labels)
}

func (a *assembly) label(name string) { fmt.Fprintf(&a.code, "\n%s:\n", name) }

// argument loads an int or a pointer.
func (a *assembly) argument(name string, r gp) { a.op("MOVD", a.parameter(name), r) }

// distance loads an int that counts elements of 1<<shift bytes, as bytes.
func (a *assembly) distance(name string, shift int, r gp) {
	a.argument(name, r)
	a.op("LSL", imm(shift), r)
}

// float loads a float32 into the lowest place of a register, zeros above it.
func (a *assembly) float(name string, v vec) { a.op("FMOVS", a.parameter(name), v.float()) }

// everywhere loads a float32 into all places of a register.
func (a *assembly) everywhere(name string, v vec) {
	a.float(name, v)
	a.op("VDUP", fmt.Sprintf("%v.S[0]", v), fmt.Sprintf("%v.S4", v))
}

func (a *assembly) parameter(name string) string {
	for _, p := range a.parameters {
		if p.name == name {
			return fmt.Sprintf("%s+%d(FP)", name, p.offset)
		}
	}
	panic("no parameter " + name)
}

func imm(n int) string { return fmt.Sprintf("$%d", n) }

// at is a place in memory, some bytes behind the one that r points to.
func at(r gp, bytes int) string {
	if bytes == 0 {
		return fmt.Sprintf("(%v)", r)
	}
	return fmt.Sprintf("%d(%v)", bytes, r)
}

// load loads whole registers from successive places, in pairs where it can.
func (a *assembly) load(r gp, bytes int, to ...vec) { a.move("FLDPQ", "FMOVQ", r, bytes, to, true) }

// store is the reverse.
func (a *assembly) store(r gp, bytes int, from ...vec) {
	a.move("FSTPQ", "FMOVQ", r, bytes, from, false)
}

func (a *assembly) move(pair, single string, r gp, bytes int, all []vec, load bool) {
	const pairReach = 64 * 16 // a pair's distance has 7 bits, in units of 16 bytes
	for len(all) > 0 {
		n, name, registers := 1, single, all[0].float()
		if len(all) > 1 && bytes < pairReach {
			n, name, registers = 2, pair, fmt.Sprintf("(%s, %s)", all[0].float(), all[1].float())
		}
		if load {
			a.op(name, at(r, bytes), registers)
		} else {
			a.op(name, registers, at(r, bytes))
		}
		all, bytes = all[n:], bytes+16*n
	}
}

// zero makes registers zero.
func (a *assembly) zero(all ...vec) {
	for _, v := range all {
		b := fmt.Sprintf("%v.B16", v)
		a.op("VEOR", b, b, b)
	}
}

// countdown runs body as often as r says, at least once.
func (a *assembly) countdown(r gp, body func()) {
	loop := a.newLabel("loop")
	a.label(loop)
	body()
	a.op("SUBS", imm(1), r)
	a.op("BNE", loop)
}

const header = "// Code generated by genneon with go generate. DO NOT EDIT.\n\n//go:build arm64 && !purego\n"

func (a *assembly) files() (code, stubs []byte) {
	code = append([]byte(header+"\n#include \"textflag.h\"\n"), a.code.Bytes()...)
	stubs = append([]byte(header+"\npackage kernel\n"), a.stubs.Bytes()...)
	return code, stubs
}
