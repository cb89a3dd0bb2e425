package kernel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
)

// amxName is the set whose pairs sum in groups.
const amxName = "AVX-512 with AMX"

// groupsSet is a set that runs here with its pairs exchanged for others, which sum in groups,
// or why there is none.
type groupsSet struct {
	name    string
	ops     *ops
	missing error
}

// groupsBy is a set with other loops for pairs.
func groupsBy(o *ops, pairs func(rows, k int, a []uint16, lda int, b []uint16, width int, start []float32, lds int, c []float32, ldc int)) groupsSet {
	o.pairs = pairs
	return groupsSet{name: o.name + " in groups", ops: o}
}

// forEachGroups runs f on everything that sums pairs in groups.
func forEachGroups(t *testing.T, f func(t *testing.T, o *ops, want oracle)) {
	for _, o := range available() {
		if want := oracleOf(o); want.groups {
			t.Run(o.name, func(t *testing.T) { f(t, o, want) })
		}
	}
	exchanged(t, f)
}

// forEachPairs is forEach, and then the sets with exchanged pairs.
func forEachPairs(t *testing.T, f func(t *testing.T, o *ops, want oracle)) {
	forEach(t, f)
	exchanged(t, f)
}

func exchanged(t *testing.T, f func(t *testing.T, o *ops, want oracle)) {
	for _, s := range groupsSets() {
		t.Run(s.name, func(t *testing.T) {
			if s.missing != nil {
				t.Skip(s.missing)
			}
			want := oracleOf(s.ops)
			want.groups = true
			f(t, s.ops, want)
		})
	}
}

// TestGroupsByHand states sums whose bits follow from the order alone, with every number of
// rows that takes another way.
func TestGroupsByHand(t *testing.T) {
	inf, nan, negativeZero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	type sum struct {
		what   string
		a, b   []float32 // exact in bfloat16; what is missing is 0
		k      int
		start  float32
		result float32
	}
	sums := []sum{
		{"one product", []float32{3}, []float32{5}, 2, 7, 22},
		// 1 + 2^-24 is 1, to even. The odd products sum to 2^-23 before they meet the even ones.
		{"even and odd apart", []float32{1, 1, 0, 1}, []float32{1, 0x1p-24, 0, 0x1p-24}, 4, 0, 1 + 0x1p-23},
		{"even in ascending order", []float32{1, 0, 1, 0, 1}, []float32{1, 0, 0x1p-24, 0, 0x1p-24}, 6, 0, 1},
		// The group's sum is rounded before it meets what was there.
		{"start last", []float32{1, 1}, []float32{1, 0x1p-24}, 2, 0x1p-24, 1},
		{"the last of 32", at(32, 0, 1, 28, 1, 30, 1), at(32, 0, 1, 28, 0x1p-24, 30, 0x1p-24), 32, 0, 1},
		{"past 32", at(36, 0, 1, 32, 1, 34, 1), at(36, 0, 1, 32, 0x1p-24, 34, 0x1p-24), 36, 0, 1 + 0x1p-23},
		{"past 64", at(96, 0, 1, 64, 1, 94, 1), at(96, 0, 1, 64, 0x1p-24, 94, 0x1p-24), 96, 0, 1 + 0x1p-23},
		{"denormal rows", []float32{0x1p-130}, []float32{0x1p20}, 2, 0, 0},
		{"denormal weights", []float32{0x1p20}, []float32{0x1p-130}, 2, 0, 0},
		{"denormal start", nil, nil, 2, 0x1p-130, 0},
		{"negative denormal start", []float32{-0x1p-100}, []float32{0x1p-100}, 2, -0x1p-130, 0},
		{"a sum of denormals", []float32{0x1p-64, 0, 0x1p-64}, []float32{0x1p-63, 0, 0x1p-63}, 4, 0, 0},
		{"fused below denormals", []float32{0x1p-63, 0, 0x1p-64, 0, 0x1p-64}, []float32{0x1p-63, 0, 0x1.8p-67, 0, 0x1.8p-67}, 6, 0, 0x1p-126 + 0x1.8p-130},
		// 2^-126 - 2^-150 has 24 bits, and is no normal number. In denormals it would be 2^-126.
		{"24 bits below normal", []float32{0x1p-63, 0, 0x1p-75}, []float32{0x1p-63, 0, -0x1p-75}, 4, 0, 0},
		{"25 bits below normal", []float32{0x1p-63, 0, 0x1p-75}, []float32{0x1p-63, 0, -0x1p-76}, 4, 0, 0x1p-126},
		{"fused above the largest", []float32{0x1p100, 0, 0x1p64}, []float32{-0x1p27, 0, 0x1p64}, 4, 0, 0x1p127},
		{"overflow", []float32{0x1p64}, []float32{0x1p64}, 2, 0, inf},
		{"overflow between groups", []float32{0x1p64}, []float32{0x1p64}, 64, -inf, nan},
		{"infinity", []float32{inf}, []float32{-1}, 2, 1, -inf},
		{"infinity of nothing", []float32{inf}, []float32{0}, 2, 1, nan},
		{"NaN", []float32{1, nan}, []float32{1, 1}, 2, 1, nan},
		{"negative zero", nil, nil, 2, negativeZero, 0}, // -0 + 0
		{"negative underflow", []float32{-0x1p-70, -0x1p-70}, []float32{0x1p-70, 0x1p-70}, 2, negativeZero, negativeZero},
	}
	forEachGroups(t, func(t *testing.T, o *ops, _ oracle) {
		for _, c := range sums {
			a, b := make([]uint16, c.k), make([]uint16, c.k)
			for i := range c.a {
				a[i], b[i] = roundUpper(c.a[i]), roundUpper(c.b[i])
			}
			for _, rows := range []int{1, 2, 3, 4, 5, 16, 17, 31, 32, 33, 64, 70} {
				for width := lanes; width <= panelWidth; width += lanes {
					as, bs := slices.Repeat(a, rows), make([]uint16, c.k*width)
					for i, w := range b {
						for j := range width {
							bs[(i/2*width+j)*2+i%2] = w
						}
					}
					start, dst := slices.Repeat([]float32{c.start}, width), make([]float32, rows*width)
					o.pairs(rows, c.k, as, c.k, bs, width, start, 0, dst, width)
					sameBits(t, fmt.Sprintf("%s, %d rows, width %d", c.what, rows, width), dst, slices.Repeat([]float32{c.result}, rows*width))
				}
			}
		}
	})
}

