//go:build arm64 && !purego

package kernel

import "math"

// The loops over floats take whole lines. What is left over goes through a line of its
// own, padded so that what stands behind it adds nothing.

func softmaxLines(s []float32) float32 {
	whole := len(s) / lanes
	rest := s[whole*lanes:]
	var most, sums, tail [lanes]float32
	for i := range most {
		most[i], tail[i] = float32(math.Inf(-1)), float32(math.Inf(-1))
	}
	copy(tail[:], rest)
	if whole > 0 {
		mostNEON(whole, &s[0], &most[0])
	}
	mostNEON(1, &tail[0], &most[0])
	top := most[0]
	for _, v := range most {
		top = max(top, v)
	}
	if whole > 0 {
		expSumNEON(whole, &s[0], top, &sums[0])
	}
	if len(rest) > 0 {
		expSumNEON(1, &tail[0], top, &sums[0])
		copy(rest, tail[:])
	}
	return fold(&sums)
}

func normLines(dst, x, gain, bias []float32, eps float32) {
	n := len(x)
	dst, gain, bias = dst[:n], gain[:n], bias[:n]
	whole, at := n/lanes, n/lanes*lanes
	var sums, tail, tailGain, tailBias [lanes]float32
	copy(tail[:], x[at:])
	if whole > 0 {
		sumNEON(whole, &x[0], &sums[0])
	}
	sumNEON(1, &tail[0], &sums[0])
	mean := fold(&sums) / float32(n)

	sums = [lanes]float32{}
	for i := n - at; i < lanes; i++ {
		tail[i] = mean
	}
	if whole > 0 {
		squaresNEON(whole, &x[0], mean, &sums[0])
	}
	squaresNEON(1, &tail[0], mean, &sums[0])
	inv := 1 / float32(math.Sqrt(float64(fold(&sums)/float32(n)+eps)))

	if whole > 0 {
		normNEON(whole, &dst[0], &x[0], &gain[0], &bias[0], mean, inv)
	}
	if at < n {
		copy(tailGain[:], gain[at:])
		copy(tailBias[:], bias[at:])
		normNEON(1, &tail[0], &tail[0], &tailGain[0], &tailBias[0], mean, inv)
		copy(dst[at:], tail[:])
	}
}

func geluLines(x []float32) {
	if whole := len(x) / lanes; whole > 0 {
		geluNEON(whole, &x[0])
	}
	if rest := x[len(x)/lanes*lanes:]; len(rest) > 0 {
		var tail [lanes]float32
		copy(tail[:], rest)
		geluNEON(1, &tail[0])
		copy(rest, tail[:])
	}
}

// geluErfLines calls a loop that takes half a line at a time.
func geluErfLines(x []float32) {
	if whole := len(x) / lanes; whole > 0 {
		geluErfNEON(2*whole, &x[0])
	}
	if rest := x[len(x)/lanes*lanes:]; len(rest) > 0 {
		var tail [lanes]float32
		copy(tail[:], rest)
		geluErfNEON(2, &tail[0])
		copy(rest, tail[:])
	}
}

func addLines(dst, src []float32) {
	dst = dst[:len(src)]
	if whole := len(src) / lanes; whole > 0 {
		addNEON(whole, &dst[0], &src[0])
	}
	at := len(src) / lanes * lanes
	addScalar(dst[at:], src[at:])
}

func scaleLines(x []float32, f float32) {
	if whole := len(x) / lanes; whole > 0 {
		scaleNEON(whole, &x[0], f)
	}
	scaleScalar(x[len(x)/lanes*lanes:], f)
}

func roundLines(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	if whole := len(src) / lanes; whole > 0 {
		roundNEON(whole, &dst[0], &src[0])
	}
	at := len(src) / lanes * lanes
	roundScalar(dst[at:], src[at:])
}
