package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tailor/router/policy"
)

// followingRouter runs a router over replicas that tell what they hold.
type followingRouter struct {
	*Router
	t      testing.TB
	server *httptest.Server
}

func follow(t testing.TB, replicas []*eventReplica, change func(*Config)) *followingRouter {
	t.Helper()
	config := Config{Log: slog.New(slog.DiscardHandler), Health: Health{Interval: 5 * time.Millisecond}}
	for _, e := range replicas {
		config.Replicas = append(config.Replicas, Replica{ID: e.id, URL: e.server.URL})
	}
	if change != nil {
		change(&config)
	}
	rt, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { rt.Run(ctx) })
	f := &followingRouter{Router: rt, t: t, server: httptest.NewServer(rt)}
	t.Cleanup(func() {
		f.server.Close()
		stop()
		running.Wait()
	})
	if err := rt.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// soon waits until something is so.
func soon(t testing.TB, what string, so func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within 20 s", what)
		case <-tick.C:
		}
	}
}

// inStep says whether the router's copy is of the replica's present state.
func (f *followingRouter) inStep(e *eventReplica) bool {
	g := f.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	i, found := g.search(e.id)
	if !found {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := g.replicas[i].copy
	return c != nil && c.epoch == e.epoch && c.seq == e.seq && c.digest == e.cache.digest() && len(g.replicas[i].expected.blocks) == 0
}

func (f *followingRouter) await(replicas ...*eventReplica) {
	f.t.Helper()
	for _, e := range replicas {
		soon(f.t, e.id+" in step", func() bool { return f.inStep(e) })
	}
}

func (f *followingRouter) post(body string, headers ...string) int {
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.server.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.server.Client().Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (f *followingRouter) lastRow() Row {
	rows, _ := f.ledger.last(1)
	return rows[0]
}

func fleetOf(t testing.TB, n int) []*eventReplica {
	var out []*eventReplica
	for i := range n {
		out = append(out, newEventReplica(t, fmt.Sprintf("r%d", i)))
	}
	return out
}

// Requests, evictions and every kind of trouble, in any order: once the events have caught
// up, what the router predicts is what the replica delivers, for two routers that know
// nothing of each other.
func TestFollowersKeepInStep(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	replicas := fleetOf(t, 3)
	routers := []*followingRouter{follow(t, replicas, nil), follow(t, replicas, nil)}
	steps := 60
	if testing.Short() {
		steps = 15
	}
	for step := range steps {
		e := replicas[rng.IntN(len(replicas))]
		switch rng.IntN(12) {
		case 0:
			e.restart()
		case 1:
			e.cut()
		case 2:
			e.change(func() { e.emit(wireEvent{Type: eventCleared}); e.cache.clear() })
		case 3: // more events than are kept, behind a broken connection
			e.change(func() {
				e.cuts++
				for range e.capacity + 1 {
					_, tokens := randomPrompt(rng, 200)
					if ev, news := e.cache.store("", append(tokens, rng.Int32())); news {
						e.emit(ev)
					}
				}
			})
		case 4, 5:
			e.evict(1+rng.IntN(10), rng)
		}
		for _, rt := range routers {
			rt.await(replicas...)
		}
		rt := routers[rng.IntN(2)]
		salt, tokens := randomPrompt(rng, 200)
		body := fmt.Sprintf(`{"model":"m","prompt":%s`, jsonInts(tokens))
		if salt != "" {
			body += fmt.Sprintf(`,"cache_salt":%q`, salt)
		}
		if status := rt.post(body + "}"); status != 200 {
			t.Fatalf("step %d: status %d", step, status)
		}
		row := rt.lastRow()
		if row.Drift != 0 || row.CachedFrom != CachedFromReplica {
			t.Fatalf("step %d: predicted %d, delivered %d (%s)", step, row.PredictedCached, row.CachedTokens, row.CachedFrom)
		}
		if row.CachedTokens+row.ComputedTokens != row.PromptTokens || row.Lost.Sum() != row.ComputedTokens || row.Lost.Stale != 0 {
			t.Fatalf("step %d: the sums are wrong: %+v", step, row)
		}
	}
}

// A second request that comes while the first one's blocks are on their way finds them.
func TestExpectationsBridgeTheGap(t *testing.T) {
	replicas := fleetOf(t, 4)
	rt := follow(t, replicas, nil)
	rt.await(replicas...)
	rt.post(tokenBody(1, 160, 0, 10, ""))
	home := rt.lastRow().Replica
	rt.post(tokenBody(1, 160, 1, 10, "")) // whether or not the event has come
	if row := rt.lastRow(); row.Replica != home || row.PredictedCached != 160 || row.Drift != 0 {
		t.Errorf("went to %s with %d tokens predicted, the first to %s", row.Replica, row.PredictedCached, home)
	}
}

func TestReplicaWithoutEventsIsGuessedAt(t *testing.T) {
	replicas := fleetOf(t, 2)
	replicas[0].silent = true
	rt := follow(t, replicas, nil)
	rt.await(replicas[1])
	soon(t, "the first is known not to tell", func() bool {
		return rt.registry.status()[0].Knowledge == KnowledgeGuessed && rt.registry.status()[1].Knowledge == KnowledgeExact
	})
	for i := range 3 {
		rt.post(tokenBody(1, 160, i, 10, ""), headerReplica, "r0")
	}
	if row := rt.lastRow(); row.PredictedCached != 160 || row.Drift != 0 {
		t.Errorf("the guess predicts %d tokens", row.PredictedCached)
	}
	// Blocks of another length cannot be compared.
	other := follow(t, replicas[1:], func(c *Config) { c.BlockTokens = 8 })
	other.post(tokenBody(1, 160, 0, 10, ""))
	if s := other.registry.status()[0]; s.Knowledge != KnowledgeGuessed {
		t.Errorf("blocks of 16 and of 8 tokens: knowledge is %s", s.Knowledge)
	}
}

func TestDigestThatDiffersMeansResync(t *testing.T) {
	replicas := fleetOf(t, 1)
	rt := follow(t, replicas, nil)
	rt.await(replicas...)
	before := rt.registry.status()[0].Resyncs
	replicas[0].change(func() { replicas[0].lie = 1 })
	soon(t, "resync", func() bool { return rt.registry.status()[0].Resyncs > before })
	if s := rt.registry.status()[0]; s.Knowledge != KnowledgeExact {
		t.Error("the old copy does not serve meanwhile")
	}
	replicas[0].change(func() { replicas[0].lie = 0 })
	rt.await(replicas...)
}

// The index is full: whoever does not fit is guessed at, the others are not disturbed.
func TestFullIndexFallsBackToTheGuess(t *testing.T) {
	replicas := fleetOf(t, 2)
	rt := follow(t, replicas, func(c *Config) { c.FollowBlocks = 12 })
	rt.await(replicas...)
	rt.post(tokenBody(1, 160, 0, 10, ""), headerReplica, "r0") // 10 blocks
	rt.await(replicas...)
	rt.post(tokenBody(2, 160, 0, 10, ""), headerReplica, "r1")
	soon(t, "the second does not fit", func() bool { return rt.registry.status()[1].Knowledge == KnowledgeGuessed })
	if s := rt.registry.status()[0]; s.Knowledge != KnowledgeExact || s.IndexBlocks != 10 {
		t.Errorf("the first: %+v", s)
	}
	g := rt.registry
	soon(t, "cleared", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.blocks.entries == 10 && len(g.retired) == 0 })
}

// A replica that is removed is forgotten at once, and its follower ends.
func TestRemovedReplicaIsForgotten(t *testing.T) {
	replicas := fleetOf(t, 2)
	rt := follow(t, replicas, nil)
	for i, e := range replicas {
		rt.post(tokenBody(i, 160, 0, 10, ""), headerReplica, e.id)
	}
	rt.await(replicas...)
	if err := rt.Remove("r0"); err != nil {
		t.Fatal(err)
	}
	if status := rt.post(tokenBody(0, 160, 1, 10, "")); status != 200 {
		t.Fatal(status)
	}
	if row := rt.lastRow(); row.Replica != "r1" || row.PredictedCached != 0 || row.Lost.Evicted != 160 {
		t.Errorf("after its home was removed: %+v", row)
	}
	g := rt.registry
	soon(t, "cleared", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.retired) == 0 && g.blocks.entries == 20 })
}

