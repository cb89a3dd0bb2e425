package kernel

// ops are the innermost loops of one instruction set. Slices are at least as long as
// the shapes demand; a loop never reads or writes past those shapes, except that
// scores may write [lanes] values a row from the start of its last run on. None of them allocates.
type ops struct {
	name string
	// widens says that weights of 16 bits are widened in passing.
	widens bool

	// panel multiplies rows of a with one panel of weights over k steps:
	//
	//	c[r*ldc+j] = start[r*lds+j] + sum over i of a[r*lda+i] * b[i*width+j]
	//
	// for r < rows, j < width, one chain from start on, i ascending. start may be c
	// itself, which continues a chain; lds 0 starts every row alike. width is 16, 32
	// or 48.
	panel func(rows, k int, a []float32, lda int, b []float32, width int, start []float32, lds int, c []float32, ldc int)

	// panelF16 and panelBF16 are panel on weights of 16 bits: halves in the same order, and
	// bfloat16 in pairs of k, b[(i/2*width+j)*2+i%2]. They widen them first.
	panelF16, panelBF16 func(rows, k int, a []float32, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int)

	// pairs is panelBF16 on rows of bfloat16, k even. Of every pair the odd product is added
	// first, then the even one: the order of VDPBF16PS, which counts denormals as zero. Or,
	// with AMX, it sums groups of 32 k: see groupsScalar; a matrix is then cut into steps of
	// a multiple of 32. It is nil, and panelBF16 takes its place, where the processor has
	// neither instruction.
	pairs func(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int)

	// round rounds float32 to bfloat16, to nearest, ties to even; a NaN becomes quiet.
	round func(dst []uint16, src []float32)

	// scores computes s[r*lds+t] = scale * sum over d of q[r*ldq+d] * key t's [d*keys.ld]
	// for r < rows, t < n, d < dim ascending, starting from 0.
	scores func(rows, n, dim int, q []float32, ldq int, keys runs[float32], scale float32, s []float32, lds int)

	// scores16 is scores on keys of bfloat16, which it widens first: the same order.
	scores16 func(rows, n, dim int, q []float32, ldq int, keys runs[uint16], scale float32, s []float32, lds int)

	// softmax replaces s by exp(s - max(s)) and returns the sum, in lanes.
	softmax func(s []float32) float32

	// values continues dst[r*ldd+d] = dst[r*ldd+d] + sum over t of p[r*ldp+t] * value t's
	// [d] for r < rows, d < dim, t < n ascending.
	values func(rows, n, dim int, p []float32, ldp int, v runs[float32], dst []float32, ldd int)

	// values16 is values on values of bfloat16, which it widens first: the same order.
	values16 func(rows, n, dim int, p []float32, ldp int, v runs[uint16], dst []float32, ldd int)

	// norm computes dst = (x - mean) / sqrt(variance + eps) * gain + bias of one row.
	norm func(dst, x, gain, bias []float32, eps float32)

	// stream returns the exclusive or of the words of b, a multiple of 256 bytes.
	stream func(b []byte) uint32
	// peaks are loops of arithmetic alone.
	peaks []Peak

	gelu    func(x []float32)            // x[i] = x[i] * Phi(x[i]) by the tanh formula
	geluErf func(x []float32)            // x[i] = x[i] * Phi(x[i])
	add     func(dst, src []float32)     // dst[i] = dst[i] + src[i]
	scale   func(x []float32, f float32) // x[i] = x[i] * f
}

// lanes is the number of partial sums of a reduction: the floats of a 64-byte vector.
const lanes = 16

// portable is the set of scalar loops that define what all others compute.
func portable() *ops {
	return &ops{
		name:  "portable",
		panel: panelScalar, panelF16: panelF16Scalar, panelBF16: panelBF16Scalar,
		pairs: pairsScalar, round: roundScalar,
		scores: scoresScalar, softmax: softmaxScalar, values: valuesScalar,
		scores16: scores16Scalar, values16: values16Scalar,
		norm: normScalar, gelu: geluScalar, geluErf: geluErfScalar,
		add: addScalar, scale: scaleScalar,
		stream: streamScalar, peaks: []Peak{{Name: "portable float32", run: peakScalar, flop: 2 * scalarChains}},
	}
}
