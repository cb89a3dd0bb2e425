package kernel

import "math"

// panelScalar runs eight columns at a time, which are eight independent chains.
func panelScalar(rows, k int, a []float32, lda int, b []float32, width int, start []float32, lds int, c []float32, ldc int) {
	for r := range rows {
		ar := a[r*lda:][:k]
		for j := 0; j < width; j += 8 {
			s := (*[8]float32)(start[r*lds+j:])
			c0, c1, c2, c3, c4, c5, c6, c7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
			for i, av := range ar {
				w := (*[8]float32)(b[i*width+j:])
				c0 = float32(av*w[0]) + c0
				c1 = float32(av*w[1]) + c1
				c2 = float32(av*w[2]) + c2
				c3 = float32(av*w[3]) + c3
				c4 = float32(av*w[4]) + c4
				c5 = float32(av*w[5]) + c5
				c6 = float32(av*w[6]) + c6
				c7 = float32(av*w[7]) + c7
			}
			*(*[8]float32)(c[r*ldc+j:]) = [8]float32{c0, c1, c2, c3, c4, c5, c6, c7}
		}
	}
}

// widenedK is how many k of eight columns the loops on 16 bits widen at a time.
const widenedK = 64

// panelF16Scalar is panelScalar on weights that are widened first.
func panelF16Scalar(rows, k int, a []float32, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	var w [8 * widenedK]float32
	for i := 0; i < k; i += widenedK {
		n := min(widenedK, k-i)
		for j := 0; j < width; j += 8 {
			for x := range 8 * n {
				w[x] = widenHalf(b[(i+x/8)*width+j+x%8])
			}
			panelScalar(rows, n, a[i:], lda, w[:], 8, start[j:], lds, c[j:], ldc)
		}
		start, lds = c, ldc
	}
}

func panelBF16Scalar(rows, k int, a []float32, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	var w [8 * widenedK]float32
	for i := 0; i < k; i += widenedK {
		n := min(widenedK, k-i)
		for j := 0; j < width; j += 8 {
			widenPairs(&w, n, b[i*width:], width, j, 0)
			panelScalar(rows, n, a[i:], lda, w[:], 8, start[j:], lds, c[j:], ldc)
		}
		start, lds = c, ldc
	}
}

// pairsScalar turns the order within each pair around, in the weights and in the rows.
func pairsScalar(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	var w [8 * widenedK]float32
	var row [widenedK]float32
	for i := 0; i < k; i += widenedK {
		n := min(widenedK, k-i)
		for j := 0; j < width; j += 8 {
			widenPairs(&w, n, b[i*width:], width, j, 1)
			for r := range rows {
				for x := range n {
					row[x] = widenUpper(a[r*lda+i+(x^1)])
				}
				panelScalar(1, n, row[:], n, w[:], 8, start[r*lds+j:], 0, c[r*ldc+j:], 0)
			}
		}
		start, lds = c, ldc
	}
}

// groupK is how many k the tiles of AMX sum at a time.
const groupK = 32

// groupsScalar is pairsScalar in the order of AMX: of every 32 k, or what is left of them, the
// even and the odd products are summed apart, each from 0 on, fused; their sum is added to
// the result so far. All of it counts denormals as zero.
func groupsScalar(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int) {
	for r := range rows {
		for j := range width {
			sum := start[r*lds+j]
			for i := 0; i < k; i += groupK {
				var parts [2]float32 // even, odd
				for x := i; x < min(i+groupK, k); x++ {
					w := b[(x/2*width+j)*2+x%2]
					parts[x%2] = flushedFMA(widenUpper(a[r*lda+x]), widenUpper(w), parts[x%2])
				}
				sum = flushedFMA(1, flushedFMA(1, parts[0], parts[1]), sum)
			}
			c[r*ldc+j] = sum
		}
	}
}

// flushedFMA is a*b + c, rounded once, where denormals count as zero of their sign, and so
// does a result that is none with all its 24 bits, before it is rounded to the fewer bits of
// a denormal. a and b are bfloat16, or one of them is 1.
//
// The product is exact in float64. The sum is rounded there to 53 bits, which changes nothing
// in 24: where it is not exact, one operand is so much the smaller that the sum is nowhere
// near the middle of two float32; or a or b is 1, and 53 bits are enough for the sum of any
// two of 24.
func flushedFMA(a, b, c float32) float32 {
	s := float64(flush(a))*float64(flush(b)) + float64(flush(c))
	const least, halfStep = 0x1p-126, 0x1p-151 // the step is that of 24 bits below least
	if math.Abs(s) < least-halfStep {
		return float32(math.Copysign(0, s))
	}
	return float32(s)
}

