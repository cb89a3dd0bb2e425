package radixattn

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestModelChildren runs a set of children against a plain map, up and down across the
// number from which on they are indexed.
func TestModelChildren(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-model.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, want := &children{}, make(map[int32]*node)
	indexed, scanned := 0, 0
	for i := range 20_000 {
		growing := i/200%2 == 0
		token := int32(r.IntN(3*indexFrom)) - 3
		n := &node{tokens: []int32{token, int32(i)}}
		switch {
		case want[token] == nil && growing == (r.IntN(4) > 0):
			c.add(n)
			want[token] = n
		case want[token] != nil && growing == (r.IntN(4) == 0):
			c.remove(token)
			delete(want, token)
		case want[token] != nil:
			c.replace(n)
			want[token] = n
		}
		if c.index != nil {
			indexed++
		} else {
			scanned++
		}
		if len(c.edges) != len(want) || c.index != nil && len(c.index) != len(want) {
			t.Fatalf("seed %d, operation %d: %d edges, %d indexed, want %d", seed, i, len(c.edges), len(c.index), len(want))
		}
		for token := int32(-3); token < 3*indexFrom; token++ {
			at := c.find(token)
			if (at < 0) != (want[token] == nil) || at >= 0 && c.edges[at] != (edge{token, want[token]}) {
				t.Fatalf("seed %d, operation %d: token %d found at %d, want %v", seed, i, token, at, want[token])
			}
		}
	}
	if indexed == 0 || scanned == 0 {
		t.Errorf("seed %d: %d operations on an index, %d on a scan", seed, indexed, scanned)
	}
}
