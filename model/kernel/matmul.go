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
	// lines then stay in the first-level cache. Passes continue each other's chains, and
	// as a multiple of groupK it cuts no group.
	stepK = 768
	// tileRows is a row count that every instruction set's tiles divide or nearly so,
	// and the number of query rows that share a pass over keys and values.
	tileRows = 6
	// outputRows is how many rows of a panel that is wider than the output are
	// computed in scratch at a time.
	outputRows = 36
	// unitsPerThread is into how many units a product is cut for each thread: enough
	// that a thread which is held up leaves little undone.
	unitsPerThread = 12
)

// matmul is one product on its way through the team: units of a block of rows by a
// group of panels.
type matmul struct {
	team     *Team
	dst, src []float32
	rounded  []uint16 // src in bfloat16, if the product takes it so: rows of stride
	stride   int
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
	if w.format == BFloat16Pairs && t.ops.pairs != nil {
		j.rounded, j.stride = t.roundRows(src, rows, w.in), BFloat16Pairs.rows(w.in)
	}
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
	_, width := j.w.panel(p)
	out := j.w.out
	dst := j.dst[r0*out+p*panelWidth:]
	if left := out - p*panelWidth; left < width {
		tile := j.team.scratch[thread].tile
		for r := 0; r < rows; r += outputRows {
			n := min(outputRows, rows-r)
			j.chain(r0+r, n, p, tile, width)
			for i := range n {
				copy(dst[(r+i)*out:][:left], tile[i*width:])
			}
		}
		return
	}
	j.chain(r0, rows, p, dst, out)
}

// chain runs rows from r0 on over all of k in steps, each continuing from the results of
// the last.
func (j *matmul) chain(r0, rows, p int, dst []float32, ldd int) {
	w, ops, in := j.w, j.team.ops, j.w.in
	from, width := w.panel(p)
	start, lds := w.bias[p*panelWidth:][:width], 0
	for k := 0; k < in; k += stepK {
		n, at := min(stepK, in-k), from+k*width
		switch {
		case j.rounded != nil:
			ops.pairs(rows, BFloat16Pairs.rows(n), j.rounded[r0*j.stride+k:], j.stride, w.packed16[at:], width, start, lds, dst, ldd)
		case w.format == Float32:
			ops.panel(rows, n, j.src[r0*in+k:], in, w.packed[at:], width, start, lds, dst, ldd)
		case w.format == Float16:
			ops.panelF16(rows, n, j.src[r0*in+k:], in, w.packed16[at:], width, start, lds, dst, ldd)
		default:
			ops.panelBF16(rows, n, j.src[r0*in+k:], in, w.packed16[at:], width, start, lds, dst, ldd)
		}
		start, lds = dst, ldd
	}
}

// rounding is rows on their way to bfloat16; a unit is a run of rows.
type rounding struct {
	team     *Team
	src      []float32
	in       int
	rows     int
	unitRows int
}

// roundRows rounds src[rows][in] to bfloat16, padding an odd in with zeros. The result is
// valid until the next call.
func (t *Team) roundRows(src []float32, rows, in int) []uint16 {
	if n := rows * BFloat16Pairs.rows(in); n > len(t.rounded) {
		t.rounded = make([]uint16, n)
	}
	j := &t.rounding
	*j = rounding{team: t, src: src, in: in, rows: rows, unitRows: rows}
	units := 1
	if rows*in >= inlineWork {
		j.unitRows = max(1, rows/(t.Threads()*unitsPerThread))
		units = (rows + j.unitRows - 1) / j.unitRows
	}
	t.Run(units, j)
	*j = rounding{}
	return t.rounded
}

// Unit rounds a run of rows.
func (j *rounding) Unit(_, unit int) {
	stride := BFloat16Pairs.rows(j.in)
	for r := unit * j.unitRows; r < min((unit+1)*j.unitRows, j.rows); r++ {
		row := j.team.rounded[r*stride:][:stride]
		row[stride-1] = 0
		j.team.ops.round(row[:j.in], j.src[r*j.in:][:j.in])
	}
}
