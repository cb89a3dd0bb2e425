package main

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// TestBytesAreTheInstructions disassembles, by GNU objdump, what is written as bytes: all that
// is in the assembly, and tiles and addresses of every register.
func TestBytesAreTheInstructions(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("there is no objdump: ", err)
	}
	instructions := written(t)
	for opcode, n := range map[string]int{vdpbf16ps: 80, ldtilecfg: 1, tilerelease: 1, tilezero: 8, tileloadd: 12, tilestored: 4, tdpbf16ps: 8} {
		if got := len(slices.DeleteFunc(slices.Clone(instructions), func(r raw) bool { return !strings.HasPrefix(r.comment, opcode) })); got < n {
			t.Errorf("%d kinds of %s are in the assembly, want at least %d", got, opcode, n)
		}
	}
	instructions = append(instructions, more(t)...)

	// Lines of objdump are an address, the bytes and the instruction, with tabs in between.
	file := filepath.Join(t.TempDir(), "code")
	var code []byte
	for _, r := range instructions {
		code = append(code, r.bytes...)
	}
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "--insn-width=16", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(line, "\t"); len(f) == 3 {
			lines = append(lines, f)
		}
	}
	if len(lines) != len(instructions) {
		t.Fatalf("%d instructions are disassembled as %d", len(instructions), len(lines))
	}
	for i, r := range instructions {
		bytes, text := strings.ReplaceAll(lines[i][1], " ", ""), gnu(lines[i][2])
		if want := gnu(r.comment); bytes != hex.EncodeToString(r.bytes) || text != want {
			t.Fatalf("% x is %s, %q; want %q", r.bytes, bytes, text, want)
		}
	}
}

// written is every different instruction that the assembly has as bytes.
func written(t *testing.T) []raw {
	text, err := os.ReadFile(filepath.Join("..", "vector_amd64.s"))
	if err != nil {
		t.Fatal(err)
	}
	var all []raw
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		code, comment, found := strings.Cut(strings.TrimSpace(line), " // ")
		if !strings.HasPrefix(code, "BYTE") || seen[line] {
			continue
		}
		seen[line] = true
		bytes, err := hex.DecodeString(regexp.MustCompile(`BYTE\s+\$0x|; `).ReplaceAllString(code, ""))
		if err != nil || !found {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, raw{bytes, comment})
	}
	return all
}

// more is what another allocation of registers might need.
func more(t *testing.T) (all []raw) {
	add := func(opcode string, operands ...operand.Op) {
		bytes, err := tileForms[opcode].vex(operands)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw{bytes, opcode + " " + asm(operands)})
	}
	registers := []reg.Register{reg.RAX, reg.RCX, reg.RDX, reg.RBX, reg.RBP, reg.RSI, reg.RDI,
		reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13, reg.R14, reg.R15}
	for i, base := range registers {
		for j, index := range registers {
			for _, distance := range []int{0, 64, -128, 128, 4096} {
				m := operand.Mem{Base: base, Index: index, Scale: 1, Disp: distance}
				add(tileloadd, m, tmm((i+j)%8))
				add(tilestored, tmm((i+j+1)%8), m)
			}
		}
		add(ldtilecfg, operand.Mem{Base: base})
	}
	for b := range 8 {
		for a := range 8 {
			for c := range 8 {
				if a != b && b != c && c != a { // tiles must differ
					add(tdpbf16ps, tmm(b), tmm(a), tmm(c))
				}
			}
		}
	}
	return all
}

// gnu writes an instruction, as Go's assembler or GNU's writes it, in one way.
func gnu(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	text = strings.ReplaceAll(text, ",%riz,1)", ")")                 // there is no index
	text = regexp.MustCompile(`\b0x0\(`).ReplaceAllString(text, "(") // a distance that only the encoding has
	text = strings.NewReplacer("%", "", "$", "", "zmm", "z", ")(", ",", "*", ",").Replace(text)
	text = regexp.MustCompile(`\br([a-ds][a-z])\b`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`0x[0-9a-f]+`).ReplaceAllStringFunc(text, func(n string) string {
		v, _ := strconv.ParseInt(n, 0, 64)
		return strconv.FormatInt(v, 10)
	})
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }), " ")
}
