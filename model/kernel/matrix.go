package kernel

import "fmt"

// panelWidth is the number of columns of a full panel: three 64-byte vectors, which
// with nine rows fill the registers of AVX-512.
const panelWidth = 3 * lanes

// Matrix is a weight matrix of in rows (k) and out columns with its bias, packed once into panels of
// columns: [panel][k][width], width 48, and in the last panel the smallest of 16, 32
// and 48 that holds the rest, padded with zero columns. It is immutable and safe for
// concurrent use.
type Matrix struct {
	in, out int
	packed  []float32
	bias    []float32 // padded with zeros to roundWidth(out)
	memory  *Memory   // keeps packed and bias mapped
}

// MatrixSize is the room in a Memory that an in x out matrix takes, in floats.
func MatrixSize(in, out int) int { return RoundTake((in + 1) * roundWidth(out)) }

func roundWidth(out int) int { return (out + lanes - 1) / lanes * lanes }

// Pack packs w[in][out], the layout of a Conv1D, and bias[out]; nil is no bias.
func Pack(m *Memory, w, bias []float32, in, out int) *Matrix {
	return pack(m, w, bias, in, out, out, 1)
}

// PackTransposed packs w[out][in], the layout of an embedding or a Linear.
func PackTransposed(m *Memory, w, bias []float32, in, out int) *Matrix {
	return pack(m, w, bias, in, out, 1, in)
}

func pack(m *Memory, w, bias []float32, in, out, strideIn, strideOut int) *Matrix {
	if in < 1 || out < 1 || len(w) != in*out || bias != nil && len(bias) != out {
		panic(fmt.Sprintf("kernel: pack %d weights and %d biases as %d x %d", len(w), len(bias), in, out))
	}
	size := in * roundWidth(out)
	all := m.Take(size + roundWidth(out))
	x := &Matrix{in: in, out: out, packed: all[:size:size], bias: all[size:], memory: m}
	copy(x.bias, bias)
	for p := range x.panels() {
		panel, width := x.panel(p)
		first := p * panelWidth
		for j := range min(width, out-first) {
			for k := range in {
				panel[k*width+j] = w[k*strideIn+(first+j)*strideOut]
			}
		}
	}
	return x
}

// In is the length of the rows that the matrix multiplies.
func (x *Matrix) In() int { return x.in }

// Out is the number of columns, the length of a result row.
func (x *Matrix) Out() int { return x.out }

func (x *Matrix) panels() int { return (x.out + panelWidth - 1) / panelWidth }

// panel returns the weights of panel p, [in][width], and its width.
func (x *Matrix) panel(p int) (weights []float32, width int) {
	width = min(panelWidth, roundWidth(x.out)-p*panelWidth)
	return x.packed[p*panelWidth*x.in:][:width*x.in], width
}

// Column copies column j, In values, to dst: a row of the embedding that shares its
// weights with the head.
func (x *Matrix) Column(dst []float32, j int) {
	panel, width := x.panel(j / panelWidth)
	j %= panelWidth
	for k := range dst[:x.in] {
		dst[k] = panel[k*width+j]
	}
}
