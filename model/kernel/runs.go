package kernel

import "unsafe"

// runs are the keys, or the values, of consecutive positions of one head, where they lie in
// their blocks: size positions a run, at most lanes, of which the last may be in use in part.
// Dimension d of position t is the element
//
//	offset + d*ld + t%size   of a key, behind at[t/size]
//	offset + t%size*ld + d   of a value
//
// so that one loop goes over all of a sequence's blocks with its sums in registers. One
// pointer more than there are runs says what is wanted after them, to prefetch; and what is
// wanted much later, the next head, lies ahead elements behind each run. Pointers and not
// slices: the assembly reads them. Whoever makes them has checked what lies behind.
type runs[T element] struct {
	at                      []*T
	size, offset, ld, ahead int
}

// run is n elements of the run of position t, from its offset on.
func (r *runs[T]) run(t, n int) []T {
	var one T
	first := unsafe.Add(unsafe.Pointer(r.at[t/r.size]), uintptr(r.offset)*unsafe.Sizeof(one))
	return unsafe.Slice((*T)(first), n)
}

// runSize is the length of the runs in blocks of so many positions: the longest that divides
// them evenly and fits a line.
func runSize(block int) int {
	size := min(block, lanes)
	for block%size != 0 {
		size--
	}
	return size
}

// runLists are the runs of all spans of a call, one span after the other, with those of all
// heads in one. They hold pointers for the length of the call only.
type runLists[T element] struct {
	keys, values []*T
}

// add appends a span's runs, which read finds.
func (l *runLists[T]) add(s *Span, h Heads, read *reader[T]) {
	size, n := s.KV.BlockSize(), s.Start+s.Rows
	run, floats := runSize(size), h.width()*size
	from := len(l.values)
	for b := 0; b*size < n; b++ {
		keys, values := read.keys(s.KV, h.Layer, b)[:floats], read.values(s.KV, h.Layer, b)[:floats]
		for t := 0; t < min(size, n-b*size); t += run {
			l.keys = append(l.keys, &keys[t])
			l.values = append(l.values, &values[t*h.Dim])
		}
	}
	l.keys = append(l.keys, l.values[from])
	l.values = append(l.values, l.values[len(l.values)-1])
}

// reset forgets all, so that nothing is kept from the collector.
func (l *runLists[T]) reset() {
	clear(l.keys)
	clear(l.values)
	l.keys, l.values = l.keys[:0], l.values[:0]
}
