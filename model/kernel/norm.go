package kernel

import "fmt"

// inlineWork is the number of floats below which sharing a pass over them out costs
// more than the pass.
const inlineWork = 8192

// norm is a layer norm on its way through the team; a unit is a run of rows.
type norm struct {
	team            *Team
	dst, x, residue []float32
	gain, bias      []float32
	eps             float32
	rows, unitRows  int
}

// LayerNorm adds residue[rows][width] to x, if there is one, and computes dst as the
// layer norm of every row of x: (x-mean)/sqrt(variance+eps)*gain + bias. width is the
// length of gain.
func (t *Team) LayerNorm(dst, x, residue []float32, rows int, gain, bias []float32, eps float32) {
	width := len(gain)
	if rows < 1 || len(bias) != width || len(x) < rows*width || len(dst) < rows*width || residue != nil && len(residue) < rows*width {
		panic(fmt.Sprintf("kernel: norm of %d rows of %d: dst %d, x %d, residue %d, bias %d", rows, width, len(dst), len(x), len(residue), len(bias)))
	}
	t.norm = norm{team: t, dst: dst, x: x, residue: residue, gain: gain, bias: bias, eps: eps, rows: rows, unitRows: rows}
	units := 1
	if rows*width >= inlineWork {
		t.norm.unitRows = max(1, rows/(t.Threads()*unitsPerThread))
		units = (rows + t.norm.unitRows - 1) / t.norm.unitRows
	}
	t.Run(units, &t.norm)
	t.norm = norm{}
}

// Unit does a run of rows.
func (j *norm) Unit(_, unit int) {
	width := len(j.gain)
	for r := unit * j.unitRows; r < min((unit+1)*j.unitRows, j.rows); r++ {
		x := j.x[r*width:][:width]
		if j.residue != nil {
			j.team.ops.add(x, j.residue[r*width:][:width])
		}
		j.team.ops.norm(j.dst[r*width:][:width], x, j.gain, j.bias, j.eps)
	}
}
