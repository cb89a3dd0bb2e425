//go:build amd64 && !purego

package kernel

//go:generate go -C gen run . -out ../vector_amd64.s -stubs ../vector_amd64.go -pkg kernel

import (
	"math"

	"golang.org/x/sys/cpu"
)

// best is the widest set of loops that this CPU and its system support.
func best() *ops { return available()[0] }

// available lists the sets that run here, the best first. To leave a feature unused, start
// the process with GODEBUG=cpu.amxtile=off, or cpu.amxbf16, cpu.avx512bf16, cpu.avx512f or
// cpu.avx2 in its place; several are separated by commas. Package cpu reads them. So does
// Go's runtime, which does not know those of AMX and BF16, and says so on standard error.
func available() []*ops {
	var sets []*ops
	x := &cpu.X86
	if x.HasAVX512F && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512BW && x.HasBMI2 {
		if noAMX() == nil {
			sets = append(sets, avx512AMX())
		}
		if x.HasAVX512BF16 {
			sets = append(sets, avx512BF16())
		}
		sets = append(sets, avx512())
	}
	// Every processor with AVX2 converts halves, though that is a feature of its own.
	if x.HasAVX2 && x.HasFMA && x.HasBMI2 {
		sets = append(sets, avx2())
	}
	return append(sets, portable())
}

// The assembly's signatures; see vector_amd64.go. Distances are in floats.
type (
	// tileFunc multiplies rows of A with weights kept as B. ldb is in columns.
	tileFunc[A, B any] func(k int, a *A, lda int, b *B, ldb int, start *float32, lds int, c *float32, ldc int)

	elementwiseFunc func(n int, x *float32)
)

// vector drives the loops of one vector instruction set over the shapes that ops
// allows: it cuts them into the tiles that the assembly has, which never changes the
// order within an element. Slices are indexed at their ends before their pointers are
// taken, so that a wrong shape panics here instead of reading past memory there.
type vector struct {
	panels                tiles[float32, float32]
	panelsF16, panelsBF16 tiles[float32, uint16]
	attention             attentionLoops[float32]
	attention16           attentionLoops[uint16]
	round                 func(dst []uint16, src []float32)

	softmax       func(n int, s *float32) float32
	norm          func(n int, dst, x, gain, bias *float32, eps float32)
	gelu, geluErf elementwiseFunc
	add           func(n int, dst, src *float32)
	scale         func(n int, x *float32, f float32)
	stream        func(n int, p *byte) float32
	peaks         []Peak
}

// tiles are the matrix loops on one format, [rows][lines of the panel]; a panel for which
// there is none is cut into columns of one line.
type tiles[A, B any] [10][4]tileFunc[A, B]

func (v *vector) ops(name string) *ops {
	return &ops{
		name:      name,
		widens:    true,
		panel:     v.panels.runner(1),
		panelF16:  v.panelsF16.runner(1),
		panelBF16: v.panelsBF16.runner(2),
		round:     v.round,
		scores:    v.attention.runScores,
		values:    v.attention.runValues,
		scores16:  v.attention16.runScores,
		values16:  v.attention16.runValues,
		softmax: func(s []float32) float32 {
			return v.softmax(len(s), &s[0])
		},
		norm: func(dst, x, gain, bias []float32, eps float32) {
			n := len(x)
			v.norm(n, &dst[:n][0], &x[0], &gain[:n][0], &bias[:n][0], eps)
		},
		gelu:    func(x []float32) { v.gelu(len(x), &x[0]) },
		geluErf: func(x []float32) { v.geluErf(len(x), &x[0]) },
		add:     func(dst, src []float32) { v.add(len(src), &dst[:len(src)][0], &src[0]) },
		scale:   func(x []float32, f float32) { v.scale(len(x), &x[0], f) },
		stream:  func(b []byte) uint32 { return math.Float32bits(v.stream(len(b)/256, &b[0])) },
		peaks:   v.peaks,
	}
}

// runner is the loop over any number of rows. step is how many k lie side by side in b.
func (t *tiles[A, B]) runner(step int) func(rows, k int, a []A, lda int, b []B, width int, start []float32, lds int, c []float32, ldc int) {
	most := len(t) - 1
	for t[most][1] == nil {
		most--
	}
	return func(rows, k int, a []A, lda int, b []B, width int, start []float32, lds int, c []float32, ldc int) {
		_, _ = a[(rows-1)*lda+k-1], b[(k+step-1)/step*step*width-1]
		_, _ = start[(rows-1)*lds+width-1], c[(rows-1)*ldc+width-1]
		for r := 0; r < rows; {
			n := min(most, rows-r)
			if left := rows - r; left > most && left < 2*most {
				n = (left + 1) / 2 // two tiles of like size are faster than a full one and a rest
			}
			if f := t[n][width/lanes]; f != nil {
				f(k, &a[r*lda], lda, &b[0], width, &start[r*lds], lds, &c[r*ldc], ldc)
			} else {
				f := t[n][1]
				for j := 0; j < width; j += lanes {
					f(k, &a[r*lda], lda, &b[j*step], width, &start[r*lds+j], lds, &c[r*ldc+j], ldc)
				}
			}
			r += n
		}
	}
}

func avx512() *ops { return vectorAVX512().ops("AVX-512") }

