package graph

import (
	"fmt"

	"gorgonia.org/tensor"

	"tailor/model"
)

// matrix is a float32 matrix; a vector is a matrix of one row.
type matrix = tensor.Dense

type norm struct{ gain, bias *matrix } // [1,W]

// head is one attention head's share of c_attn and c_proj.
type head struct {
	q, k, v             *matrix // [W,D]
	qBias, kBias, vBias *matrix // [1,D]
	out                 *matrix // [D,W]
}

type layer struct {
	ln1, ln2   norm
	heads      []head
	outBias    *matrix // [1,W]
	fc, fcBias *matrix // [W,Inner], [1,Inner]
	proj       *matrix // [Inner,W]
	projBias   *matrix // [1,W]
}

type parameters struct {
	wte, wpe *matrix // [V,W], [Context,W]
	layers   []layer
	lnF      norm
	head     *matrix // [W,V]
}

// newParameters copies the tensors, cutting the attention's by head so that the graph
// needs no slices: gorgonia hashes a slice's bounds modulo 256.
func newParameters(cfg model.Config, tensors map[string]*tensor.Dense) (*parameters, error) {
	r := reader{tensors: tensors}
	W, D, V := cfg.Width, cfg.HeadDim(), cfg.Vocab
	w := &parameters{
		wte: r.matrix("wte.weight", V, W),
		wpe: r.matrix("wpe.weight", cfg.Context, W),
		lnF: r.norm("ln_f", W),
	}
	for l := range cfg.Layers {
		p := fmt.Sprintf("h.%d.", l)
		qkv, qkvBias := r.matrix(p+"attn.c_attn.weight", W, 3*W), r.vector(p+"attn.c_attn.bias", 3*W)
		out := r.matrix(p+"attn.c_proj.weight", W, W)
		lay := layer{
			ln1: r.norm(p+"ln_1", W), ln2: r.norm(p+"ln_2", W),
			outBias:  r.vector(p+"attn.c_proj.bias", W),
			fc:       r.matrix(p+"mlp.c_fc.weight", W, cfg.Inner),
			fcBias:   r.vector(p+"mlp.c_fc.bias", cfg.Inner),
			proj:     r.matrix(p+"mlp.c_proj.weight", cfg.Inner, W),
			projBias: r.vector(p+"mlp.c_proj.bias", W),
		}
		if r.err != nil {
			return nil, r.err
		}
		for h := range cfg.Heads {
			q, k, v := h*D, W+h*D, 2*W+h*D // first columns in c_attn, which holds q|k|v
			lay.heads = append(lay.heads, head{
				q: cut(qkv, 0, W, q, D), qBias: cut(qkvBias, 0, 1, q, D),
				k: cut(qkv, 0, W, k, D), kBias: cut(qkvBias, 0, 1, k, D),
				v: cut(qkv, 0, W, v, D), vBias: cut(qkvBias, 0, 1, v, D),
				out: cut(out, h*D, D, 0, W),
			})
		}
		w.layers = append(w.layers, lay)
	}

	// A head that is given counts even where the configuration says tied.
	vocabulary := w.wte
	if _, given := tensors["lm_head.weight"]; given || !cfg.TiedHead {
		vocabulary = r.matrix("lm_head.weight", V, W)
	}
	if r.err != nil {
		return nil, r.err
	}
	w.head = transposed(vocabulary)
	return w, nil
}

// reader takes tensors out of a checkpoint; its first error sticks.
type reader struct {
	tensors map[string]*tensor.Dense
	err     error
}

func (r *reader) norm(prefix string, n int) norm {
	return norm{gain: r.vector(prefix+".weight", n), bias: r.vector(prefix+".bias", n)}
}

func (r *reader) vector(name string, n int) *matrix { return r.read(name, []int{n}, 1, n) }
func (r *reader) matrix(name string, rows, n int) *matrix {
	return r.read(name, []int{rows, n}, rows, n)
}

func (r *reader) read(name string, shape tensor.Shape, rows, columns int) *matrix {
	if r.err != nil {
		return nil
	}
	t := r.tensors[name]
	switch {
	case t == nil:
		r.err = fmt.Errorf("%w: no tensor %q", ErrTensor, name)
	case t.Dtype() != tensor.Float32 || !t.Shape().Eq(shape):
		r.err = fmt.Errorf("%w: %q is %v%v, not %v%v", ErrTensor, name, t.Dtype(), t.Shape(), tensor.Float32, shape)
	case t.RequiresIterator() || t.DataOrder().IsColMajor():
		r.err = fmt.Errorf("%w: %q is a view or column-major, not rows in order", ErrTensor, name)
	default:
		out := filled(rows, columns, 0)
		copy(out.Float32s(), t.Float32s())
		return out
	}
	return nil
}

// filled is a matrix whose elements all are v.
func filled(rows, columns int, v float32) *matrix {
	data := make([]float32, rows*columns)
	for i := range data {
		data[i] = v
	}
	return tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(data))
}

// cut copies a rectangle: rows from firstRow, columns from firstColumn.
func cut(m *matrix, firstRow, rows, firstColumn, columns int) *matrix {
	out := filled(rows, columns, 0)
	dst, src, stride := out.Float32s(), m.Float32s(), m.Shape()[1]
	for i := range rows {
		copy(dst[i*columns:(i+1)*columns], src[(firstRow+i)*stride+firstColumn:])
	}
	return out
}

func transposed(m *matrix) *matrix {
	rows, columns := m.Shape()[0], m.Shape()[1]
	out := filled(columns, rows, 0)
	dst, src := out.Float32s(), m.Float32s()
	for i := range rows {
		for j := range columns {
			dst[j*rows+i] = src[i*columns+j]
		}
	}
	return out
}
