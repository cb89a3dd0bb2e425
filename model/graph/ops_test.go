package graph

import (
	"errors"
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// apply runs one operation on a matrix through gorgonia. With keep, something else reads
// the input too, so that the result may not take its place.
func apply(t *testing.T, k kernel, in *tensor.Dense, keep bool) []float32 {
	t.Helper()
	out, err := run(func(b *builder) *gorgonia.Node {
		x := b.input("x", in)
		doubled := b.times(x, b.constant(2))
		y := b.apply(k, doubled)
		if keep {
			return b.binary(gorgonia.Sub, b.add(y, doubled), doubled)
		}
		return y
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Float32s()
}

// TestCausalSoftmax takes scores that overflow float32's exponential unless the largest
// of the row itself, be it the first, is subtracted.
func TestCausalSoftmax(t *testing.T) {
	in := []float32{
		7, 1e30, -5, 3,
		400, 399, 1e30, 1e30,
		-4000, -4000, -4000, 1e30,
		800, -800, 800, 799.5,
	}
	e := math.E
	want := []float64{
		1, 0, 0, 0,
		e / (1 + e), 1 / (1 + e), 0, 0,
		1. / 3, 1. / 3, 1. / 3, 0,
		1 / (2 + math.Exp(-.5)), 0, 1 / (2 + math.Exp(-.5)), 1 / (2*math.Exp(.5) + 1),
	}
	m := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(4, 4), tensor.WithBacking(append([]float32{}, in...)))
	}
	for i, got := range apply(t, causalSoftmax{scale: 0.5}, m(), false) {
		if d := math.Abs(float64(got) - want[i]); !(d < 1e-7) {
			t.Errorf("element %d is %g, want %g", i, got, want[i])
		}
	}
}

// TestErf has values from Abramowitz and Stegun, table 7.1.
func TestErf(t *testing.T) {
	in := []float32{0, 0.25, 0.5, 1, -1, 1e30}
	want := []float64{0, 0.5204998778, 0.8427007929, 0.9953222650, -0.9953222650, 1}
	for i, got := range apply(t, erf{}, tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(in)), false) {
		if d := math.Abs(float64(got) - want[i]); !(d < 1e-7) {
			t.Errorf("erf(%g) is %g, want %g", 2*in[i], got, want[i])
		}
	}
}

// TestInPlace: an operation's result replaces its input only where nobody reads that.
func TestInPlace(t *testing.T) {
	in := []float32{0.1, 0.2, 0.3, 0.4}
	m := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(append([]float32{}, in...)))
	}
	alone, shared := apply(t, erf{}, m(), false), apply(t, erf{}, m(), true)
	for i := range alone {
		if d := math.Abs(float64(alone[i] - shared[i])); !(d < 1e-5) {
			t.Errorf("element %d is %g alone and %g beside another reader", i, alone[i], shared[i])
		}
	}
}

// TestCollision builds a graph that states an expression twice, which stands for two
// expressions with one hash: run tries again with other names, and gives up on a graph
// that always collides.
func TestCollision(t *testing.T) {
	one := func() *tensor.Dense { return filled(2, 2, 1) }
	attempts := 0
	out, err := run(func(b *builder) *gorgonia.Node {
		attempts++
		x := b.input("x", one())
		y := b.add(x, x)
		if attempts < 3 {
			b.add(x, x)
		}
		return y
	})
	if err != nil || attempts != 3 || out.Float32s()[0] != 2 {
		t.Errorf("got %v and %v after %d attempts, want 2 after 3", out, err, attempts)
	}

	_, err = run(func(b *builder) *gorgonia.Node {
		x := b.input("x", one())
		b.add(x, x)
		return b.add(x, x)
	})
	if !errors.Is(err, errCollision) {
		t.Errorf("got %v, want a collision", err)
	}
}

func TestMismatchedShapes(t *testing.T) {
	_, err := run(func(b *builder) *gorgonia.Node {
		return b.add(b.mul(b.input("x", filled(2, 3, 1)), b.input("y", filled(2, 3, 1))), b.constant(1))
	})
	if err == nil {
		t.Error("a product of [2,3] by [2,3] ran")
	}
}