func TestExpectations(t *testing.T) {
	now := time.Unix(100, 0)
	a := chain(0, 1, 2, 3, 4)
	check := func(x *expectations, want int, what string, now time.Time) {
		t.Helper()
		if got := x.extend(a, 0, now); got != want {
			t.Errorf("%s: %d blocks expected, want %d", what, got, want)
		}
	}
	x := newExpectations()
	first, second := x.begin(a, now), x.begin(a[:2], now)
	check(x, 4, "in flight", now)
	x.end(first, now) // failed
	check(x, 2, "one failed", now)
	x.answered(second, now)
	x.end(second, now)
	check(x, 2, "answered", now.Add(storeGrace))
	check(x, 0, "not stored in time", now.Add(storeGrace+1))
	third := x.begin(a, now.Add(storeGrace+1))
	check(x, 4, "asked for again", now.Add(storeGrace+1))
	x.stored(a[0])
	if got := x.extend(a, 1, now); got != 4 {
		t.Errorf("the first block is stored: %d, want 4", got)
	}
	x.stored(a[3])
	fourth := x.begin(a[3:], now) // it was evicted meanwhile
	x.end(third, now)
	if len(x.blocks) != 1 || x.blocks[a[3]].pending != 1 {
		t.Errorf("another request's end took the expectation away: %v", x.blocks)
	}
	x.end(fourth, now)
	if len(x.blocks) != 0 || len(x.overdue) != 0 {
		t.Errorf("%d expectations left, %d overdue", len(x.blocks), len(x.overdue))
	}
}

