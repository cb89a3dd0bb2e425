// Command genneon writes the vector assembly of package kernel for arm64: loops on the
// 128-bit registers that every arm64 processor has (ASIMD, or NEON). Run it with go
// generate in its folder. It is plain text that it writes, with nothing beyond the
// standard library, since the assembler library of the loops for amd64 has no arm64.
//
// Every loop has the order of operations of its twin for amd64 and fuses where that
// fuses, so both compute the same bits.
package main

//go:generate go run . -dir ..

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", "..", "where to write vector_arm64.s and vector_arm64.go")
	flag.Parse()
	code, stubs := generate()
	for name, text := range map[string][]byte{"vector_arm64.s": code, "vector_arm64.go": stubs} {
		if err := os.WriteFile(filepath.Join(*dir, name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the assembly and the Go declarations of its functions.
func generate() (code, stubs []byte) {
	var a assembly
	a.panels()
	for _, e := range []element{float32s, bfloat16s} {
		a.scores(e)
		a.values(e)
	}
	a.softmax()
	a.norm()
	a.gelu()
	a.geluErf()
	a.add()
	a.scale()
	a.round()
	a.peak()
	a.stream()
	a.table()
	return a.files()
}
