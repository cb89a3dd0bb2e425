package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
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
	shape    model.Config
	open     func(Config) forwarder
	eviction kvcache.Eviction
	bfloat16 bool // keys and values
}

// types is a transformer with its keys and values in float32, and in bfloat16.
func types(m subject) []subject {
	narrow := m
	narrow.bfloat16 = true
	return []subject{m, narrow}
}

// eachType runs the test on both, under names of their own.
func eachType(t *testing.T, name string, m subject, test func(t *testing.T, m subject)) {
	for _, m := range types(m) {
		t.Run(fmt.Sprintf("%s,bfloat16=%v", name, m.bfloat16), func(t *testing.T) { test(t, m) })
	}
}

var path = subject{shape: pathShape, open: openPath}

func (m subject) engine(t testing.TB, blocks, blockSize int, cfg Config) *Engine {
	t.Helper()
	kv, err := kvcache.New(kvcache.Config{
		Blocks: blocks, BlockSize: blockSize,
		Layers: m.shape.Layers, Heads: m.shape.Heads, HeadDim: m.shape.HeadDim(), BFloat16: m.bfloat16, Eviction: m.eviction,
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
	t.Helper()
	r := openRig(t, m, blocks, blockSize, cfg)
	t.Cleanup(r.s.forward.Close)
	return r
}

// openRig is for tests with so many that they cannot wait for their end to close them.
func openRig(t testing.TB, m subject, blocks, blockSize int, cfg Config) *rig {
	t.Helper()
	e := m.engine(t, blocks, blockSize, cfg)
	return &rig{t: t, e: e, s: newScheduler(e)}
}

// call is a request and what came back so far.
type call struct {
	id     string
	req    Request
	cancel context.CancelCauseFunc
	events <-chan Event
	closed bool
	answer          // choice 0's
	others []answer // those of choices 1 to N-1
}

// answer is what a choice must get whatever happens around it.
type answer struct {
	tokens   []int32
	bits     [][]uint32 // the logits that each token was chosen from
	logprobs []*TokenLogprobs
	prompt   []*TokenLogprobs
	finish   FinishReason
	last     Event
}

func newCall(id string, req Request) *call {
	return &call{id: id, req: req, others: make([]answer, max(req.N, 1)-1)}
}

func (c *call) choice(i int) *answer {
	if i == 0 {
		return &c.answer
	}
	return &c.others[i-1]
}

func (r *rig) trySubmit(req Request) (*call, error) {
	c := newCall(fmt.Sprintf("call %d", len(r.calls)), req)
	ctx, cancel := context.WithCancelCause(context.Background())
	r.t.Cleanup(func() { cancel(nil) })
	c.cancel = cancel
	req.ID = c.id
	if req.observe == nil {
		req.observe = c.observe(r.t)
	}
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

func (c *call) observe(t testing.TB) func(int, int, []float32) {
	return func(choice, index int, logits []float32) {
		a := c.choice(choice)
		if index != len(a.bits) {
			t.Errorf("%s: logits of token %d of choice %d after %d tokens", c.id, index, choice, len(a.bits))
		}
		row := make([]uint32, len(logits))
		for i, l := range logits {
			row[i] = math.Float32bits(l)
		}
		a.bits = append(a.bits, row)
	}
}

// take records an event and checks what must hold for any.
func (c *call) take(t testing.TB, ev Event) {
	a := c.choice(ev.Choice)
	if a.finish != "" {
		t.Errorf("%s: event %+v after the last", c.id, ev)
	}
	hasToken := ev.Finish == "" || ev.Finish == FinishStop || ev.Finish == FinishLength && c.req.MaxTokens > 0
	if hasToken != (ev.Token != noToken) {
		t.Errorf("%s: event %+v", c.id, ev)
	}
	if (ev.Err != nil) != (ev.Finish == FinishAbort || ev.Finish == FinishError) {
		t.Errorf("%s: event %+v", c.id, ev)
	}
	if (ev.Logprobs != nil) != (hasToken && c.req.Logprobs != nil) {
		t.Errorf("%s: event %+v with logprobs %+v", c.id, ev, ev.Logprobs)
	}
	if ev.Prompt != nil {
		if c.req.PromptLogprobs == nil || ev.Choice != 0 || a.prompt != nil || len(a.tokens) > 0 {
			t.Errorf("%s: event %+v with the prompt's logprobs", c.id, ev)
		}
		a.prompt = ev.Prompt
	}
	if hasToken {
		a.tokens = append(a.tokens, ev.Token)
		if ev.Logprobs != nil {
			a.logprobs = append(a.logprobs, ev.Logprobs)
		}
	}
	times := ev.Times
	if times.Arrived.IsZero() || hasToken && (times.FirstToken.Before(times.Admitted) || times.Admitted.Before(times.Arrived)) ||
		times.Finished.IsZero() != (ev.Finish == "") {
		t.Errorf("%s: times %+v", c.id, times)
	}
	report := ev.Cache
	if ev.Cached != report.Matched || report.InFlight > report.Matched ||
		!times.Admitted.IsZero() && report.Matched+report.Missed != len(c.req.Tokens) || report.Missed == 1 && report.Reason != "" ||
		report.Reason != MissEvicted && report.Reason != MissReset && report.EvictedAgo != 0 {
		t.Errorf("%s: cached %d, report %+v of %d tokens", c.id, ev.Cached, report, len(c.req.Tokens))
	}
	a.finish, a.last = ev.Finish, ev
}

// turn runs the loop once round and checks everything.
func (r *rig) turn() bool {
	r.t.Helper()
	busy := r.e.turn(r.s)
	for _, c := range r.calls {
		r.collect(c)
	}
	if err := r.e.checkCache(); err != nil {
		r.t.Fatal(err)
	}
	stats := r.e.Stats()
	if stats.KV.Sequences != stats.Running || stats.Running != len(r.s.running) || stats.Waiting != choicesOf(r.s.waiting)+choicesOf(r.e.inbox) {
		r.t.Fatalf("stats %+v with %d running, %d waiting", stats, len(r.s.running), len(r.s.waiting))
	}
	if stats.Running == 0 && stats.KV.Held != stats.KV.Cached {
		r.t.Fatalf("nothing runs, %d blocks are held and %d cached", stats.KV.Held, stats.KV.Cached)
	}
	if !slices.IsSortedFunc(r.s.running, byRank) || !slices.IsSortedFunc(r.s.waiting, byRank) {
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

func choicesOf(queue []*sequence) int {
	n := 0
	for _, seq := range queue {
		n += 1 + len(seq.others)
	}
	return n
}

func (r *rig) collect(c *call) {
	for !c.closed {
		select {
		case ev, ok := <-c.events:
			if ok {
				c.take(r.t, ev)
				continue
			}
			c.closed = true
			if !c.finished() {
				r.t.Fatalf("%s: closed without a last event", c.id)
			}
			return
		default:
			if c.finished() {
				r.t.Fatalf("%s: finished (%s) and not closed", c.id, c.finish)
			}
			return
		}
	}
}

// finished says that all choices have had their last event.
func (c *call) finished() bool {
	return c.finish != "" && !slices.ContainsFunc(c.others, func(a answer) bool { return a.finish == "" })
}

// finishAll turns until nothing is left, and returns how often. The bound is far above
// what any test needs.
func (r *rig) finishAll() (turns int) {
	r.t.Helper()
	const bound = 20_000
	for turns = range bound {
		if !r.turn() {
			for _, c := range r.calls {
				if !c.closed {
					r.t.Fatalf("%s: idle before its end", c.id)
				}
			}
			return turns
		}
	}
	r.t.Fatalf("not done after %d turns: %+v", bound, r.e.Stats())
	return bound
}

// lone is the answer of an engine that never saw another request, with room to spare.
func lone(t testing.TB, m subject, req Request) answer {
	t.Helper()
	rows := len(req.Tokens) + req.MaxTokens
	r := openRig(t, m, rows/16+1, 16, Config{MaxBatchedTokens: rows})
	defer r.s.forward.Close()
	c := r.submit(req)
	r.finishAll()
	if c.last.Cached != 0 || r.e.Stats().PromptReused != 0 {
		t.Fatalf("a fresh engine reused %d tokens", c.last.Cached)
	}
	return c.answer
}

// mustEqual compares choice 0 to the bit. It may be called from any goroutine.
func (c *call) mustEqual(t testing.TB, want answer) { c.choiceMustEqual(t, 0, want) }

// choiceMustEqual compares to the bit. An aborted answer must be the start of the whole
// one.
func (c *call) choiceMustEqual(t testing.TB, i int, want answer) {
	t.Helper()
	got, name := c.choice(i), fmt.Sprintf("%s, choice %d", c.id, i)
	if got.finish == FinishAbort {
		want.tokens = want.tokens[:min(len(want.tokens), len(got.tokens))]
		want.bits = want.bits[:min(len(want.bits), len(got.bits))]
		want.logprobs = want.logprobs[:min(len(want.logprobs), len(got.logprobs))]
	} else if got.finish != want.finish {
		t.Errorf("%s: finished by %q, alone by %q", name, got.finish, want.finish)
	}
	if len(want.bits) != len(got.bits) {
		t.Errorf("%s: %d rows of logits, alone %d", name, len(got.bits), len(want.bits))
		return
	}
	for j := range want.bits {
		if !slices.Equal(want.bits[j], got.bits[j]) {
			t.Errorf("%s: logits of token %d differ from those of a lone run (prompt %d, cached %d)",
				name, j, len(c.req.Tokens), got.last.Cached)
			return
		}
	}
	if !slices.Equal(got.tokens, want.tokens) {
		t.Errorf("%s: tokens\n%v, alone\n%v", name, got.tokens, want.tokens)
	}
	if len(got.logprobs)+len(want.logprobs) > 0 && !reflect.DeepEqual(got.logprobs, want.logprobs) {
		t.Errorf("%s: log probabilities differ from those of a lone run", name)
	}
	// Those who were aborted early never had any.
	if wants := i == 0 && c.req.PromptLogprobs != nil && (got.finish != FinishAbort || got.prompt != nil || len(got.tokens) > 0); wants && !reflect.DeepEqual(got.prompt, want.prompt) {
		t.Errorf("%s: log probabilities of the prompt differ from those of a lone run", name)
	}
}

// aloneOf is choice i of a request as one of its own.
func aloneOf(req Request, i int) Request {
	req.N, req.ChoiceContexts = 1, nil
	if req.Sampling.Seed != nil {
		seed := *req.Sampling.Seed + int64(i)
		req.Sampling.Seed = &seed
	}
	return req
}

// loneChoices are the answers of each choice as a request of its own.
func loneChoices(t testing.TB, m subject, req Request) []answer {
	t.Helper()
	answers := make([]answer, max(req.N, 1))
	for i := range answers {
		answers[i] = lone(t, m, aloneOf(req, i))
	}
	return answers
}

func (r *rig) mustAllEqualLone(m subject) {
	r.t.Helper()
	for _, c := range r.calls {
		for i, want := range loneChoices(r.t, m, c.req) {
			c.choiceMustEqual(r.t, i, want)
		}
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
	t.Cleanup(func() { mustSettle(t, before) })
}

// mustSettle waits until there are no more goroutines than that.
func mustSettle(t *testing.T, most int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > most {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), most, stacks[:runtime.Stack(stacks, true)])
			return
		}
		runtime.Gosched()
	}
}
