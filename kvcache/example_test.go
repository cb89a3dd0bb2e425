package kvcache_test

import (
	"fmt"
	"time"

	"tailor/kvcache"
)

// A second prompt parts from the first at its seventh token, inside a block of four. It
// shares the first block, copies two rows of the second, and computes the rest.
func Example() {
	cache, err := kvcache.New(kvcache.Config{Blocks: 8, BlockSize: 4, Layers: 1, Heads: 1, HeadDim: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, prompt := range [][]int32{
		{1, 2, 3, 4, 5, 6, 7, 8, 9},
		{1, 2, 3, 4, 5, 6, 0, 0, 0},
	} {
		s, err := cache.Allocate("tenant", prompt)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.Cached(), "cached,", s.Len()-s.Computed(), "to compute")
		// Forward fills the rows through s.Keys and s.Values here.
		cache.Commit(s, s.Len()-s.Computed())
		cache.Free(s)
	}
	stats := cache.Stats()
	fmt.Println(stats.Cached, "blocks with", stats.Tokens, "tokens cached")
	// Output:
	// 0 cached, 9 to compute
	// 6 cached, 3 to compute
	// 3 blocks with 10 tokens cached
}

// Two answers to one prompt share what was computed for it, and go on differently.
func ExampleManager_Fork() {
	cache, err := kvcache.New(kvcache.Config{Blocks: 8, BlockSize: 4, Layers: 1, Heads: 1, HeadDim: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := cache.Allocate("", []int32{1, 2, 3, 4, 5, 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	cache.Commit(first, 6) // after Forward
	second, err := cache.Fork(first)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, s := range []*kvcache.Sequence{first, second} {
		if err := cache.Append(s, int32(100+i)); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.Tokens(), "in", s.Blocks(), "blocks,", s.Len()-s.Computed(), "to compute")
	}
	fmt.Println(cache.Stats().Held, "blocks held")
	// Output:
	// [1 2 3 4 5 6 100] in 2 blocks, 1 to compute
	// [1 2 3 4 5 6 101] in 2 blocks, 1 to compute
	// 3 blocks held
}

// A prompt is asked for again after another one has taken its blocks.
func ExampleManager_Explain() {
	now := time.Unix(0, 0)
	cache, err := kvcache.New(
		kvcache.Config{Blocks: 2, BlockSize: 4, Layers: 1, Heads: 1, HeadDim: 2},
		kvcache.WithClock(func() time.Time { return now }),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, first := range []int32{1, 50} {
		s, err := cache.Allocate("tenant", []int32{first, 2, 3, 4, 5, 6, 7, 8})
		if err != nil {
			fmt.Println(err)
			return
		}
		cache.Commit(s, 8)
		cache.Free(s)
		now = now.Add(time.Minute)
	}
	e := cache.Explain("tenant", []int32{1, 2, 3, 4, 9, 9})
	fmt.Println(e.Cached, "cached,", e.Evicted, e.Miss, e.Age, "ago,", e.Tail, "that fill no block")
	// Output:
	// 0 cached, 4 evicted 1m0s ago, 2 that fill no block
}
