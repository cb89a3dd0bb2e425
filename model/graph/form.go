package graph

import (
	"math"

	"gorgonia.org/gorgonia"

	"tailor/model"
)

// form spells the recurring formulas of one graph.
type form struct {
	*builder
	cfg model.Config
}

// affine is x w + bias: [T,M] by [M,N] to [T,N].
func (f form) affine(name string, x *gorgonia.Node, w, bias *matrix) *gorgonia.Node {
	return f.eachRow(gorgonia.BroadcastAdd, f.mul(x, f.input(name, w)), f.input(name+".bias", bias))
}

// norm is layer normalization with the biased variance, row by row: [T,W] to [T,W].
func (f form) norm(name string, x *gorgonia.Node, w norm) *gorgonia.Node {
	centered := f.eachColumn(gorgonia.BroadcastSub, x, f.mean(x))
	variance := f.mean(f.times(centered, centered)) // [T]
	deviation := f.unary(gorgonia.Sqrt, f.add(variance, f.constant(f.cfg.Epsilon)))
	y := f.eachColumn(gorgonia.BroadcastHadamardDiv, centered, deviation)
	y = f.eachRow(gorgonia.BroadcastHadamardProd, y, f.input(name+".weight", w.gain))
	return f.eachRow(gorgonia.BroadcastAdd, y, f.input(name+".bias", w.bias))
}

// activation is GELU, x Φ(x), or the form with tanh that stands in for it
// (Hendrycks and Gimpel 2016, arXiv 1606.08415).
func (f form) activation(x *gorgonia.Node) *gorgonia.Node {
	var curve *gorgonia.Node
	if f.cfg.Activation == model.GELU {
		curve = f.apply(erf{}, f.times(x, f.constant(1/math.Sqrt2)))
	} else {
		cubic := f.times(f.times(f.times(x, x), x), f.constant(0.044715))
		curve = f.unary(gorgonia.Tanh, f.times(f.add(x, cubic), f.constant(float32(math.Sqrt(2/math.Pi)))))
	}
	return f.times(f.times(x, f.constant(0.5)), f.add(curve, f.constant(1)))
}