// at is n floats, 0 but for those given with their places.
func at(n int, placed ...float32) []float32 {
	x := make([]float32, n)
	for i := 0; i < len(placed); i += 2 {
		x[int(placed[i])] = placed[i+1]
	}
	return x
}

// TestGroupsAtTheEdges compares random numbers around the least and the largest ones with the
// oracle's bits; a NaN is one, whatever its bits.
func TestGroupsAtTheEdges(t *testing.T) {
	forEachGroups(t, func(t *testing.T, o *ops, _ oracle) {
		r := newRand(t)
		// Products of these exponents are around 2^-126, 2^-150 or 2^128.
		exponents := []int{-63, -63, -64, -62, -75, -76, -87, -126, -127, 0, 24, 63, 64, 65, 127}
		word := func() uint16 {
			if r.IntN(200) == 0 {
				return uint16(r.Uint32()) // any, infinite or no number as well
			}
			w := uint16(exponents[r.IntN(len(exponents))]+127)<<7 | uint16(r.IntN(2)<<15)
			if r.IntN(3) > 0 {
				w |= uint16(r.IntN(128))
			}
			return w
		}
		numbers := map[bool]int{}
		for range 150 {
			// Sums of few numbers, or one that is large hides all others.
			rows, k, width := 1+r.IntN(36), 2*(1+r.IntN(4)), lanes*(1+r.IntN(3))
			if r.IntN(4) == 0 {
				k += groupK
			}
			a, b := make([]uint16, rows*k), make([]uint16, k*width)
			for i := range a {
				a[i] = word()
			}
			for i := range b {
				if b[i] = word(); i/2/width >= 4 && r.IntN(4) > 0 {
					b[i] = 0
				}
			}
			start, got, want := make([]float32, rows*width), make([]float32, rows*width), make([]float32, rows*width)
			for i := range start {
				start[i] = math.Float32frombits(r.Uint32())
				if r.IntN(4) > 0 { // around the least normal number
					start[i] = math.Float32frombits(r.Uint32N(1<<25) | uint32(r.IntN(2))<<31)
				}
			}
			sumGroups(rows, k, a, k, unpack(BFloat16, k, b, width), width, start, width, want, width)
			o.pairs(rows, k, a, k, b, width, start, width, got, width)
			sameBits(t, fmt.Sprintf("%d rows, k %d, width %d", rows, k, width), got, want)
			for _, x := range want {
				numbers[math.Abs(float64(x)) < 0x1p-100]++
			}
		}
		if numbers[true] < 1000 || numbers[false] < 1000 {
			t.Errorf("%d results are small and %d are not", numbers[true], numbers[false])
		}
	})
}

// TestGroupsLeaveDenormals: what pairs counts as zero is itself again afterwards.
func TestGroupsLeaveDenormals(t *testing.T) {
	forEachGroups(t, func(t *testing.T, o *ops, _ oracle) {
		runtime.LockOSThread() // the mode is a thread's
		defer runtime.UnlockOSThread()
		for rows := 1; rows < 40; rows++ {
			dst, least := make([]float32, rows*lanes), float32(0x1p-126)
			o.pairs(rows, 2, make([]uint16, rows*2), 2, make([]uint16, 2*lanes), lanes, dst, lanes, dst, lanes)
			addScalar(dst, []float32{least / 2, least / 4})
			// To compare floats would count them as zero too.
			if math.Float32bits(dst[0]) != 1<<22 || math.Float32bits(dst[1]) != 1<<21 {
				t.Fatalf("after %d rows half and quarter of the least normal number are %#x and %#x", rows, math.Float32bits(dst[0]), math.Float32bits(dst[1]))
			}
		}
	})
}

// TestPairsDoNotAllocate: the tiles' configuration stays on the stack.
func TestPairsDoNotAllocate(t *testing.T) {
	forEachPairs(t, func(t *testing.T, o *ops, _ oracle) {
		if o.pairs == nil {
			t.Skip("these instructions do not multiply pairs of bfloat16")
		}
		const rows, k = 50, 40
		a, b, c := make([]uint16, rows*k), make([]uint16, k*panelWidth), make([]float32, rows*panelWidth)
		// All of the process counts: the cleanup of other tests' matrices may be under way.
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(10, func() { o.pairs(rows, k, a, k, b, panelWidth, c, 0, c, panelWidth) }))
		}
		if least != 0 {
			t.Errorf("%g allocations", least)
		}
	})
}
