package workload

import (
	"container/heap"
	"math"
	"slices"
)

// Bound returns how many units a cache of so many blocks can reuse at most, however it
// evicts, knowing the future or not. It holds for one cache and for several that have so
// many blocks together, wherever the requests are sent, as long as they are served one
// after another.
//
// Why: call a block of a prompt, together with all before it, an object, and each request
// a series of accesses to its objects. What is reused of a request are h whole blocks and
// then some units of a block beside the next one.
//   - The whole blocks that all requests find are hits in a cache of unit-sized objects,
//     one access after another, that need not keep what is accessed (bypass): let it keep
//     just what the real one has when the next request comes. What a request found it
//     holds until its end, so the real one still has it then, and no place is needed
//     twice. That prefixes stay whole is not asked of it, nor that a request has all
//     its blocks at once. The most hits that such a cache can have are those of Belady's
//     MIN: of the cached and the accessed object, give up the one whose next access is
//     furthest away ("A study of replacement algorithms for a virtual-storage
//     computer", IBM Systems Journal 5(2), 1966; with bypass: Michaud, "Some mathematical
//     facts about optimal cache replacement", ACM TACO 13(4), 2016).
//   - The units after the whole blocks are not charged any room. Their number is what an
//     infinite cache finds there, or, if a block is missed that an infinite cache has,
//     at most what the blocks beside one of those have in common with it. So each
//     request may have an excess over the infinite cache's, but only if it misses a
//     block, which costs more than any excess is worth: the bound is reached with MIN's
//     hits and the largest excesses, one for each miss.
//
// With blocks for everything it is what Infinite counts. Requests that need more blocks
// than there are reuse nothing.
func Bound(sent []Sent, blockSize, blocks int) int64 {
	mustBePositive("block size", blockSize)
	mustBePositive("number of blocks", blocks)
	var (
		accesses []access
		rows     int64
		whole    int
		excesses []int
	)
	c := newCache(blockSize, math.MaxInt)
	for _, s := range sent {
		if len(s.Prompt) == 0 || s.blocks(blockSize) > blocks {
			continue
		}
		found := c.serve(s)
		for i, b := range found.path {
			accesses = append(accesses, access{object: b.number, counts: i < found.whole})
		}
		rows += int64(found.rows)
		whole += found.whole
		if found.excess > 0 {
			excesses = append(excesses, found.excess)
		}
	}
	hits := belady(accesses, c.entered, blocks)
	slices.Sort(excesses)
	for misses := whole - hits; misses > 0 && len(excesses) > 0; misses-- {
		last := len(excesses) - 1
		rows += int64(excesses[last])
		excesses = excesses[:last]
	}
	return int64(hits)*int64(blockSize) + rows
}

// access is one access to an object. One that does not count as a hit may still bring the
// object into the cache: a request computes it.
type access struct {
	object int
	counts bool
}

// belady returns the most accesses that count and can be hits in a cache of so many of the
// objects, numbered from 0.
func belady(accesses []access, objects, capacity int) (hits int) {
	const never = -1
	// next[i] is the next access to the same object, if that counts: otherwise the object
	// is brought in anew then, and need not be kept until then.
	next := make([]int, len(accesses))
	after := make([]int, objects)
	for o := range after {
		after[o] = never
	}
	for i := len(accesses) - 1; i >= 0; i-- {
		o := accesses[i].object
		next[i] = after[o]
		after[o] = never
		if accesses[i].counts {
			after[o] = i
		}
	}
	wanted := make([]bool, len(accesses)) // at that access its object will be cached
	var cached furthest
	size := 0
	for i := range accesses {
		if wanted[i] {
			hits++
			size-- // it is kept again below, or not
		}
		if next[i] == never {
			continue
		}
		wanted[next[i]] = true
		heap.Push(&cached, next[i])
		if size++; size > capacity {
			wanted[heap.Pop(&cached).(int)] = false
			size--
		}
	}
	return hits
}

// furthest is a heap of the next accesses to the cached objects, the furthest on top. Those
// that have passed sink to its bottom.
type furthest []int

func (f furthest) Len() int           { return len(f) }
func (f furthest) Less(i, j int) bool { return f[i] > f[j] }
func (f furthest) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *furthest) Push(x any)        { *f = append(*f, x.(int)) }

func (f *furthest) Pop() any {
	last := len(*f) - 1
	top := (*f)[last]
	*f = (*f)[:last]
	return top
}
