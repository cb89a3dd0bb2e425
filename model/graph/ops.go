package graph

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// causalSoftmax turns attention scores [T,T] into weights: row i becomes the softmax of
// scale times its first i+1 elements, and zero after them. It computes in float64 and
// subtracts the row's largest score, so no exponential overflows.
type causalSoftmax struct{ scale float64 }

func (op causalSoftmax) String() string { return fmt.Sprintf("causalSoftmax{%g}", op.scale) }

func (op causalSoftmax) into(dst, src []float32, columns int) {
	for i := range columns {
		in, out := src[i*columns:(i+1)*columns], dst[i*columns:(i+1)*columns]
		largest := math.Inf(-1)
		for _, s := range in[:i+1] {
			largest = max(largest, op.scale*float64(s))
		}
		// The exponentials are taken twice: out may be in, and has no room for float64.
		var sum float64
		for _, s := range in[:i+1] {
			sum += math.Exp(op.scale*float64(s) - largest)
		}
		for j, s := range in[:i+1] {
			out[j] = float32(math.Exp(op.scale*float64(s)-largest) / sum)
		}
		clear(out[i+1:])
	}
}

// erf is the Gauss error function, element by element; gorgonia has none.
type erf struct{}

func (erf) String() string { return "erf" }

func (erf) into(dst, src []float32, _ int) {
	for i, x := range src {
		dst[i] = float32(math.Erf(float64(x)))
	}
}

// kernel is what the operations of this package differ in. dst may be src.
type kernel interface {
	fmt.Stringer
	into(dst, src []float32, columns int)
}

// operation makes a gorgonia.Op of a kernel: one matrix in, one of the same shape out.
type operation struct{ kernel }

var (
	_ gorgonia.Op              = operation{}
	_ gorgonia.UsePreallocDoer = operation{}
)

func (op operation) Arity() int { return 1 }

func (op operation) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}

func (op operation) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, ok := in[0].(tensor.Shape)
	if !ok || s.Dims() != 2 {
		return nil, fmt.Errorf("graph: %v needs a matrix, got %v", op, in[0])
	}
	return s.Clone(), nil
}

func (op operation) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	return op.UsePreallocDo(tensor.New(tensor.WithShape(in[0].Shape().Clone()...), tensor.Of(tensor.Float32)), in...)
}

// UsePreallocDo writes the result into out, which gorgonia may have chosen to be the
// input itself (see OverwritesInput).
func (op operation) UsePreallocDo(out gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	dst, ok := out.Data().([]float32)
	src, ok2 := in[0].Data().([]float32)
	if !ok || !ok2 || len(dst) != len(src) {
		return nil, fmt.Errorf("graph: %v from %v to %v", op, in[0].Shape(), out.Shape())
	}
	op.into(dst, src, in[0].Shape()[1])
	return out, nil
}

// OverwritesInput allows the result to take the input's place where nothing else reads
// it: a score matrix of T*T elements per head need not exist twice.
func (op operation) OverwritesInput() int { return 0 }
func (op operation) ReturnsPtr() bool     { return true }
func (op operation) CallsExtern() bool    { return false }

func (op operation) WriteHash(h hash.Hash) { fmt.Fprint(h, op.String()) }

func (op operation) Hashcode() uint32 {
	h := fnv.New32a()
	op.WriteHash(h)
	return h.Sum32()
}
