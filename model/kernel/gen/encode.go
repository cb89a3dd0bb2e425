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
// treats it as any other until registers are allocated, and then writes its bytes; so it
// does with those of AMX.
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
	var bytes []byte
	var err error
	if i.Opcode == vdpbf16ps {
		bytes, err = evex(0x52, i.Operands)
	} else if form, ok := tileForms[i.Opcode]; ok {
		bytes, err = form.vex(i.Operands)
	} else {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", i.Opcode, err)
	}
	text := strings.TrimSuffix(i.Opcode+" "+asm(i.Operands), " ")
	i.Opcode, i.Operands = "BYTE", []operand.Op{raw{bytes, text}}
	return nil
})

// evex encodes an instruction of the map 0F38 with the prefix F3, W0, on whole 512-bit
// registers without a mask: bits of register numbers are stored inverted. The operands are
// the second source, the first and the destination.
func evex(opcode byte, operands []operand.Op) ([]byte, error) {
	var n [3]byte
	for i, op := range operands {
		var err error
		if n[i], err = number(op); err != nil {
			return nil, err
		}
	}
	src2, src1, dst := n[0], n[1], n[2]
	return []byte{
		0x62,
		inverted(dst, 3, 7) | inverted(src2, 4, 6) | inverted(src2, 3, 5) | inverted(dst, 4, 4) | 2,
		(^src1&15)<<3 | 1<<2 | 2,
		2<<5 | inverted(src1, 4, 3),
		opcode,
		0xc0 | dst&7<<3 | src2&7,
	}, nil
}

// inverted is the inverse of a bit of n, at another place.
func inverted(n byte, bit, to uint) byte { return (^n >> bit & 1) << to }

// number is that of a register.
func number(op operand.Op) (byte, error) {
	switch r := op.(type) {
	case tile:
		return byte(r.U8), nil
	case reg.Physical:
		return byte(r.PhysicalIndex()), nil
	}
	return 0, fmt.Errorf("operand %s is no register", op.Asm())
}

// raw is the operand of a BYTE that has more bytes after it on its line.
type raw struct {
	bytes   []byte
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