// avx512BF16 is avx512 with the instruction that multiplies pairs of bfloat16.
func avx512BF16() *ops {
	o := vectorAVX512().ops("AVX-512 with BF16")
	pairs := tiles[uint16, uint16]{
		1: {1: pairs1x16AVX512, 3: pairs1x48AVX512},
		2: {1: pairs2x16AVX512, 3: pairs2x48AVX512},
		3: {1: pairs3x16AVX512, 3: pairs3x48AVX512},
		4: {1: pairs4x16AVX512, 3: pairs4x48AVX512},
		5: {1: pairs5x16AVX512, 3: pairs5x48AVX512},
		6: {1: pairs6x16AVX512, 3: pairs6x48AVX512},
		7: {1: pairs7x16AVX512, 3: pairs7x48AVX512},
		8: {1: pairs8x16AVX512, 3: pairs8x48AVX512},
		9: {1: pairs9x16AVX512, 3: pairs9x48AVX512},
	}
	o.pairs = pairs.runner(2)
	o.peaks = []Peak{{Name: "AVX-512 bfloat16 pairs", Pairs: true, run: peakPairsAVX512, flop: 2 * peakChains * 32}}
	return o
}

func vectorAVX512() *vector {
	return &vector{
		panels: tiles[float32, float32]{
			1: {1: panel1x16AVX512, 2: panel1x32AVX512, 3: panel1x48AVX512},
			2: {1: panel2x16AVX512, 2: panel2x32AVX512, 3: panel2x48AVX512},
			3: {1: panel3x16AVX512, 2: panel3x32AVX512, 3: panel3x48AVX512},
			4: {1: panel4x16AVX512, 2: panel4x32AVX512, 3: panel4x48AVX512},
			5: {1: panel5x16AVX512, 2: panel5x32AVX512, 3: panel5x48AVX512},
			6: {1: panel6x16AVX512, 2: panel6x32AVX512, 3: panel6x48AVX512},
			7: {1: panel7x16AVX512, 2: panel7x32AVX512, 3: panel7x48AVX512},
			8: {1: panel8x16AVX512, 2: panel8x32AVX512, 3: panel8x48AVX512},
			9: {1: panel9x16AVX512, 2: panel9x32AVX512, 3: panel9x48AVX512},
		},
		panelsF16: tiles[float32, uint16]{
			1: {1: panelF161x16AVX512, 3: panelF161x48AVX512},
			2: {1: panelF162x16AVX512, 3: panelF162x48AVX512},
			3: {1: panelF163x16AVX512, 3: panelF163x48AVX512},
			4: {1: panelF164x16AVX512, 3: panelF164x48AVX512},
			5: {1: panelF165x16AVX512, 3: panelF165x48AVX512},
			6: {1: panelF166x16AVX512, 3: panelF166x48AVX512},
			7: {1: panelF167x16AVX512, 3: panelF167x48AVX512},
			8: {1: panelF168x16AVX512, 3: panelF168x48AVX512},
			9: {1: panelF169x16AVX512, 3: panelF169x48AVX512},
		},
		panelsBF16: tiles[float32, uint16]{
			1: {1: panelBF161x16AVX512, 3: panelBF161x48AVX512},
			2: {1: panelBF162x16AVX512, 3: panelBF162x48AVX512},
			3: {1: panelBF163x16AVX512, 3: panelBF163x48AVX512},
			4: {1: panelBF164x16AVX512, 3: panelBF164x48AVX512},
			5: {1: panelBF165x16AVX512, 3: panelBF165x48AVX512},
			6: {1: panelBF166x16AVX512, 3: panelBF166x48AVX512},
			7: {1: panelBF167x16AVX512, 3: panelBF167x48AVX512},
			8: {1: panelBF168x16AVX512, 3: panelBF168x48AVX512},
			9: {1: panelBF169x16AVX512, 3: panelBF169x48AVX512},
		},
		attention: attentionAVX512(), attention16: attention16AVX512(),
		round:   func(dst []uint16, src []float32) { roundAVX512(len(src), &dst[:len(src)][0], &src[0]) },
		softmax: softmaxAVX512, norm: normAVX512, gelu: geluAVX512, geluErf: geluErfAVX512, add: addAVX512, scale: scaleAVX512,
		stream: streamAVX512, peaks: []Peak{{Name: "AVX-512 float32", run: peakAVX512, flop: 2 * peakChains * 16}},
	}
}

func avx2() *ops {
	v := &vector{
		panels: tiles[float32, float32]{
			1: {1: panel1x16AVX2, 3: panel1x48AVX2},
			2: {1: panel2x16AVX2, 3: panel2x48AVX2},
			3: {1: panel3x16AVX2},
			4: {1: panel4x16AVX2},
			5: {1: panel5x16AVX2},
			6: {1: panel6x16AVX2},
		},
		panelsF16: tiles[float32, uint16]{
			1: {1: panelF161x16AVX2, 3: panelF161x48AVX2},
			2: {1: panelF162x16AVX2, 3: panelF162x48AVX2},
			3: {1: panelF163x16AVX2},
			4: {1: panelF164x16AVX2},
			5: {1: panelF165x16AVX2},
			6: {1: panelF166x16AVX2},
		},
		panelsBF16: tiles[float32, uint16]{
			1: {1: panelBF161x16AVX2, 3: panelBF161x48AVX2},
			2: {1: panelBF162x16AVX2, 3: panelBF162x48AVX2},
			3: {1: panelBF163x16AVX2},
			4: {1: panelBF164x16AVX2},
			5: {1: panelBF165x16AVX2},
			6: {1: panelBF166x16AVX2},
		},
		attention: attentionAVX2(), attention16: attention16AVX2(),
		round:   roundScalar,
		softmax: softmaxAVX2, norm: normAVX2, gelu: geluAVX2, geluErf: geluErfAVX2, add: addAVX2, scale: scaleAVX2,
		stream: streamAVX2, peaks: []Peak{{Name: "AVX2 float32", run: peakAVX2, flop: 2 * peakChains * 8}},
	}
	return v.ops("AVX2")
}
