package kvcache_test

import (
	"fmt"

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
