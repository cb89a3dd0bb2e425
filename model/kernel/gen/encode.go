package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// vdpbf16ps is an instruction that neither avo nor Go's assembler knows. The generator
// treats it as any other until registers are allocated, and then writes its bytes.
const vdpbf16ps = "VDPBF16PS"

// dotPairs adds to each float of acc the products of the pairs of bfloat16 in a and b: the
// odd one first, then the even one, each fused.
func dotPairs(b, a, acc reg.VecVirtual) {
	build.Instruction(&ir.Instruction{
		Opcode:   vdpbf16ps,
		Operands: []operand.Op{b, a, acc},
		Inputs:   []operand.Op{b, a, acc},
		Outputs:  []operand.Op{acc},
		ISA:      []string{"AVX512_BF16"},
	})
}

// encode is the pass that puts bytes in place of instructions that the assembler does not
// know. It runs when all registers are physical ones.
var encode = pass.InstructionPass(func(i *ir.Instruction) error {
	if i.Opcode != vdpbf16ps {
		return nil
	}
	var n [3]byte // b, a, acc
	for o, op := range i.Operands {
		r, ok := op.(reg.Physical)
		if !ok {
			return fmt.Errorf("%s: operand %s is no register", i.Opcode, op.Asm())
		}
		n[o] = byte(r.PhysicalIndex())
	}
	i.Opcode, i.Operands = "BYTE", []operand.Op{raw{evex(0x52, n[2], n[1], n[0]), i.Opcode + " " + asm(i.Operands)}}
	return nil
})

// evex encodes an instruction of the map 0F38 with the prefix F3, W0, on whole 512-bit
// registers without a mask: bits of register numbers are stored inverted.
func evex(opcode, dst, src1, src2 byte) [6]byte {
	inverted := func(n byte, bit, to uint) byte { return (^n >> bit & 1) << to }
	return [6]byte{
		0x62,
		inverted(dst, 3, 7) | inverted(src2, 4, 6) | inverted(src2, 3, 5) | inverted(dst, 4, 4) | 2,
		(^src1&15)<<3 | 1<<2 | 2,
		2<<5 | inverted(src1, 4, 3),
		opcode,
		0xc0 | dst&7<<3 | src2&7,
	}
}

// raw is the operand of a BYTE that has more bytes after it on its line.
type raw struct {
	bytes   [6]byte
	comment string
}

func (r raw) Asm() string {
	var text []string
	for _, b := range r.bytes {
		text = append(text, fmt.Sprintf("$0x%02x", b))
	}
	return strings.Join(text, "; BYTE ") + " // " + r.comment
}

func asm(operands []operand.Op) string {
	var text []string
	for _, op := range operands {
		text = append(text, op.Asm())
	}
	return strings.Join(text, ", ")
}
