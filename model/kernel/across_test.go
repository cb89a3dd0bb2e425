package kernel

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

// TestSameBitsOnEveryProcessor: all sets that fuse, for amd64 and for arm64, compute the
// same bits from the same numbers, and the scalar loops theirs, whatever they are compiled
// for.
func TestSameBitsOnEveryProcessor(t *testing.T) {
	const fusedBits, roundedBits = 0xdb4133a353e7f696, 0xae6478d24cb67b1a
	for _, o := range available() {
		want := uint64(fusedBits)
		if o.name == portable().name {
			want = roundedBits
		}
		if got := hashOf(o); got != want {
			t.Errorf("%s: results hash to %#x, want %#x", o.name, got, want)
		}
	}
}

// hashOf hashes the results of all loops but pairs, which not every set has.
func hashOf(o *ops) uint64 {
	h := fnv.New64a()
	hash := func(x ...float32) {
		for _, v := range x {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = 4*r.Float32() - 2
		}
		return x
	}
	words := func(n int, round func(float32) uint16) []uint16 {
		x := make([]uint16, n)
		for i, v := range floats(n) {
			x[i] = round(v)
		}
		return x
	}
	for rows := 1; rows <= 13; rows++ {
		for width := lanes; width <= panelWidth; width += lanes {
			k := 3*rows + width/lanes
			a, start, c := floats(rows*k), floats(width), make([]float32, rows*width)
			o.panel(rows, k, a, k, floats(k*width), width, start, 0, c, width)
			hash(c...)
			o.panelF16(rows, k, a, k, words(k*width, roundHalf), width, start, 0, c, width)
			hash(c...)
			o.panelBF16(rows, k, a, k, words((k+1)*width, roundUpper), width, start, 0, c, width)
			hash(c...)
		}
	}
	for rows := 1; rows <= tileRows; rows++ {
		for n := 1; n < 40; n++ {
			dim := 2*n + rows
			q, keys, keys16 := floats(rows*dim), floats(dim*n), words(dim*n, roundUpper)
			lines := (n + lanes - 1) / lanes * lanes
			s := make([]float32, rows*lines)
			o.scores(rows, n, dim, q, dim, keyRuns(keys, n, lanes, n), 0.3, s, lines)
			for i := range rows {
				hash(s[i*lines:][:n]...)
			}
			o.scores16(rows, n, dim, q, dim, keyRuns(keys16, n, lanes, n), 0.3, s, lines)
			for i := range rows {
				hash(s[i*lines:][:n]...)
			}
			o.values(rows, dim, n, q, dim, valueRuns(keys, dim, lanes, n), s, lines)
			o.values16(rows, dim, n, q, dim, valueRuns(keys16, dim, lanes, n), s, lines)
			for i := range rows {
				hash(s[i*lines:][:n]...)
			}
		}
	}
	for n := 1; n < 80; n++ {
		x, y := floats(n), make([]float32, n)
		o.norm(y, x, floats(n), floats(n), 1e-5)
		hash(y...)
		o.add(y, x)
		o.scale(y, 3)
		o.gelu(y)
		hash(y...)
		o.geluErf(x)
		hash(x...)
		hash(o.softmax(x))
		hash(x...)
	}
	return h.Sum64()
}
