//go:build arm64 && !purego

package kernel

import "runtime"

// best is the set for every arm64 processor: ASIMD, or NEON, is part of its base, and
// Go's own runtime relies on it. Only the build tag purego leaves it unused.
func best() *ops { return neon() }

func available() []*ops { return []*ops{neon(), portable()} }

// relax gives way for a moment inside a spin.
func relax() { runtime.Gosched() }

// neonRows is the most rows that a matrix loop has room for, neonChains how many registers
// the loop of arithmetic alone adds to.
const (
	neonRows   = 6
	neonChains = 2 * peakChains
)

// neon is the set of loops on four floats at a time. Each fuses multiplication with
// addition in the order of the sets for amd64 and so has their bits. There are no loops on
// pairs of bfloat16: what the processor has for them, BFDOT and BFMMLA, rounds sums in
// another way than the instruction that defines [ops.pairs].
func neon() *ops {
	o := portable()
	o.name, o.widens = "NEON", true
	o.panel = panelsNEON().run
	o.panelF16 = panelsF16NEON().run
	o.panelBF16 = panelsBF16NEON().run
	o.pairs, o.round = nil, roundLines
	wide, narrow := attentionNEON(), attentionBF16NEON()
	o.scores, o.values = wide.runScores, wide.runValues
	o.scores16, o.values16 = narrow.runScores, narrow.runValues
	o.softmax, o.norm = softmaxLines, normLines
	o.gelu, o.geluErf = geluLines, geluErfLines
	o.add, o.scale = addLines, scaleLines
	o.stream = func(b []byte) uint32 { return streamNEON(len(b)/256, &b[0]) }
	o.peaks = []Peak{{Name: "NEON float32", run: peakNEON, flop: 2 * neonChains * 4}}
	return o
}

// neonPanels are the matrix loops on one format: narrow on 16 columns for each number of
// rows, wide on all 48 of a panel for one and two.
//
// Here as in all that follows, slices are indexed at their ends before their pointers are
// taken, so that a wrong shape panics instead of reading past memory.
type neonPanels[B float32 | uint16] struct {
	step   int // how many k lie side by side in b
	narrow [neonRows + 1]neonPanel[B]
	wide   [3]neonPanel[B]
}

// neonPanel multiplies rows of a with weights; ldb is in columns. See vector_arm64.go.
type neonPanel[B float32 | uint16] func(k int, a *float32, lda int, b *B, ldb int, start *float32, lds int, c *float32, ldc int)

func panelsNEON() *neonPanels[float32] {
	return &neonPanels[float32]{
		step:   1,
		narrow: [...]neonPanel[float32]{nil, panel1x16NEON, panel2x16NEON, panel3x16NEON, panel4x16NEON, panel5x16NEON, panel6x16NEON},
		wide:   [...]neonPanel[float32]{nil, panel1x48NEON, panel2x48NEON},
	}
}

func panelsF16NEON() *neonPanels[uint16] {
	return &neonPanels[uint16]{
		step:   1,
		narrow: [...]neonPanel[uint16]{nil, panelF161x16NEON, panelF162x16NEON, panelF163x16NEON, panelF164x16NEON, panelF165x16NEON, panelF166x16NEON},
		wide:   [...]neonPanel[uint16]{nil, panelF161x48NEON, panelF162x48NEON},
	}
}

func panelsBF16NEON() *neonPanels[uint16] {
	return &neonPanels[uint16]{
		step:   2,
		narrow: [...]neonPanel[uint16]{nil, panelBF161x16NEON, panelBF162x16NEON, panelBF163x16NEON, panelBF164x16NEON, panelBF165x16NEON, panelBF166x16NEON},
		wide:   [...]neonPanel[uint16]{nil, panelBF161x48NEON, panelBF162x48NEON},
	}
}

// run does any number of rows, in tiles of like size.
func (p *neonPanels[B]) run(rows, k int, a []float32, lda int, b []B, width int, start []float32, lds int, c []float32, ldc int) {
	_, _ = a[(rows-1)*lda+k-1], b[(k+p.step-1)/p.step*p.step*width-1]
	_, _ = start[(rows-1)*lds+width-1], c[(rows-1)*ldc+width-1]
	for r := 0; r < rows; {
		n := min(neonRows, rows-r)
		if left := rows - r; left > neonRows && left < 2*neonRows {
			n = (left + 1) / 2
		}
		if n < len(p.wide) && width == panelWidth {
			p.wide[n](k, &a[r*lda], lda, &b[0], width, &start[r*lds], lds, &c[r*ldc], ldc)
		} else {
			for j := 0; j < width; j += lanes {
				p.narrow[n](k, &a[r*lda], lda, &b[j*p.step], width, &start[r*lds+j], lds, &c[r*ldc+j], ldc)
			}
		}
		r += n
	}
}
