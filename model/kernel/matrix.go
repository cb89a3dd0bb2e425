package kernel

import "fmt"

// panelWidth is the number of columns of a full panel: three 64-byte vectors, which
// with nine rows fill the registers of AVX-512.
const panelWidth = 3 * lanes

// Matrix is a weight matrix of in rows (k) and out columns with its bias, packed once into
// panels of columns: [panel][k][width], width 48, and in the last panel the smallest of
// 16, 32 and 48 that holds the rest, padded with zero columns. Weights of bfloat16 lie in
// pairs, [panel][k/2][width][2], an odd k padded with zeros. It is immutable and safe for
// concurrent use.
type Matrix struct {
	format   Format
	in, out  int
	packed   []float32 // Float32
	packed16 []uint16  // all others
	bias     []float32 // padded with zeros to roundWidth(out)
	memory   *Memory   // keeps packed and bias mapped
}

// MatrixSize is the room in a Memory that an in x out matrix takes, in floats.
func MatrixSize(f Format, in, out int) int {
	weights := f.rows(in) * roundWidth(out)
	return RoundTake((weights*f.bytes()+3)/4) + RoundTake(roundWidth(out))
}

func roundWidth(out int) int { return (out + lanes - 1) / lanes * lanes }

// rows is in, rounded up to whole steps.
func (f Format) rows(in int) int { return (in + f.step() - 1) / f.step() * f.step() }

// Pack packs w[in][out], the layout of a Conv1D, and bias[out]; nil is no bias. Weights
// are rounded to the format.
func Pack(m *Memory, f Format, w, bias []float32, in, out int) *Matrix {
	return pack(m, f, w, bias, in, out, out, 1)
}

// PackTransposed packs w[out][in], the layout of an embedding or a Linear.
func PackTransposed(m *Memory, f Format, w, bias []float32, in, out int) *Matrix {
	return pack(m, f, w, bias, in, out, 1, in)
}

func pack(m *Memory, f Format, w, bias []float32, in, out, strideIn, strideOut int) *Matrix {
	if in < 1 || out < 1 || len(w) != in*out || bias != nil && len(bias) != out {
		panic(fmt.Sprintf("kernel: pack %d weights and %d biases as %d x %d", len(w), len(bias), in, out))
	}
	x := &Matrix{format: f, in: in, out: out, memory: m}
	if size := f.rows(in) * roundWidth(out); f == Float32 {
		x.packed = m.Take(size)
	} else {
		x.packed16 = m.take16(size)
	}
	x.bias = m.Take(roundWidth(out))
	copy(x.bias, bias)
	for p := range x.panels() {
		x.packPanel(p, w, strideIn, strideOut)
	}
	return x
}

// packPanel packs the columns of panel p.
func (x *Matrix) packPanel(p int, w []float32, strideIn, strideOut int) {
	start, width := x.panel(p)
	step, first := x.format.step(), p*panelWidth
	columns := min(width, x.out-first)
	for k := range x.in {
		at, from := start+k/step*step*width+k%step, w[k*strideIn+first*strideOut:]
		switch {
		case x.format == Float32 && strideOut == 1:
			copy(x.packed[at:][:columns], from)
		case x.format == Float32:
			for j := range columns {
				x.packed[at+j] = from[j*strideOut]
			}
		case x.format == Float16:
			for j := range columns {
				x.packed16[at+j] = roundHalf(from[j*strideOut])
			}
		default:
			for j := range columns {
				x.packed16[at+2*j] = roundUpper(from[j*strideOut])
			}
		}
	}
}

// In is the length of the rows that the matrix multiplies.
func (x *Matrix) In() int { return x.in }

// Out is the number of columns, the length of a result row.
func (x *Matrix) Out() int { return x.out }

// Format is how the weights are kept.
func (x *Matrix) Format() Format { return x.format }

// Bytes is what one multiplication reads: the weights and the bias.
func (x *Matrix) Bytes() int { return 4*(len(x.packed)+len(x.bias)) + 2*len(x.packed16) }

func (x *Matrix) panels() int { return (x.out + panelWidth - 1) / panelWidth }

// panel returns where the weights of panel p start, [k][width] in steps, and its width.
func (x *Matrix) panel(p int) (start, width int) {
	return p * panelWidth * x.format.rows(x.in), min(panelWidth, roundWidth(x.out)-p*panelWidth)
}

// Column copies column j, In values, to dst: a row of the embedding that shares its
// weights with the head.
func (x *Matrix) Column(dst []float32, j int) {
	step := x.format.step()
	start, width := x.panel(j / panelWidth)
	start += j % panelWidth * step
	for k := range dst[:x.in] {
		switch i := start + k/step*step*width + k%step; x.format {
		case Float32:
			dst[k] = x.packed[i]
		case Float16:
			dst[k] = widenHalf(x.packed16[i])
		default:
			dst[k] = widenUpper(x.packed16[i])
		}
	}
}
