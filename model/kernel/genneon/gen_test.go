package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestGeneratedFilesAreCurrent compares what is checked in with what the generator writes.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	code, stubs := generate()
	for name, want := range map[string][]byte{"vector_arm64.s": code, "vector_arm64.go": stubs} {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate", name)
		}
	}
}

// TestWords compares the instructions that are written as words with what LLVM's assembler
// makes of their names. Together their registers and lanes have every bit of a field set
// and clear.
func TestWords(t *testing.T) {
	var a assembly
	for _, op := range []three{fadd, fsub, fmul, fdiv, fmla, fmls, fmax, fmin, fcmgt, fcmeq, bic} {
		a.do(op, 21, 10, 31)
	}
	a.fmlaLane(21, 10, 31, 3)
	a.fmlaLane(10, 21, 5, 2)
	a.fmlaLane(0, 30, 24, 1)
	a.fmulLane(3, 4, 30, 0)
	a.fabs(21, 10)
	a.fcvtl(21, 10)
	a.fcvtl2(21, 10)
	a.shll(21, 10)
	a.shll2(21, 10)
	a.loadAt(7, 12, 21)
	a.storeAt(21, 10, 15)
	a.loadHalf(7, 21)
	want := `
$0x4e3fd555 // fadd v21.4s, v10.4s, v31.4s
$0x4ebfd555 // fsub v21.4s, v10.4s, v31.4s
$0x6e3fdd55 // fmul v21.4s, v10.4s, v31.4s
$0x6e3ffd55 // fdiv v21.4s, v10.4s, v31.4s
$0x4e3fcd55 // fmla v21.4s, v10.4s, v31.4s
$0x4ebfcd55 // fmls v21.4s, v10.4s, v31.4s
$0x4e3ff555 // fmax v21.4s, v10.4s, v31.4s
$0x4ebff555 // fmin v21.4s, v10.4s, v31.4s
$0x6ebfe555 // fcmgt v21.4s, v10.4s, v31.4s
$0x4e3fe555 // fcmeq v21.4s, v10.4s, v31.4s
$0x4e7f1d55 // bic v21.16b, v10.16b, v31.16b
$0x4fbf1955 // fmla v21.4s, v10.4s, v31.s[3]
$0x4f851aaa // fmla v10.4s, v21.4s, v5.s[2]
$0x4fb813c0 // fmla v0.4s, v30.4s, v24.s[1]
$0x4f9e9083 // fmul v3.4s, v4.4s, v30.s[0]
$0x4ea0f955 // fabs v21.4s, v10.4s
$0x0e217955 // fcvtl v21.4s, v10.4h
$0x4e217955 // fcvtl2 v21.4s, v10.8h
$0x2e613955 // shll v21.4s, v10.4h, #16
$0x6e613955 // shll2 v21.4s, v10.8h, #16
$0x3cec68f5 // ldr q21, [x7, x12]
$0x3caf6955 // str q21, [x10, x15]
$0x7d4000f5 // ldr h21, [x7]
`
	got := regexp.MustCompile(`\tWORD +`).ReplaceAllString(a.code.String(), "")
	if "\n"+got != want {
		t.Errorf("words are%s\nwant%s", "\n"+got, want)
	}
}

// TestParameters: arguments stand as Go's assembler expects them, each aligned to its
// size, results aligned to 8 bytes.
func TestParameters(t *testing.T) {
	var a assembly
	a.begin("f", "does nothing.", "n int, x, y *float32, f float32, z *uint16, g, h float32", "uint32")
	for name, want := range map[string]string{"n": "n+0(FP)", "x": "x+8(FP)", "y": "y+16(FP)", "f": "f+24(FP)",
		"z": "z+32(FP)", "g": "g+40(FP)", "h": "h+44(FP)", "ret": "ret+48(FP)"} {
		if got := a.parameter(name); got != want {
			t.Errorf("%s is at %s, want %s", name, got, want)
		}
	}
	if want := []byte("TEXT ·f(SB), NOSPLIT, $0-52\n"); !bytes.Contains(a.code.Bytes(), want) {
		t.Errorf("%s lacks %s", a.code.Bytes(), want)
	}
}
