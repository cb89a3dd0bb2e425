//go:build amd64 && !purego

package kernel

import (
	"errors"

	"golang.org/x/sys/cpu"
)

const (
	// fewRows is the most rows that vectors multiply alone: with so many they about keep pace
	// with memory, which delivers the weights. Tiles take nearly as long for one row as for
	// sixteen.
	fewRows = 4
	// tileHeight is the rows of a tile.
	tileHeight = 16
	// peakTiles is how many multiplications of tiles a pass of peakGroupsAMX has.
	peakTiles = 6
)

// noAMX is why the tiles of AMX are not used, or nil. Package cpu does not look whether the
// system saves them between threads; who asks for its permission learns that too.
func noAMX() error {
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return errors.New("the processor has no AMX tiles of bfloat16, or GODEBUG hides them")
	}
	return permitTiles()
}

// avx512AMX is avx512 with pairs of bfloat16 summed in groups: see groupsScalar.
func avx512AMX() *ops {
	o := vectorAVX512().ops("AVX-512 with AMX")
	few := groupsVectors()
	o.pairs = func(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
		if rows <= fewRows {
			few(rows, k, a, lda, b, width, start, lds, c, ldc)
		} else {
			groupsTiles(rows, k, a, lda, b, width, start, lds, c, ldc)
		}
	}
	o.peaks = []Peak{{
		Name: "AMX bfloat16 pairs", Pairs: true,
		run: func(passes int) {
			shape := shapeOfTiles(tileHeight, groupK, 1, 1)
			peakGroupsAMX(passes, &shape)
		},
		flop: 2 * peakTiles * tileHeight * lanes * groupK,
	}}
	return o
}

// groupsVectors is groupsScalar by vectors, up to four rows at a time.
func groupsVectors() func(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	pairs := tiles[uint16, uint16]{
		1: {1: groups1x16AVX512, 3: groups1x48AVX512},
		2: {1: groups2x16AVX512, 3: groups2x48AVX512},
		3: {1: groups3x16AVX512, 3: groups3x48AVX512},
		4: {1: groups4x16AVX512, 3: groups4x48AVX512},
	}
	return pairs.runner(2)
}

// groupsTiles is groupsScalar by tiles. A last group that is shorter than the others is
// multiplied by tiles of its shape: nothing is padded, so nothing past the rows and the
// panel is read, and no zero is added that would turn -0 into 0.
func groupsTiles(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	_, _ = a[(rows-1)*lda+k-1], b[k*width-1]
	_, _ = start[(rows-1)*lds+width-1], c[(rows-1)*ldc+width-1]
	if whole := k / groupK; whole > 0 {
		multiplyTiles(rows, whole, groupK, a, lda, b, width, start, lds, c, ldc)
		start, lds = c, ldc
	}
	if rest := k % groupK; rest > 0 {
		at := k - rest
		multiplyTiles(rows, 1, rest, a[at:], lda, b[at*width:], width, start, lds, c, ldc)
	}
}

// multiplyTiles multiplies groups of depth k each: rows in blocks of two tiles, then in blocks
// of one, the last of which may have fewer.
//
// Two tiles of rows by two of columns need all eight registers. The third line of a panel
// comes after them; blocks of one tile have room for all three.
func multiplyTiles(rows, groups, depth int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	const words, floats = 2, 4 // bytes
	ldaBytes, ldbBytes, ldsBytes, ldcBytes := lda*words, width*floats, lds*floats, ldc*floats
	r := 0
	if blocks := rows / (2 * tileHeight); blocks > 0 {
		j := 0
		if width >= 2*lanes {
			shape := shapeOfTiles(tileHeight, depth, 2, 2)
			groups32x32AMX(blocks, groups, &a[0], ldaBytes, &b[0], ldbBytes, &start[0], ldsBytes, &c[0], ldcBytes, &shape)
			j = 2 * lanes
		}
		if j < width {
			shape := shapeOfTiles(tileHeight, depth, 2, 1)
			groups32x16AMX(blocks, groups, &a[0], ldaBytes, &b[j*2], ldbBytes, &start[j], ldsBytes, &c[j], ldcBytes, &shape)
		}
		r = blocks * 2 * tileHeight
	}
	for ; r < rows; r += tileHeight {
		n := min(tileHeight, rows-r)
		if width == panelWidth {
			shape := shapeOfTiles(n, depth, 1, 3)
			groups16x48AMX(1, groups, &a[r*lda], ldaBytes, &b[0], ldbBytes, &start[r*lds], ldsBytes, &c[r*ldc], ldcBytes, &shape)
			continue
		}
		shape := shapeOfTiles(n, depth, 1, 1)
		for j := 0; j < width; j += lanes {
			groups16x16AMX(1, groups, &a[r*lda], ldaBytes, &b[j*2], ldbBytes, &start[r*lds+j], ldsBytes, &c[r*ldc+j], ldcBytes, &shape)
		}
	}
}

// shapeOfTiles is the tiles' configuration as LDTILECFG loads it, for blocks of tiles of so
// many rows, by lines of 16 columns, over groups of depth k. The last registers hold weights,
// one for each line, those before them rows of a, one for each tile of rows, and all others
// results.
//
// Byte 0 is the palette. From byte 16 on stand the bytes of a row of each tile, 16 bits each,
// and from byte 48 on their numbers of rows, in bytes.
func shapeOfTiles(rows, depth, rowTiles, lines int) (shape [64]byte) {
	const registers, line, pair, word = 8, 64, 2, 2
	shape[0] = 1
	for i := range registers {
		n, bytes := rows, line
		switch {
		case i >= registers-lines:
			n = depth / pair
		case i >= registers-lines-rowTiles:
			bytes = depth * word
		}
		shape[16+2*i], shape[48+i] = byte(bytes), byte(n)
	}
	return shape
}
