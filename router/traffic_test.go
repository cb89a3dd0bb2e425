package router

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"tailor/router/policy"
)

// counted is a chain of n blocks: the first shared ones depend on prefix, the others on
// suffix too.
func counted(prefix, shared, suffix, n int) []policy.Hash {
	steps := make([]int32, n)
	for i := range steps {
		if steps[i] = int32(prefix); i >= shared {
			steps[i] = int32(1_000_000 + suffix)
		}
	}
	return chain(0, steps...)
}

func TestTrafficShares(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	x := newTraffic()
	if got := x.share(counted(0, 4, 0, 8), 4); got != 0 {
		t.Errorf("nothing has been seen: share %v", got)
	}
	x.add(counted(0, 4, 0, 8), 8)
	if got := x.share(counted(0, 4, 0, 8), 4); got > 0.1 {
		t.Errorf("one request: share %v", got)
	}
	for i := range 5000 {
		prefix := 1 + i
		if rng.IntN(2) == 0 {
			prefix = 0 // half of all
		}
		x.add(counted(prefix, 20, i, 31), 8)
	}
	hot := counted(0, 20, 99_999, 31)
	for blocks, want := range map[int]float64{1: 0.5, 20: 0.5, 21: 0, 31: 0} {
		if got := x.share(hot, blocks); math.Abs(got-want) > 0.03 {
			t.Errorf("share of the first %d blocks: %.3f, want about %v", blocks, got, want)
		}
	}
	for i := range 20 * trafficWindow { // another time, another prefix
		x.add(counted(-1, 20, i, 31), 8)
	}
	if got := x.share(hot, 20); got > 0.01 {
		t.Errorf("long after: share %.3f", got)
	}
}

// The depth is the smallest whose keys spread and come again.
func TestTrafficDepth(t *testing.T) {
	const seed = 6
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	depth := func(next func(i int) []policy.Hash) int {
		x := newTraffic()
		for i := range 2 * trafficWindow {
			x.add(next(i), 8)
		}
		return x.depth
	}
	if got := depth(func(i int) []policy.Hash { return counted(rng.IntN(500), 31, i, 34) }); got != 1 {
		t.Errorf("500 prefixes that differ at once: depth %d, want 1", got)
	}
	if got := depth(func(i int) []policy.Hash { return counted(rng.IntN(5), 31, i, 34) }); got != 1 {
		t.Errorf("5 prefixes: depth %d; deeper they do not come again", got)
	}
	shared := func(i int) []policy.Hash { // all begin alike, and differ from the 7th block on
		steps := make([]int32, 34)
		topic := 10 + rng.Int32N(200)
		for k := range steps {
			if k >= 6 {
				steps[k] = topic
			}
			if k >= 20 {
				steps[k] = int32(1000 + i)
			}
		}
		return chain(0, steps...)
	}
	if got := depth(shared); got != 8 {
		t.Errorf("6 blocks in common: depth %d, want 8", got)
	}
	if got := depth(func(i int) []policy.Hash { return counted(i, 31, i, 34) }); got != 0 {
		t.Errorf("nothing comes again: depth %d", got)
	}
}

// All requests of Mooncake's conversation trace share their first block, so a hash of one
// block uses one replica. The depth found by looking must spread them.
func TestTrafficDepthOnConversations(t *testing.T) {
	data, err := os.ReadFile("../../shared/data/traces/mooncake/conversation_trace.jsonl")
	if err != nil {
		t.Skipf("no shared data beside the checkout: %v", err)
	}
	x := newTraffic()
	p := policy.NewConsistentHash(policy.DefaultOptions())
	replicas := []policy.Replica{{ID: "a", Ready: true}, {ID: "b", Ready: true}, {ID: "c", Ready: true}, {ID: "d", Ready: true}}
	counts := map[string]int{}
	seen, repeated := map[policy.Hash]string{}, 0
	n := 0
	for line := range strings.Lines(string(data)) {
		var row struct {
			Tokens int           `json:"input_length"`
			Blocks []policy.Hash `json:"hash_ids"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		// The trace numbers its blocks; hashes are spread over all values.
		for i, b := range row.Blocks {
			row.Blocks[i] = policy.Next(b, nil)
		}
		x.add(row.Blocks, 4)
		if n++; n <= trafficWindow {
			continue
		}
		d, err := p.Choose(policy.Request{Blocks: row.Blocks, BlockTokens: 512, Tokens: row.Tokens, Depth: x.depth, Seq: uint64(n)}, replicas)
		if err != nil {
			t.Fatal(err)
		}
		counts[d.Replica]++
		if len(row.Blocks) > 3 {
			if home, ok := seen[row.Blocks[3]]; ok && home == d.Replica {
				repeated++
			}
			seen[row.Blocks[3]] = d.Replica
		}
	}
	t.Logf("depth %d, requests %v, %d follow their first four blocks home", x.depth, counts, repeated)
	for id, c := range counts {
		if share := float64(c) / float64(n-trafficWindow); share > 0.35 {
			t.Errorf("%s gets %.2f of the requests", id, share)
		}
	}
	if len(counts) != 4 || repeated < 2000 {
		t.Errorf("%d replicas used, %d requests follow a prefix", len(counts), repeated)
	}
}
