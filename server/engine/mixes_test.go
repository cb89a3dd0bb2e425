package engine

import (
	"flag"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"tailor/kvcache"
)

var modelMixes = flag.Int("model.mixes", 1000, "mixes of requests that are compared hot and cold on the bundled model (a hundredth with -short)")

// The claim itself, on the model that is served: for any mix of requests the logits are
// the same bits, whether prefixes come from the cache or are computed.
func TestModelMixesHotEqualCold(t *testing.T) {
	m, mixes := bundled(t), *modelMixes
	if testing.Short() {
		mixes = max(mixes/100, 1)
	}
	seeds := uint64(mixes)
	first := uint64(1)
	if *modelSeed != 0 {
		first, seeds = *modelSeed, 1
	}
	var sum mixed
	for seed := first; seed < first+seeds; seed++ {
		before := sum.reused
		sum.add(t, m, rand.New(rand.NewPCG(seed, 0xb175)))
		if sum.reused == before {
			t.Errorf("nothing was reused")
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, sum)
		}
	}
	t.Logf("%d mixes: %d requests, %d prompt tokens reused, %d rows of %d logits compared, %d different bits",
		seeds, sum.requests, sum.reused, sum.rows, m.shape.Vocab, sum.different)
}

// mixed counts what mixes came to.
type mixed struct{ requests, reused, rows, different uint64 }

func (sum *mixed) add(t *testing.T, m subject, rnd *rand.Rand) {
	m.eviction, m.bfloat16 = kvcache.Eviction(rnd.IntN(2)), rnd.IntN(2) == 1
	r := openRig(t, m, 24+rnd.IntN(40), 4<<rnd.IntN(3), Config{
		MaxBatchedTokens: 1 + rnd.IntN(120),
		MaxSequences:     1 + rnd.IntN(6),
		Threads:          1 + rnd.IntN(2),
		Schedule:         []Schedule{FCFS, LongestPrefix}[rnd.IntN(2)],
	})
	defer r.s.forward.Close()
	random := func(n int) []int32 {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(rnd.IntN(m.shape.Vocab))
		}
		return tokens
	}
	stem := random(20 + rnd.IntN(60))
	for i := range 2 + rnd.IntN(3) {
		prompt := stem
		if i > 0 {
			prompt = join(stem[:1+rnd.IntN(len(stem))], random(1))
		}
		req := Request{
			Tokens: prompt, MaxTokens: 1 + rnd.IntN(6), N: 1 + rnd.IntN(2),
			IgnoreEOS: true, Sampling: seeded(rnd.Int64()),
		}
		if rnd.IntN(3) == 0 {
			req.Sampling = greedy()
		}
		r.submit(req)
		for range rnd.IntN(6) {
			r.turn()
		}
	}
	r.finishAll()
	// Again, so that every mix has hits: the first prompt fills a block or more.
	r.submit(r.calls[0].req)
	r.finishAll()
	stats := r.e.Stats()
	sum.requests += stats.Requests
	sum.reused += stats.PromptReused
	for _, c := range r.calls {
		for i, want := range loneChoices(t, m, c.req) {
			c.choiceMustEqual(t, i, want)
			sum.rows += uint64(len(want.bits))
			sum.different += differentBits(c.choice(i).bits, want.bits)
		}
	}
}

func differentBits(a, b [][]uint32) uint64 {
	if len(a) != len(b) {
		panic(fmt.Sprintf("%d rows and %d", len(a), len(b)))
	}
	n := uint64(0)
	for i := range a {
		for j := range a[i] {
			n += uint64(bits.OnesCount32(a[i][j] ^ b[i][j]))
		}
	}
	return n
}