// A decision over 64 replicas and a million different blocks: prompts of 31 blocks, most of
// them held by one replica, some by all of them to different depths.
func BenchmarkDecisionAtScale(b *testing.B) {
	const replicas, prompts, blocks = 64, 34_000, 31
	var config Config
	for i := range replicas {
		config.Replicas = append(config.Replicas, Replica{ID: fmt.Sprintf("r%02d", i), URL: "http://h:1"})
	}
	config.Log, config.FollowBlocks = slog.New(slog.DiscardHandler), 2<<20
	rt, err := New(config)
	if err != nil {
		b.Fatal(err)
	}
	g := rt.registry
	rng := rand.New(rand.NewPCG(1, 1))
	var queries []prompt
	next := int64(0)
	for _, r := range g.replicas {
		r.state = StateReady
		c, err := g.blocks.open("e", "m")
		if err != nil {
			b.Fatal(err)
		}
		if err := g.follow(r, c); err != nil {
			b.Fatal(err)
		}
	}
	for p := range prompts {
		tokens := make([]int32, blocks*16+5)
		for i := range tokens {
			tokens[i] = rng.Int32N(1 << 16)
		}
		for i, r := range g.replicas {
			n := []int{0, 4, 16, blocks}[rng.IntN(4)]
			if p%64 != 0 {
				n = 0
			}
			if i == p%replicas {
				n = blocks
			}
			var run []wireBlock
			for k := range n {
				run = append(run, wireBlock{ID: next, Tokens: tokens[16*k : 16*(k+1)]})
				next++
			}
			if err := g.blocks.store(r.copy, "", -1, run); err != nil {
				b.Fatal(err)
			}
		}
		open := policy.ChainTokens(policy.Root(policy.UnitTokens, "m"), tokens, 16, 4096)
		queries = append(queries, prompt{tokens: len(tokens), chains: []promptChain{{unit: policy.UnitTokens, open: open, blocks: open}}})
	}
	b.Logf("%d blocks of %d replicas, %d of them distinct", g.blocks.entries, replicas, len(g.blocks.blocks))
	for _, name := range policy.Names() {
		b.Run(name, func(b *testing.B) {
			p, err := policy.New(name, policy.DefaultOptions())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				q := &queries[i*7919%prompts]
				booking, _, err := g.choose(wish{prompt: q, policy: p, seq: uint64(i)})
				if err != nil {
					b.Fatal(err)
				}
				g.count(q)
				booking.end(false) // else its blocks would be waited for, and nobody stores them
			}
		})
	}
}
