package router

import (
	"container/heap"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"tailor/router/policy"
)

// simulation runs requests through a router's choices in simulated time: each replica
// serves one request after another, for so long per token that is not cached there, and so
// long for the answer. What is cached is known exactly; a cache never forgets.
type simulation struct {
	perToken, perAnswer time.Duration

	requests []int // sent to each replica
	busy     []time.Duration
	reused   int // tokens
	infinite int // tokens that one cache which never forgets would have reused
}

type simulatedEnd struct {
	at      time.Time
	booking *booking
}

type endHeap []simulatedEnd

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h endHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endHeap) Push(x any)        { *h = append(*h, x.(simulatedEnd)) }
func (h *endHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// run sends prompts at the times given, after the start.
func (s *simulation) run(t testing.TB, p policy.Policy, replicas int, prompts []prompt, arrivals []time.Duration) {
	clock := newFakeClock()
	config := Config{Clock: clock, Log: slog.New(slog.DiscardHandler), Policy: p, IndexBlocks: 1 << 20, IndexAge: 1000 * time.Hour}
	for i := range replicas {
		config.Replicas = append(config.Replicas, Replica{ID: fmt.Sprintf("r%02d", i), URL: "http://h:1"})
	}
	rt, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	g := rt.registry
	for _, r := range g.replicas {
		r.state = StateReady
	}
	s.requests, s.busy = make([]int, replicas), make([]time.Duration, replicas)
	free := make([]time.Time, replicas) // when each has done all it was sent
	caches, all := make([]map[policy.Hash]bool, replicas), map[policy.Hash]bool{}
	for i := range caches {
		caches[i] = map[policy.Hash]bool{}
	}
	match := func(cache map[policy.Hash]bool, chain []policy.Hash) int {
		n := 0
		for n < len(chain) && cache[chain[n]] {
			n++
		}
		for _, h := range chain {
			cache[h] = true
		}
		return 16 * n
	}
	start := clock.now
	var ends endHeap
	for k := range prompts {
		now := start.Add(arrivals[k])
		for len(ends) > 0 && !ends[0].at.After(now) {
			e := heap.Pop(&ends).(simulatedEnd)
			clock.now = e.at
			e.booking.end(true)
		}
		clock.now = now
		b, d, err := g.choose(wish{prompt: &prompts[k], policy: p, seq: uint64(k)})
		if err != nil {
			t.Fatal(err)
		}
		g.count(&prompts[k])
		i, _ := g.search(d.Replica)
		chain := prompts[k].chains[0].blocks
		cached := match(caches[i], chain)
		s.reused += cached
		s.infinite += match(all, chain)
		takes := s.perAnswer + time.Duration(prompts[k].tokens-cached)*s.perToken
		if free[i].Before(now) {
			free[i] = now
		}
		free[i] = free[i].Add(takes)
		s.requests[i]++
		s.busy[i] += takes
		heap.Push(&ends, simulatedEnd{at: free[i], booking: b})
	}
}

// mostLoaded is the largest share of requests, and of busy time, as a multiple of the mean.
func (s *simulation) mostLoaded() (requests, busy float64) {
	var n int
	var d time.Duration
	for i := range s.requests {
		n += s.requests[i]
		d += s.busy[i]
		requests = max(requests, float64(s.requests[i]))
		busy = max(busy, float64(s.busy[i]))
	}
	count := float64(len(s.requests))
	return requests * count / float64(n), busy * count / float64(d)
}

// 90 % of the requests begin with the same 500 tokens. At any load at which replicas are
// in one another's need, the most loaded has at most 1.25 times the mean, and at least
// 95 % of what one infinite cache would reuse is reused.
func TestHotPrefix(t *testing.T) {
	const seed, replicas = 9, 8
	t.Logf("seed %d", seed)
	requests, names := 8000, []string{"prefix_hash", "cache_aware", "least_loaded", "prefix_affinity"}
	if testing.Short() {
		requests, names = 3000, names[3:]
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	prompts := make([]prompt, requests)
	hot := make([]int32, 500)
	for i := range hot {
		hot[i] = rng.Int32N(4096)
	}
	for k := range prompts {
		tokens := make([]int32, 540)
		for i := range tokens {
			tokens[i] = rng.Int32N(4096)
		}
		if rng.IntN(10) > 0 {
			copy(tokens, hot)
		}
		open := policy.ChainTokens(policy.Root(policy.UnitTokens, "m"), tokens, 16, 4096)
		prompts[k] = prompt{model: "m", tokens: len(tokens), chains: []promptChain{{unit: policy.UnitTokens, open: open, blocks: open}}}
	}
	const perToken, perAnswer = 100 * time.Microsecond, 30 * time.Millisecond
	mean := 0.9*float64(perAnswer+44*perToken) + 0.1*float64(perAnswer+540*perToken) // served from a warm cache
	for _, name := range names {
		p, err := policy.New(name, policy.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		for _, utilization := range []float64{0.15, 0.3, 0.5, 0.7, 0.85} {
			arrivals := make([]time.Duration, requests)
			at, rng := 0.0, rand.New(rand.NewPCG(seed, 1))
			for k := range arrivals {
				at += rng.ExpFloat64() * mean / replicas / utilization
				arrivals[k] = time.Duration(at)
			}
			s := &simulation{perToken: perToken, perAnswer: perAnswer}
			s.run(t, p, replicas, prompts, arrivals)
			byRequests, byTime := s.mostLoaded()
			reuse := float64(s.reused) / float64(s.infinite)
			t.Logf("%-15s at %2.0f %% load: most loaded %.2f of the mean in requests, %.2f in busy time; %.1f %% of infinite reuse",
				name, 100*utilization, byRequests, byTime, 100*reuse)
			if name != "prefix_affinity" {
				continue
			}
			if byRequests > 1.25 || byTime > 1.25 || reuse < 0.95 {
				t.Errorf("%s at %v: want at most 1.25, 1.25 and at least 95 %%", name, utilization)
			}
		}
	}
}
