package workload

import (
	"fmt"
	"slices"
)

// How reuse is counted, here as in the engine:
//   - Requests are served one after another, in order. Requests that overlap find less of
//     each other.
//   - A request finds the longest beginning of its prompt that the cache holds, unit by
//     unit, but never the whole prompt: its last unit is always computed.
//   - Of prompt and answer all is kept but the answer's last unit, which is never computed,
//     and what fills no block after that.

// Reached is what one cache reuses of the prompts that it is sent.
type Reached struct {
	Prompt int64 // units in all prompts
	Reused int64 // of them, found in the cache
	Hits   int64 // requests that found anything
	// Refused requests need more blocks than there are, or have no prompt. They are in
	// Prompt, but reuse and leave nothing.
	Refused int64
	// Blocks in the cache at the end.
	Blocks int
}

func (r *Reached) add(prompt, reused int) {
	r.Prompt += int64(prompt)
	r.Reused += int64(reused)
	if reused > 0 {
		r.Hits++
	}
}

// rows returns the units that are computed or reused, all but the last of the answer.
func (s Sent) rows() []int32 {
	return slices.Concat(s.Prompt, s.Output[:max(0, len(s.Output)-1)])
}

// blocks is how many the request needs, at its end.
func (s Sent) blocks(size int) int {
	return blocksFor(len(s.Prompt)+max(0, len(s.Output)-1), size)
}

// Infinite counts what a cache reuses that never evicts. Its Blocks are what all requests
// leave together: an LRU cache that has room for them and the largest request reuses as much.
func Infinite(sent []Sent, blockSize int) (r Reached) {
	mustBePositive("block size", blockSize)
	kept := map[string]*sorted{}
	for _, s := range sent {
		if len(s.Prompt) == 0 {
			r.Refused++
			continue
		}
		before := kept[s.Salt]
		if before == nil {
			before = &sorted{}
			kept[s.Salt] = before
		}
		_, found := before.find(s.Prompt[:len(s.Prompt)-1])
		r.add(len(s.Prompt), found)

		full := s.rows()
		full = full[:len(full)/blockSize*blockSize]
		at, known := before.find(full)
		if known < len(full) {
			before.texts = slices.Insert(before.texts, at, full)
			r.Blocks += len(full)/blockSize - known/blockSize
		}
	}
	return r
}

// sorted is a set of texts in the order of their units.
type sorted struct{ texts [][]int32 }

// find returns where a text would be, and how many units it has in common with any of the
// texts, at most: those with most are beside it.
func (s *sorted) find(text []int32) (at, common int) {
	at, _ = slices.BinarySearchFunc(s.texts, text, slices.Compare)
	if at > 0 {
		common = commonPrefix(s.texts[at-1], text)
	}
	if at < len(s.texts) {
		common = max(common, commonPrefix(s.texts[at], text))
	}
	return at, common
}

// LRU counts what one cache of so many blocks reuses that evicts what was used longest ago:
// of the blocks that no other hangs from, the one whose last request ended first. A request
// holds its blocks until it ends; those of its prompt are taken when it starts.
func LRU(sent []Sent, blockSize, blocks int) (r Reached) {
	mustBePositive("block size", blockSize)
	mustBePositive("number of blocks", blocks)
	c := newCache(blockSize, blocks)
	for _, s := range sent {
		if len(s.Prompt) == 0 || s.blocks(blockSize) > blocks {
			r.Prompt += int64(len(s.Prompt))
			r.Refused++
			continue
		}
		found := c.serve(s)
		r.add(len(s.Prompt), found.whole*blockSize+found.rows)
	}
	r.Blocks = c.blocks
	return r
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func blocksFor(units, size int) int { return (units + size - 1) / size }

func mustBePositive(what string, n int) {
	if n < 1 {
		panic(fmt.Sprintf("workload: %s is %d", what, n))
	}
}
