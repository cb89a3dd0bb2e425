package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// keyRuns are n keys of flat keys[dim][ld], in runs of size.
func keyRuns[T element](keys []T, n, size, ld int) runs[T] {
	r := runs[T]{size: size, ld: ld}
	for t := 0; t < n; t += size {
		r.at = append(r.at, &keys[t])
	}
	r.at = append(r.at, &keys[0])
	return r
}

// valueRuns are n values of flat v[n][dim], in runs of size.
func valueRuns[T element](v []T, n, size, dim int) runs[T] {
	r := runs[T]{size: size, ld: dim}
	for t := 0; t < n; t += size {
		r.at = append(r.at, &v[t*dim])
	}
	r.at = append(r.at, &v[0])
	return r
}

// less lacks the last n pointers.
func (r runs[T]) less(n int) runs[T] {
	r.at = r.at[:len(r.at)-n]
	return r
}

// scattered are the same runs in another order in memory, behind an offset, with NaN around
// what they hold. length says how many elements a run of m positions has.
func scattered[T element](r *rand.Rand, a runs[T], n int, nan T, length func(m int) int) runs[T] {
	b := runs[T]{size: a.size, ld: a.ld, offset: 1 + r.IntN(20)}
	room := b.offset + length(a.size) + 1
	all := slices.Repeat([]T{nan}, room*len(a.at))
	places := r.Perm(len(a.at))
	for i := range a.at[:len(a.at)-1] {
		at := all[places[i]*room:][:room]
		copy(at[b.offset:], a.run(i*a.size, length(min(a.size, n-i*a.size))))
		b.at = append(b.at, &at[0])
	}
	b.at = append(b.at, &all[places[len(places)-1]*room])
	return b
}

func TestRunSize(t *testing.T) {
	for block, want := range map[int]int{1: 1, 3: 3, 8: 8, 16: 16, 17: 1, 20: 10, 27: 9, 32: 16, 48: 16, 64: 16, 256: 16} {
		if got := runSize(block); got != want {
			t.Errorf("blocks of %d: runs of %d, want %d", block, got, want)
		}
	}
}

// short has blocks of which the second lacks an element at its end.
type short struct{ *blocks }

func (s short) Keys(layer, block int) []float32 {
	k := s.blocks.Keys(layer, block)
	return k[: len(k)-block : len(k)-block]
}

// TestAttendChecksBlocks: the loops go by pointers, so who makes these must see a block that
// is too short. And nothing of a sequence stays reachable after the call.
func TestAttendChecksBlocks(t *testing.T) {
	r := newRand(t)
	h := Heads{Heads: 2, Dim: 8, Scale: 1}
	team := newTeam(1, 64, best())
	defer team.Close()
	qkv, dst := make([]float32, 20*3*16), make([]float32, 20*16)
	for _, rows := range []int{16, 17} {
		kv := newBlocks(r, false, 16, 20, h.width())
		func() {
			defer func() {
				if failed := recover() != nil; failed != (rows > 16) {
					t.Errorf("%d rows: panics: %v", rows, failed)
				}
			}()
			team.Attend(dst, qkv, []Span{{KV: short{kv}, Rows: rows}}, h)
		}()
	}
	team.read.runs.reset()
	team.Attend(dst, qkv, []Span{{KV: newBlocks(r, false, 16, 20, h.width()), Rows: 20}}, h)
	lists := &team.read.runs
	for _, p := range slices.Concat(lists.keys[:cap(lists.keys)], lists.values[:cap(lists.values)]) {
		if p != nil {
			t.Fatal("a pointer to a block is kept after the call")
		}
	}
}
