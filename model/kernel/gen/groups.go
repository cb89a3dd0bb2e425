package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amx has no lines: it only names loops on tiles.
var amx = set{"AMX", 1}

// groups writes the matrix loops that sum pairs of bfloat16 in groups of 32 k, the order of
// AMX: on vectors for few rows, and on tiles for many.
func groups() {
	for rows := 1; rows <= 4; rows++ {
		for _, lines := range []int{1, 3} {
			avx512.groupsPanel(rows, lines)
		}
	}
	for _, shape := range [][2]int{{1, 1}, {1, 3}, {2, 1}, {2, 2}} {
		groupsTiles(shape[0], shape[1])
	}
	peakTiles()
}

// mxcsr is round to nearest, no exceptions, denormals taken and left as zero: the
// arithmetic of AMX.
const mxcsr = 0x1f80 | 1<<15 | 1<<6

// groupsPanel is rows x 16*lines results, of which the even and the odd products of a group
// are in registers, and the sums before it in c: with them in registers four rows of
// three lines would not fit.
func (s set) groupsPanel(rows, lines int) {
	name := label("groups%dx%d", rows, 16*lines)
	s.begin(name, label("computes c[r*ldc+j] = start[r*lds+j] + sum over i < k of a[r*lda+i]*b[(i/2*ldb+j)*2+i%%2], k even, in groups of 32, for %d rows and %d columns.", rows, 16*lines),
		"func(k int, a *uint16, lda int, b *uint16, ldb int, start *float32, lds int, c *float32, ldc int)")
	caller, control := AllocLocal(4), AllocLocal(4)
	STMXCSR(caller)
	MOVL(U32(mxcsr), control)
	LDMXCSR(control)

	ldc := loadBytes("ldc")
	c := newRows(load64("c"), ldc, rows)
	start, lds := load64("start"), loadBytes("lds")
	for r := range rows {
		for j := range lines {
			l := s.line()
			s.load(Mem{Base: start, Disp: 64 * j}, l)
			s.store(l, c.at(r).Offset(64*j))
		}
		ADDQ(lds, start)
	}
	k, lda := load64("k"), load64("lda")
	SHLQ(Imm(1), lda)
	a := newRows(load64("a"), lda, rows)
	b, ldb := load64("b"), loadBytes("ldb")
	high := s.highHalves()
	sums := func() (acc [][]line) {
		for range rows {
			var row []line
			for range lines {
				l := s.line()
				s.zero(l)
				row = append(row, l)
			}
			acc = append(acc, row)
		}
		return acc
	}

	group, pair := name+"_group"+s.name, name+"_pair"+s.name
	Label(group)
	n := GP64()
	MOVQ(imm(32), n)
	CMPQ(k, n)
	CMOVQLT(k, n)
	SUBQ(n, k)
	even, odd := sums(), sums()
	Label(pair)
	for j := range lines {
		prefetch(rows, lines, false, Mem{Base: b, Disp: 64 * j})
	}
	// The low half of a word is the even one.
	step := func(widen func(m Mem, r reg.VecVirtual), widenOne func(m Mem, r reg.VecVirtual), acc [][]line) {
		var w []reg.VecVirtual
		for j := range lines {
			r := s.reg()
			widen(Mem{Base: b, Disp: 64 * j}, r)
			w = append(w, r)
		}
		for r := range rows {
			v := s.reg()
			widenOne(a.at(r), v)
			for j := range lines {
				VFMADD231PS(w[j], v, acc[r][j][0])
			}
		}
	}
	step(func(m Mem, r reg.VecVirtual) { VPSLLD(Imm(16), m, r) },
		func(m Mem, r reg.VecVirtual) { VPSLLD_BCST(Imm(16), m, r) }, even)
	step(func(m Mem, r reg.VecVirtual) { VPANDD(m, high, r) },
		func(m Mem, r reg.VecVirtual) { VPANDD_BCST(m, high, r) }, odd)
	a.advance(4)
	ADDQ(ldb, b)
	SUBQ(imm(2), n)
	JNZ(ref(pair))
	for r := range rows {
		for j := range lines {
			sum, at := even[r][j][0], c.at(r).Offset(64*j)
			VADDPS(odd[r][j][0], sum, sum)
			VADDPS(at, sum, sum)
			VMOVUPS(sum, at)
		}
	}
	TESTQ(k, k)
	JNZ(ref(group))
	LDMXCSR(caller)
	end()
}

