//go:build amd64 && !purego

package kernel

// The assembly's signatures; see vector_amd64.go. Distances are in elements.
type (
	scoresFunc[T element]     func(n, size, dim int, q *float32, ldq int, keys **T, offset, ldk, ahead int, scale float32, out *float32, ldo int)
	valuesFunc[T element]     func(n, size int, p *float32, ldp int, v **T, offset, ldv, ahead int, dst *float32, ldd int)
	valuesPartFunc[T element] func(n, size int, p *float32, ldp int, v **T, offset, ldv, ahead int, dst *float32, ldd int, cols int)
)

// attentionLoops are the loops on one type of keys and values: scores[rows] and values[rows]
// for up to tileRows rows. Whole values take wholeCols columns at a time, and oneCols for
// one row.
type attentionLoops[T element] struct {
	scores             [tileRows + 1]scoresFunc[T]
	values             [tileRows + 1]valuesFunc[T]
	valuesPart         [tileRows + 1]valuesPartFunc[T]
	wholeCols, oneCols int
}

func (v *attentionLoops[T]) runScores(rows, n, dim int, q []float32, ldq int, keys runs[T], scale float32, s []float32, lds int) {
	last := (n - 1) / keys.size
	_, _, _ = q[(rows-1)*ldq+dim-1], keys.at[last+1], s[(rows-1)*lds+last*keys.size+lanes-1]
	v.scores[rows](n, keys.size, dim, &q[0], ldq, &keys.at[0], keys.offset, keys.ld, keys.ahead, scale, &s[0], lds)
}

func (v *attentionLoops[T]) runValues(rows, n, dim int, p []float32, ldp int, values runs[T], dst []float32, ldd int) {
	_, _, _ = p[(rows-1)*ldp+n-1], values.at[(n-1)/values.size+1], dst[(rows-1)*ldd+dim-1]
	cols := v.wholeCols
	if rows == 1 {
		cols = v.oneCols
	}
	j := 0
	for ; j+cols <= dim; j += cols {
		v.values[rows](n, values.size, &p[0], ldp, &values.at[0], values.offset+j, values.ld, values.ahead, &dst[j], ldd)
	}
	for ; j < dim; j += lanes {
		v.valuesPart[rows](n, values.size, &p[0], ldp, &values.at[0], values.offset+j, values.ld, values.ahead, &dst[j], ldd, min(lanes, dim-j))
	}
}

func attentionAVX512() attentionLoops[float32] {
	return attentionLoops[float32]{
		scores:     [...]scoresFunc[float32]{nil, scores1AVX512, scores2AVX512, scores3AVX512, scores4AVX512, scores5AVX512, scores6AVX512},
		values:     [...]valuesFunc[float32]{nil, values1x64AVX512, values2x64AVX512, values3x64AVX512, values4x64AVX512, values5x64AVX512, values6x64AVX512},
		valuesPart: [...]valuesPartFunc[float32]{nil, values1xAVX512, values2xAVX512, values3xAVX512, values4xAVX512, values5xAVX512, values6xAVX512},
		wholeCols:  64, oneCols: 64,
	}
}

func attention16AVX512() attentionLoops[uint16] {
	return attentionLoops[uint16]{
		scores:     [...]scoresFunc[uint16]{nil, scoresBF161AVX512, scoresBF162AVX512, scoresBF163AVX512, scoresBF164AVX512, scoresBF165AVX512, scoresBF166AVX512},
		values:     [...]valuesFunc[uint16]{nil, valuesBF161x64AVX512, valuesBF162x64AVX512, valuesBF163x64AVX512, valuesBF164x64AVX512, valuesBF165x64AVX512, valuesBF166x64AVX512},
		valuesPart: [...]valuesPartFunc[uint16]{nil, valuesBF161xAVX512, valuesBF162xAVX512, valuesBF163xAVX512, valuesBF164xAVX512, valuesBF165xAVX512, valuesBF166xAVX512},
		wholeCols:  64, oneCols: 64,
	}
}

func attentionAVX2() attentionLoops[float32] {
	return attentionLoops[float32]{
		scores:     [...]scoresFunc[float32]{nil, scores1AVX2, scores2AVX2, scores3AVX2, scores4AVX2, scores5AVX2, scores6AVX2},
		values:     [...]valuesFunc[float32]{nil, values1x64AVX2, values2x16AVX2, values3x16AVX2, values4x16AVX2, values5x16AVX2, values6x16AVX2},
		valuesPart: [...]valuesPartFunc[float32]{nil, values1xAVX2, values2xAVX2, values3xAVX2, values4xAVX2, values5xAVX2, values6xAVX2},
		wholeCols:  16, oneCols: 64,
	}
}

func attention16AVX2() attentionLoops[uint16] {
	return attentionLoops[uint16]{
		scores:     [...]scoresFunc[uint16]{nil, scoresBF161AVX2, scoresBF162AVX2, scoresBF163AVX2, scoresBF164AVX2, scoresBF165AVX2, scoresBF166AVX2},
		values:     [...]valuesFunc[uint16]{nil, valuesBF161x64AVX2, valuesBF162x16AVX2, valuesBF163x16AVX2, valuesBF164x16AVX2, valuesBF165x16AVX2, valuesBF166x16AVX2},
		valuesPart: [...]valuesPartFunc[uint16]{nil, valuesBF161xAVX2, valuesBF162xAVX2, valuesBF163xAVX2, valuesBF164xAVX2, valuesBF165xAVX2, valuesBF166xAVX2},
		wholeCols:  16, oneCols: 64,
	}
}
