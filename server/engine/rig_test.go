package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"tailor/kvcache"
	"tailor/model"
	"tailor/model/sample"
)

// subject is a model to run the engine with.
type subject struct {
	shape model.Config
	open  func(Config) forwarder
}

var path = subject{pathShape, openPath}

func (m subject) engine(t testing.TB, blocks, blockSize int, cfg Config) *Engine {
	t.Helper()
	kv, err := kvcache.New(kvcache.Config{
		Blocks: blocks, BlockSize: blockSize,
		Layers: m.shape.Layers, Heads: m.shape.Heads, HeadDim: m.shape.HeadDim(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return newEngine(m.shape, m.open, kv, cfg, slog.New(slog.DiscardHandler))
}

// rig is an engine whose loop the test turns by hand, so that what is in a step is known.
// All invariants are checked after each turn.
type rig struct {
	t     testing.TB
	e     *Engine
	s     *scheduler
	calls []*call
}

func newRig(t testing.TB, m subject, blocks, blockSize int, cfg Config) *rig {
	e := m.engine(t, blocks, blockSize, cfg)
	r := &rig{t: t, e: e, s: newScheduler(e)}
	t.Cleanup(r.s.forward.Close)
	return r
}

// call is a request and what came back so far.
type call struct {
	id     string
	req    Request
	cancel context.CancelCauseFunc
	events <-chan Event
	closed bool
	answer
}

// answer is what a request must get whatever happens around it.
type answer struct {
	tokens []int32
	bits   [][]uint32 // the logits that each token was chosen from
	finish FinishReason
	last   Event
}

func (r *rig) trySubmit(req Request) (*call, error) {
	c := &call{id: fmt.Sprintf("call %d", len(r.calls)), req: req}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.t.Cleanup(func() { cancel(nil) })
	c.cancel = cancel
	req.ID = c.id
	req.observe = c.observe(r.t)
	events, err := r.e.Submit(ctx, req)
	if err != nil {
		return nil, err
	}
	c.events = events
	r.calls = append(r.calls, c)
	return c, nil
}

func (r *rig) submit(req Request) *call {
	r.t.Helper()
	c, err := r.trySubmit(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (c *call) observe(t testing.TB) func(int, []float32) {
	return func(index int, logits []float32) {
		if index != len(c.bits) {
			t.Errorf("%s: logits of token %d after %d tokens", c.id, index, len(c.bits))
		}
		row := make([]uint32, len(logits))
		for i, l := range logits {
			row[i] = math.Float32bits(l)
		}
		c.bits = append(c.bits, row)
	}
}

// take records an event and checks what must hold for any.
func (c *call) take(t testing.TB, ev Event) {
	if c.finish != "" {
		t.Errorf("%s: event %+v after the last", c.id, ev)
	}
	hasToken := ev.Finish == "" || ev.Finish == FinishStop || ev.Finish == FinishLength && c.req.MaxTokens > 0
	if hasToken != (ev.Token != noToken) {
		t.Errorf("%s: event %+v", c.id, ev)
	}
	if (ev.Err != nil) != (ev.Finish == FinishAbort || ev.Finish == FinishError) {
		t.Errorf("%s: event %+v", c.id, ev)
	}
	if hasToken {
		c.tokens = append(c.tokens, ev.Token)
	}
	times := ev.Times
	if times.Arrived.IsZero() || hasToken && (times.FirstToken.Before(times.Admitted) || times.Admitted.Before(times.Arrived)) ||
		times.Finished.IsZero() != (ev.Finish == "") {
		t.Errorf("%s: times %+v", c.id, times)
	}
	c.finish, c.last = ev.Finish, ev
}

// turn runs the loop once round and checks everything.
func (r *rig) turn() bool {
	r.t.Helper()
	busy := r.e.turn(r.s)
	for _, c := range r.calls {
		r.collect(c)
	}
	if err := r.e.kv.Check(); err != nil {
		r.t.Fatal(err)
	}
	stats := r.e.Stats()
	if stats.KV.Sequences != stats.Running || stats.Running != len(r.s.running) || stats.Waiting != len(r.s.waiting)+len(r.e.inbox) {
		r.t.Fatalf("stats %+v with %d running, %d waiting", stats, len(r.s.running), len(r.s.waiting))
	}
	if stats.Running == 0 && stats.KV.Held != stats.KV.Cached {
		r.t.Fatalf("nothing runs, %d blocks are held and %d cached", stats.KV.Held, stats.KV.Cached)
	}
	if !slices.IsSortedFunc(r.s.running, byArrival) || !slices.IsSortedFunc(r.s.waiting, byArrival) {
		r.t.Fatal("running or waiting out of order")
	}
	for _, seq := range r.s.running {
		if seq.kv == nil || seq.finished {
			r.t.Fatalf("%s runs without blocks", seq.id)
		}
	}
	for _, seq := range r.s.waiting {
		if seq.kv != nil || seq.finished {
			r.t.Fatalf("%s waits with blocks", seq.id)
		}
	}
	return busy
}

func (r *rig) collect(c *call) {
	for !c.closed {
		select {
		case ev, ok := <-c.events:
			if !ok {
				if c.finish == "" {
					r.t.Fatalf("%s: closed without a last event", c.id)
				}
				c.closed = true
				return
			}
			c.take(r.t, ev)
		default:
			if c.finish != "" {
				r.t.Fatalf("%s: finished (%s) and not closed", c.id, c.finish)
			}
			return
		}
	}
}

// finishAll turns until nothing is left; bound is far above what any test needs.
func (r *rig) finishAll() {
	r.t.Helper()
	const bound = 20_000
	for range bound {
		if !r.turn() {
			for _, c := range r.calls {
				if !c.closed {
					r.t.Fatalf("%s: idle before its end", c.id)
				}
			}
			return
		}
	}
	r.t.Fatalf("not done after %d turns: %+v", bound, r.e.Stats())
}

// lone is the answer of an engine that never saw another request, with room to spare.
func lone(t testing.TB, m subject, req Request) answer {
	t.Helper()
	r := newRig(t, m, m.shape.Context/16, 16, Config{MaxBatchedTokens: m.shape.Context})
	c := r.submit(req)
	r.finishAll()
	if c.last.Cached != 0 || r.e.Stats().PromptReused != 0 {
		t.Fatalf("a fresh engine reused %d tokens", c.last.Cached)
	}
	return c.answer
}

// mustEqual compares to the bit. An aborted answer must be the start of the whole one.
// It may be called from any goroutine.
func (c *call) mustEqual(t testing.TB, want answer) {
	t.Helper()
	tokens, bits := want.tokens, want.bits
	if c.finish == FinishAbort {
		tokens = tokens[:min(len(tokens), len(c.tokens))]
		bits = bits[:min(len(bits), len(c.bits))]
	} else if c.finish != want.finish {
		t.Errorf("%s: finished by %q, alone by %q", c.id, c.finish, want.finish)
	}
	if len(bits) != len(c.bits) {
		t.Errorf("%s: %d rows of logits, alone %d", c.id, len(c.bits), len(bits))
		return
	}
	for i := range bits {
		if !slices.Equal(bits[i], c.bits[i]) {
			t.Errorf("%s: logits of token %d differ from those of a lone run (prompt %d, cached %d)",
				c.id, i, len(c.req.Tokens), c.last.Cached)
			return
		}
	}
	if !slices.Equal(c.tokens, tokens) {
		t.Errorf("%s: tokens\n%v, alone\n%v", c.id, c.tokens, tokens)
	}
}

func (r *rig) mustAllEqualLone(m subject) {
	r.t.Helper()
	for _, c := range r.calls {
		c.mustEqual(r.t, lone(r.t, m, c.req))
	}
}

// seq is n tokens that no other start shares.
func seqFrom(start, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((start + i*7 + i*i) % 48)
	}
	if n > 0 {
		tokens[0] = int32(start % 48)
	}
	return tokens
}

func join(parts ...[]int32) []int32 { return slices.Concat(parts...) }

func greedy() sample.Params { return sample.Params{TopP: 1} }

func seeded(seed int64) sample.Params {
	return sample.Params{Temperature: 1, TopP: 0.95, Seed: &seed}
}

// ask is a request that only its length ends.
func ask(tokens []int32, maxTokens int) Request {
	return Request{Tokens: tokens, MaxTokens: maxTokens, Sampling: seeded(int64(len(tokens))), IgnoreEOS: true}
}

// seedsOf runs the test for seeds 1 to n.
func seedsOf(t *testing.T, n int, test func(t *testing.T, rnd *rand.Rand)) {
	for seed := range n {
		runSeed(t, uint64(seed+1), test)
	}
}

// runSeed names the test by its seed, so that a failure shows it.
func runSeed(t *testing.T, seed uint64, test func(t *testing.T, rnd *rand.Rand)) {
	t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		test(t, rand.New(rand.NewPCG(seed, 0x7a110)))
	})
}

// noLeaks fails the test if goroutines are left at its end.
func noLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<16)
				t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
					stacks[:runtime.Stack(stacks, true)])
				return
			}
			runtime.Gosched()
		}
	})
}