// groupsTiles is blocks of results in tile registers from 0 on; weights are in the last ones,
// and rows before them. None is loaded twice for a group: whether the processor would rename
// them is not documented.
func groupsTiles(rowTiles, lines int) {
	rows := 16 * rowTiles
	name := label("groups%dx%d", rows, 16*lines)
	amx.begin(name, label("is groupsScalar on tiles of a shape, for blocks of %d rows, by %d columns, over groups of the shape's depth. A shape of fewer than 16 rows is for a single block. Distances are in bytes.", rows, 16*lines),
		"func(blocks, groups int, a *uint16, lda int, b *uint16, ldb int, start *float32, lds int, c *float32, ldc int, shape *[64]byte)")
	weights := func(j int) tile { return tmm(8 - lines + j) }
	row := func(r int) tile { return tmm(8 - lines - rowTiles + r) }
	result := func(r, j int) tile { return tmm(r*lines + j) }

	loadShapes(load64("shape"))
	a, lda := load64("a"), load64("lda")
	start, lds := load64("start"), load64("lds")
	c, ldc := load64("c"), load64("ldc")
	ldb := load64("ldb")
	blocks := must(Param("blocks").Resolve()).Addr
	// results runs f on every tile of results, whose memory is at p.
	results := func(p, ld reg.GPVirtual, f func(m Mem, t tile)) {
		for r := range rowTiles {
			for j := range lines {
				f(Mem{Base: p, Disp: 64 * j}, result(r, j))
			}
			next := GP64()
			MOVQ(ld, next)
			SHLQ(Imm(4), next)
			ADDQ(next, p)
		}
	}

	block, group := name+"_block"+amx.name, name+"_group"+amx.name
	Label(block)
	results(start, lds, func(m Mem, t tile) { loadTile(m, lds, t) })
	at := []reg.GPVirtual{GP64()}
	MOVQ(a, at[0])
	for range rowTiles - 1 {
		next := GP64()
		MOVQ(lda, next)
		SHLQ(Imm(4), next)
		ADDQ(a, next)
		at = append(at, next)
	}
	b, n := load64("b"), load64("groups")
	Label(group)
	if rowTiles == 1 {
		prefetchGroup(lines, b, ldb)
	}
	for r := range rowTiles {
		loadTile(Mem{Base: at[r]}, lda, row(r))
		for j := range lines {
			if r == 0 {
				loadTile(Mem{Base: b, Disp: 64 * j}, ldb, weights(j))
			}
		}
		for j := range lines {
			multiplyTiles(weights(j), row(r), result(r, j))
		}
	}
	for _, p := range at {
		ADDQ(imm(64), p)
	}
	for range 2 { // 16 rows of the panel
		LEAQ(Mem{Base: b, Index: ldb, Scale: 8}, b)
	}
	DECQ(n)
	JNZ(ref(group))
	results(c, ldc, func(m Mem, t tile) { storeTile(t, m, ldc) })
	skip := GP64()
	MOVQ(lda, skip)
	SHLQ(Imm(uint64(log2(rows))), skip)
	ADDQ(skip, a)
	DECQ(blocks)
	JNZ(ref(block))
	releaseTiles()
	RET()
}

// prefetchGroup asks for the weights some way behind b, 16 rows of the panel. A block of 16
// rows is done with them sooner than memory delivers; larger ones come back for the panel.
// This is what vectors gain from, and was not measured for tiles.
func prefetchGroup(lines int, b, ldb reg.GPVirtual) {
	p := GP64()
	MOVQ(b, p)
	for range 16 {
		for j := range lines {
			PREFETCHT1(Mem{Base: p, Disp: 2048*lines + 64*j})
		}
		ADDQ(ldb, p)
	}
}

// peakTiles multiplies tiles in as many chains as there are registers for.
func peakTiles() {
	amx.begin("peakGroups", "does n passes of 6 multiplications of tiles, whose shape says that they are full.", "func(n int, shape *[64]byte)")
	const chains = 6
	loadShapes(load64("shape"))
	for t := range 8 {
		zeroTile(tmm(t))
	}
	n := load64("n")
	loop := "peakGroups_loop" + amx.name
	Label(loop)
	for t := range chains {
		multiplyTiles(tmm(7), tmm(6), tmm(t))
	}
	DECQ(n)
	JNZ(ref(loop))
	releaseTiles()
	RET()
}
