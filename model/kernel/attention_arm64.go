//go:build arm64 && !purego

package kernel

// The loops of attention for a number of rows; distances are in elements. See
// vector_arm64.go.
type (
	neonScoresLine[T element] func(dim int, q *float32, ldq int, keys *T, ldk int, n int, scale float32, out *float32, ldo int)
	neonScoresOne[T element]  func(dim int, q *float32, ldq int, keys *T, ldk int, scale float32, out *float32, ldo int)
	neonValuesLine[T element] func(n int, p *float32, ldp int, v *T, ldv int, dst *float32, ldd int, cols int)
	neonValues[T element]     func(n int, p *float32, ldp int, v *T, ldv int, dst *float32, ldd int)
)

// neonAttention is the loops on keys and values of one type, for each number of rows: on a
// line of 4 to 16 columns, on one column, and of values for one row on 64.
type neonAttention[T element] struct {
	scoresLine [tileRows + 1]neonScoresLine[T]
	scoresOne  [tileRows + 1]neonScoresOne[T]
	valuesLine [tileRows + 1]neonValuesLine[T]
	valuesOne  [tileRows + 1]neonValues[T]
	values64   neonValues[T]
}

func attentionNEON() *neonAttention[float32] {
	return &neonAttention[float32]{
		scoresLine: [...]neonScoresLine[float32]{nil, scores1x16NEON, scores2x16NEON, scores3x16NEON, scores4x16NEON, scores5x16NEON, scores6x16NEON},
		scoresOne:  [...]neonScoresOne[float32]{nil, scores1x1NEON, scores2x1NEON, scores3x1NEON, scores4x1NEON, scores5x1NEON, scores6x1NEON},
		valuesLine: [...]neonValuesLine[float32]{nil, values1x16NEON, values2x16NEON, values3x16NEON, values4x16NEON, values5x16NEON, values6x16NEON},
		valuesOne:  [...]neonValues[float32]{nil, values1x1NEON, values2x1NEON, values3x1NEON, values4x1NEON, values5x1NEON, values6x1NEON},
		values64:   values1x64NEON,
	}
}

func attentionBF16NEON() *neonAttention[uint16] {
	return &neonAttention[uint16]{
		scoresLine: [...]neonScoresLine[uint16]{nil, scoresBF161x16NEON, scoresBF162x16NEON, scoresBF163x16NEON, scoresBF164x16NEON, scoresBF165x16NEON, scoresBF166x16NEON},
		scoresOne:  [...]neonScoresOne[uint16]{nil, scoresBF161x1NEON, scoresBF162x1NEON, scoresBF163x1NEON, scoresBF164x1NEON, scoresBF165x1NEON, scoresBF166x1NEON},
		valuesLine: [...]neonValuesLine[uint16]{nil, valuesBF161x16NEON, valuesBF162x16NEON, valuesBF163x16NEON, valuesBF164x16NEON, valuesBF165x16NEON, valuesBF166x16NEON},
		valuesOne:  [...]neonValues[uint16]{nil, valuesBF161x1NEON, valuesBF162x1NEON, valuesBF163x1NEON, valuesBF164x1NEON, valuesBF165x1NEON, valuesBF166x1NEON},
		values64:   valuesBF161x64NEON,
	}
}

// neonFour is the least number of columns of a loop on 16.
const neonFour = 4

// runScores leaves prefetching to the processor, as runValues does.
func (l *neonAttention[T]) runScores(rows, n, dim int, q []float32, ldq int, keys runs[T], scale float32, s []float32, lds int) {
	_, _ = q[(rows-1)*ldq+dim-1], s[(rows-1)*lds+n-1]
	for from := 0; from < n; from += keys.size {
		m := min(keys.size, n-from)
		run, out := keys.run(from, (dim-1)*keys.ld+m), s[from:]
		for t := 0; t < m; {
			if some := min(lanes, m-t); some >= neonFour {
				l.scoresLine[rows](dim, &q[0], ldq, &run[t], keys.ld, some, scale, &out[t], lds)
				t += some
			} else {
				l.scoresOne[rows](dim, &q[0], ldq, &run[t], keys.ld, scale, &out[t], lds)
				t++
			}
		}
	}
}

func (l *neonAttention[T]) runValues(rows, n, dim int, p []float32, ldp int, values runs[T], dst []float32, ldd int) {
	_, _ = p[(rows-1)*ldp+n-1], dst[(rows-1)*ldd+dim-1]
	for from := 0; from < n; from += values.size {
		m := min(values.size, n-from)
		v, p := values.run(from, (m-1)*values.ld+dim), p[from:]
		for j := 0; j < dim; {
			switch left := dim - j; {
			case rows == 1 && left >= 64:
				l.values64(m, &p[0], ldp, &v[j], values.ld, &dst[j], ldd)
				j += 64
			case left >= neonFour:
				l.valuesLine[rows](m, &p[0], ldp, &v[j], values.ld, &dst[j], ldd, min(lanes, left))
				j += min(lanes, left)
			default:
				l.valuesOne[rows](m, &p[0], ldp, &v[j], values.ld, &dst[j], ldd)
				j++
			}
		}
	}
}
