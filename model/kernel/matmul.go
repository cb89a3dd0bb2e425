package kernel

import "fmt"

// Activation is what a matrix product is passed through.
type Activation int

// The activations.
const (
	None    Activation = iota
	GELUNew            // GELU by the tanh formula
	GELU               // GELU by the error function
)

const (
	// stepK is how many k a pass over a panel takes: nine rows of a and the panel's
	// lines then stay in the first-level cache. Passes continue each other's chains.
	stepK = 768
	// tileRows is a row count that every instruction set's tiles divide or nearly so,
	// and the number of query rows that share a pass over keys and values.
	tileRows = 6
	// outputRows is how many rows of a panel that is wider than the output are
	// computed in scratch at a time.
	outputRows = 36
	// unitsPerThread is into how many units a product is cut for each thread: enough
	// that a thread which is held up leaves little undone.
	unitsPerThread = 6
)

// matmul is one product on its way through the team: units of a block of rows by a
// group of panels.
type matmul struct {
	team     *Team
	dst, src []float32
	w        *Matrix
	act      Activation
	rows     int
	unitRows int // rows of a unit
	unitCols int // panels of a unit
	groups   int // units side by side
}

// Matmul computes dst[rows][Out] = act(src[rows][In] * w + bias of w).
func (t *Team) Matmul(dst, src []float32, rows int, w *Matrix, act Activation) {
	if rows < 1 || len(dst) < rows*w.out || len(src) < rows*w.in {
		panic(fmt.Sprintf("kernel: multiply %d rows by %d x %d: dst %d, src %d", rows, w.in, w.out, len(dst), len(src)))
	}
	j := &t.matmul
	*j = matmul{team: t, dst: dst, src: src, w: w, act: act, rows: rows}
	want := t.Threads() * unitsPerThread
	j.unitCols = max(1, w.panels()/want)
	j.groups = (w.panels() + j.unitCols - 1) / j.unitCols
	blocks := max(1, min(want/j.groups, rows/outputRows))
	j.unitRows = (rows + blocks - 1) / blocks
	t.Run(j.groups*((rows+j.unitRows-1)/j.unitRows), j)
	*j = matmul{}
}

// Unit computes a block of rows by a group of panels.
func (j *matmul) Unit(thread, unit int) {
	r0 := unit / j.groups * j.unitRows
	rows := min(j.unitRows, j.rows-r0)
	p0 := unit % j.groups * j.unitCols
	p1 := min(p0+j.unitCols, j.w.panels())
	for p := p0; p < p1; p++ {
		j.panel(thread, r0, rows, p)
	}
	if j.act == None {
		return
	}
	c0, c1 := p0*panelWidth, min(p1*panelWidth, j.w.out)
	for r := r0; r < r0+rows; r++ {
		row := j.dst[r*j.w.out:]
		if j.act == GELUNew {
			j.team.ops.gelu(row[c0:c1])
		} else {
			j.team.ops.geluErf(row[c0:c1])
		}
	}
}

// panel computes rows of one panel's columns. Loops write whole panels, so columns that
// are padding go through scratch.
func (j *matmul) panel(thread, r0, rows, p int) {
	weights, width := j.w.panel(p)
	bias := j.w.bias[p*panelWidth:][:width]
	in, out := j.w.in, j.w.out
	src, dst := j.src[r0*in:], j.dst[r0*out+p*panelWidth:]
	if left := out - p*panelWidth; left < width {
		tile := j.team.scratch[thread].tile
		for r := 0; r < rows; r += outputRows {
			n := min(outputRows, rows-r)
			j.chain(n, src[r*in:], weights, width, bias, tile, width)
			for i := range n {
				copy(dst[(r+i)*out:][:left], tile[i*width:])
			}
		}
		return
	}
	j.chain(rows, src, weights, width, bias, dst, out)
}

// chain runs over all of k in steps, each continuing from the results of the last.
func (j *matmul) chain(rows int, src, weights []float32, width int, bias, dst []float32, ldd int) {
	start, lds, in := bias, 0, j.w.in
	for k := 0; k < in; k += stepK {
		j.team.ops.panel(rows, min(stepK, in-k), src[k:], in, weights[k*width:], width, start, lds, dst, ldd)
		start, lds = dst, ldd
	}
}
