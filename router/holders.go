package router

import "math/bits"

// maxFollowed is how many replicas' caches one index can tell apart.
const maxFollowed = 256

// holders is a set of replicas, by their number in the index.
type holders [maxFollowed / 64]uint64

func (h *holders) add(number int)     { h[number/64] |= 1 << (number % 64) }
func (h *holders) remove(number int)  { h[number/64] &^= 1 << (number % 64) }
func (h holders) has(number int) bool { return h[number/64]>>(number%64)&1 == 1 }
func (h holders) empty() bool         { return h == holders{} }

// and is the set of those in both.
func (h holders) and(other holders) holders {
	for i := range h {
		h[i] &= other[i]
	}
	return h
}

// without is the set of those that are not in other.
func (h holders) without(other holders) holders {
	for i := range h {
		h[i] &^= other[i]
	}
	return h
}

// each calls visit with the members in ascending order.
func (h holders) each(visit func(number int)) {
	for i, word := range h {
		for ; word != 0; word &= word - 1 {
			visit(64*i + bits.TrailingZeros64(word))
		}
	}
}
