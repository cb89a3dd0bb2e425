package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tile is a tile register, of 16 rows of 64 bytes, TMM0 to TMM7. To avo, which knows no
// such registers, it is a constant: the loops say themselves which they use.
type tile struct{ operand.U8 }

func tmm(n int) tile { return tile{operand.U8(n)} }

func (t tile) Asm() string { return fmt.Sprintf("TMM%d", byte(t.U8)) }

// The instructions of AMX that are used. Sources stand before the destination.
const (
	ldtilecfg   = "LDTILECFG"
	tilerelease = "TILERELEASE"
	tilezero    = "TILEZERO"
	tileloadd   = "TILELOADD"
	tilestored  = "TILESTORED"
	tdpbf16ps   = "TDPBF16PS"
)

// loadShapes gives the tiles the rows and bytes that the 64 bytes at p say, and clears them.
func loadShapes(p reg.GPVirtual) {
	m := operand.Mem{Base: p}
	tileInstruction(ldtilecfg, []operand.Op{m}, m)
}

// releaseTiles leaves the tiles as if never used: their state, 8 KB, is then not saved when
// a thread is.
func releaseTiles() { tileInstruction(tilerelease, nil) }

func zeroTile(t tile) { tileInstruction(tilezero, []operand.Op{t}) }

// loadTile loads rows that lie stride bytes apart from m on.
func loadTile(m operand.Mem, stride reg.GPVirtual, t tile) {
	m.Index, m.Scale = stride, 1
	tileInstruction(tileloadd, []operand.Op{m, t}, m)
}

func storeTile(t tile, m operand.Mem, stride reg.GPVirtual) {
	m.Index, m.Scale = stride, 1
	tileInstruction(tilestored, []operand.Op{t, m}, m)
}

// multiplyTiles adds to c the product of rows of a with pairs of b, in bfloat16: even and
// odd products each from 0 on, fused, then their sum.
func multiplyTiles(b, a, c tile) { tileInstruction(tdpbf16ps, []operand.Op{b, a, c}) }

func tileInstruction(opcode string, operands []operand.Op, inputs ...operand.Op) {
	build.Instruction(&ir.Instruction{
		Opcode: opcode, Operands: operands, Inputs: inputs, ISA: []string{tileForms[opcode].isa},
	})
}

// tileForm is how an instruction is encoded: all have VEX, 128 bits, the map 0F38 and W0.
type tileForm struct {
	prefix byte // 0 none, 2 F3, 3 F2
	opcode byte
	isa    string
}

var tileForms = map[string]tileForm{
	ldtilecfg:   {0, 0x49, "AMX_TILE"},
	tilerelease: {0, 0x49, "AMX_TILE"},
	tilezero:    {3, 0x49, "AMX_TILE"},
	tileloadd:   {3, 0x4b, "AMX_TILE"},
	tilestored:  {2, 0x4b, "AMX_TILE"},
	tdpbf16ps:   {2, 0x5c, "AMX_BF16"},
}

// vex encodes an instruction. Its operands are a tile and memory in either order, one of
// the two, three tiles or none.
func (f tileForm) vex(operands []operand.Op) ([]byte, error) {
	var tiles []byte
	var mem *operand.Mem
	for _, op := range operands {
		if m, ok := op.(operand.Mem); ok {
			mem = &m
			continue
		}
		n, err := number(op)
		if err != nil {
			return nil, err
		}
		tiles = append(tiles, n)
	}
	var field, extra byte // the tile that ModRM names beside memory, and that of VEX
	var index, base byte
	last := []byte{0xc0}
	switch {
	case len(tiles) == 3:
		extra, field = tiles[0], tiles[2]
		last = []byte{0xc0 | tiles[1]}
	case len(tiles) == 1:
		field = tiles[0]
	}
	if mem != nil {
		var err error
		if last, index, base, err = address(*mem); err != nil {
			return nil, err
		}
	}
	last[0] |= field << 3
	head := []byte{
		0xc4,
		1<<7 | inverted(index, 3, 6) | inverted(base, 3, 5) | 2,
		(^extra&15)<<3 | f.prefix,
		f.opcode,
	}
	return append(head, last...), nil
}

// address encodes memory as ModRM, SIB and distance, always with a SIB, and returns the
// registers' numbers, whose high bits the prefix has.
func address(m operand.Mem) (bytes []byte, index, base byte, err error) {
	const none, sp, bp = 4, 4, 5
	index = none
	if base, err = number(m.Base); err != nil {
		return nil, 0, 0, err
	}
	if m.Index != nil {
		if index, err = number(m.Index); err != nil {
			return nil, 0, 0, err
		}
		if index == sp || m.Scale != 1 {
			return nil, 0, 0, fmt.Errorf("%s cannot be encoded", m.Asm())
		}
	}
	sib := index&7<<3 | base&7
	switch d := m.Disp; {
	case d == 0 && base&7 != bp:
		return []byte{4, sib}, index, base, nil
	case int(int8(d)) == d:
		return []byte{1<<6 | 4, sib, byte(d)}, index, base, nil
	default:
		return binary.LittleEndian.AppendUint32([]byte{2<<6 | 4, sib}, uint32(int32(d))), index, base, nil
	}
}