// flush turns denormals into zero of the same sign.
func flush(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}

// widenPairs widens n k of eight columns from j on, k^swap in place of k.
func widenPairs(w *[8 * widenedK]float32, n int, b []uint16, width, j, swap int) {
	for x := range 8 * n {
		k := (x / 8) ^ swap
		w[x] = widenUpper(b[(k/2*width+j+x%8)*2+k%2])
	}
}

func roundScalar(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = roundUpper(v)
	}
}

func scoresScalar(rows, n, dim int, q []float32, ldq int, keys runs[float32], scale float32, s []float32, lds int) {
	for from := 0; from < n; from += keys.size {
		m := min(keys.size, n-from)
		run := keys.run(from, (dim-1)*keys.ld+m)
		for r := range rows {
			sr := s[r*lds+from:][:m]
			clear(sr)
			for d, qv := range q[r*ldq:][:dim] {
				for t, kv := range run[d*keys.ld:][:m] {
					sr[t] = float32(qv*kv) + sr[t]
				}
			}
			scaleScalar(sr, scale)
		}
	}
}

// scores16Scalar is scoresScalar on keys that are widened first.
func scores16Scalar(rows, n, dim int, q []float32, ldq int, keys runs[uint16], scale float32, s []float32, lds int) {
	for from := 0; from < n; from += keys.size {
		m := min(keys.size, n-from)
		run := keys.run(from, (dim-1)*keys.ld+m)
		for r := range rows {
			sr := s[r*lds+from:][:m]
			clear(sr)
			for d, qv := range q[r*ldq:][:dim] {
				for t, kv := range run[d*keys.ld:][:m] {
					sr[t] = float32(qv*widenUpper(kv)) + sr[t]
				}
			}
			scaleScalar(sr, scale)
		}
	}
}

func softmaxScalar(s []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range s {
		top = max(top, v)
	}
	var sums [lanes]float32
	for t, v := range s {
		s[t] = expScalar(v - top)
		sums[t%lanes] += s[t]
	}
	return fold(&sums)
}

func valuesScalar(rows, n, dim int, p []float32, ldp int, v runs[float32], dst []float32, ldd int) {
	for from := 0; from < n; from += v.size {
		m := min(v.size, n-from)
		run := v.run(from, (m-1)*v.ld+dim)
		for r := range rows {
			row := dst[r*ldd:][:dim]
			for t, pv := range p[r*ldp+from:][:m] {
				for d, vv := range run[t*v.ld:][:dim] {
					row[d] = float32(pv*vv) + row[d]
				}
			}
		}
	}
}

// values16Scalar is valuesScalar on values that are widened first.
func values16Scalar(rows, n, dim int, p []float32, ldp int, v runs[uint16], dst []float32, ldd int) {
	for from := 0; from < n; from += v.size {
		m := min(v.size, n-from)
		run := v.run(from, (m-1)*v.ld+dim)
		for r := range rows {
			row := dst[r*ldd:][:dim]
			for t, pv := range p[r*ldp+from:][:m] {
				for d, vv := range run[t*v.ld:][:dim] {
					row[d] = float32(pv*widenUpper(vv)) + row[d]
				}
			}
		}
	}
}

// normScalar takes the mean first and the variance of the differences in a second
// pass: one pass over squares would cancel where the mean is large.
func normScalar(dst, x, gain, bias []float32, eps float32) {
	width := float32(len(x))
	var sums [lanes]float32
	for j, v := range x {
		sums[j%lanes] += v
	}
	mean := fold(&sums) / width
	sums = [lanes]float32{}
	for j, v := range x {
		d := v - mean
		sums[j%lanes] = float32(d*d) + sums[j%lanes]
	}
	inv := 1 / float32(math.Sqrt(float64(fold(&sums)/width+eps)))
	for j, v := range x {
		dst[j] = float32(float32((v-mean)*inv)*gain[j]) + bias[j]
	}
}

func addScalar(dst, src []float32) {
	for i, v := range src {
		dst[i] += v
	}
}

func scaleScalar(x []float32, f float32) {
	for i := range x {
		x[i] *= f
	}
}

// fold adds the lanes in halves, the order in which vector registers fold.
func fold(l *[lanes]float32) float32 {
	for h := lanes / 2; h > 0; h /= 2 {
		for i := range h {
			l[i] += l[i+h]
		}
	}
	return l[0]
}
