package report

import "math"

// scale maps values to places on a drawing, linearly or by their logarithm. Values outside
// its range are drawn at its ends, so no value, however absurd, leaves the drawing.
type scale struct {
	low, high float64 // values
	from, to  float64 // places
	log       bool
	ticks     []float64
}

// at is the place of a value.
func (s *scale) at(v float64) float64 {
	low, high := s.low, s.high
	if math.IsNaN(v) {
		v = low
	}
	v = min(max(v, low), high)
	if s.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// linear makes a scale from 0 to the first tick at or above high, with about n steps of
// 1, 2 or 5 times a power of ten; of whole numbers where whole.
func linear(high, from, to float64, n int, whole bool) *scale {
	switch {
	case !(high >= 1e-12): // NaN too
		high = 1
	case high > 1e18:
		high = 1e18
	}
	step := niceStep(high / float64(n))
	if whole {
		step = max(1, step)
	}
	s := &scale{from: from, to: to}
	last := max(1, int(math.Ceil(high/step-1e-9)))
	for i := range last + 1 {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	s.high = s.ticks[last]
	return s
}

// niceStep is the smallest of 1, 2 and 5 times a power of ten that is at least v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic makes a scale that spans low to high, both positive: ticks at powers of ten, and at
// twice and five times those where there is room for at most n ticks.
func logarithmic(low, high, from, to float64, n int) *scale {
	if !(low >= 1e-12) { // NaN too
		low = 1e-12
	}
	low = min(low, 1e12)
	if !(high >= low*1.01) {
		high = low * 1.01
	}
	high = min(high, 1e13)
	s := &scale{low: low, high: high, from: from, to: to, log: true}
	for _, steps := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		s.ticks = nil
		for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
			for _, m := range steps {
				if v := m * math.Pow(10, e); v >= low*(1-1e-9) && v <= high*(1+1e-9) {
					s.ticks = append(s.ticks, v)
				}
			}
		}
		if len(s.ticks) <= n {
			break
		}
	}
	if len(s.ticks) > n { // more decades than room
		every := (len(s.ticks) + n - 1) / n
		var kept []float64
		for i := 0; i < len(s.ticks); i += every {
			kept = append(kept, s.ticks[i])
		}
		s.ticks = kept
	}
	if len(s.ticks) < 2 { // less than a decade, between two ticks
		s.ticks = []float64{low, high}
	}
	return s
}
