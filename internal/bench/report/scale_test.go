package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLinearTicks(t *testing.T) {
	for _, c := range []struct {
		high  float64
		n     int
		whole bool
		want  []float64
	}{
		{.874, 5, false, []float64{0, .2, .4, .6, .8, 1}},
		{1, 5, false, []float64{0, .2, .4, .6, .8, 1}},
		{52.3, 4, false, []float64{0, 20, 40, 60}},
		{3, 3, true, []float64{0, 1, 2, 3}},
		{.4, 3, true, []float64{0, 1}},
		{0, 5, false, []float64{0, .2, .4, .6, .8, 1}},
		{math.NaN(), 5, false, []float64{0, .2, .4, .6, .8, 1}},
	} {
		got := linear(c.high, 0, 100, c.n, c.whole).ticks
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("up to %g: ticks %v, want %v", c.high, got, c.want)
		}
	}
}

func TestLogarithmicTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{
		{.01, 1, []float64{.01, .02, .05, .1, .2, .5, 1}},
		{.0009, 2, []float64{.001, .003, .01, .03, .1, .3, 1}},
		{.011, .012, []float64{.011, .012}},
		{1e-9, 1e3, []float64{1e-9, 1e-7, 1e-5, 1e-3, .1, 10, 1e3}},
	} {
		got := logarithmic(c.low, c.high, 0, 100, 8).ticks
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }) {
			t.Errorf("%g to %g: ticks %v, want %v", c.low, c.high, got, c.want)
		}
	}
}

// Whatever the range and the value, places lie on the scale, in the values' order.
func TestScalesStayInside(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	any := func() float64 {
		switch draw.IntN(8) {
		case 0:
			return []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1}[draw.IntN(7)]
		}
		return math.Ldexp(draw.Float64(), draw.IntN(200)-100)
	}
	for range 20_000 {
		a, b := any(), any()
		for name, s := range map[string]*scale{"linear": linear(a, 48, 464, 5, draw.IntN(2) == 0), "logarithmic": logarithmic(a, b, 48, 464, 8)} {
			v, w := any(), any()
			x, y := s.at(v), s.at(w)
			if !(x >= 47.999 && x <= 464.001) || v < w && x > y {
				t.Fatalf("seed %d: %s scale of %g, %g puts %g at %g and %g at %g", seed, name, a, b, v, x, w, y)
			}
			if n := len(s.ticks); n < 2 || n > 16 || !slices.IsSorted(s.ticks) {
				t.Fatalf("seed %d: %s scale of %g, %g has ticks %v", seed, name, a, b, s.ticks)
			}
		}
	}
}
