package engine

import (
	"context"
	"errors"
	"testing"

	"tailor/model"
)

var errGone = errors.New("the client has gone")

func (c *call) mustBeAborted(t *testing.T, cause error) {
	t.Helper()
	if c.finish != FinishAbort || !errors.Is(c.last.Err, cause) || !c.closed {
		t.Errorf("%s: got %+v, want an abort by %v", c.id, c.last, cause)
	}
}

func TestPreemption(t *testing.T) {
	// Two requests that need 5 blocks each, 6 blocks: one has to give way.
	r := newRig(t, path, 6, 4, Config{})
	first, second := r.submit(ask(seqFrom(1, 8), 12)), r.submit(ask(seqFrom(2, 8), 12))
	third := r.submit(ask(seqFrom(3, 2), 2))
	for r.turn() {
		if len(second.tokens) > len(first.tokens) {
			t.Errorf("the later request is ahead: %d tokens, the earlier has %d", len(second.tokens), len(first.tokens))
		}
	}
	stats := r.e.Stats()
	if stats.Preemptions == 0 || stats.ResumeReused == 0 {
		t.Errorf("stats %+v", stats)
	}
	if first.last.Times.Finished.After(second.last.Times.Finished) {
		t.Error("the oldest did not finish first")
	}
	// The third fits into what is left while the second waits, but may not pass it.
	if third.last.Times.Admitted.Before(second.last.Times.Admitted) {
		t.Error("a later request was admitted first")
	}
	r.mustAllEqualLone(path)
}

// One sequence after another is preempted until the oldest runs alone.
func TestTheOldestAlwaysFinishes(t *testing.T) {
	r := newRig(t, path, 12, 2, Config{})
	for i := range 6 {
		r.submit(ask(seqFrom(i, 2), 23)) // 12 blocks each
	}
	for range 23 {
		r.turn()
	}
	if c := r.calls[0]; c.finish != FinishLength {
		t.Errorf("the oldest has %d tokens after 23 steps", len(c.tokens))
	}
	r.finishAll()
	for i := 1; i < len(r.calls); i++ {
		if r.calls[i].last.Times.Finished.Before(r.calls[i-1].last.Times.Finished) {
			t.Errorf("call %d finished before call %d", i, i-1)
		}
	}
	if r.e.Stats().Preemptions < 5 {
		t.Errorf("%d preemptions, want 5 at least", r.e.Stats().Preemptions)
	}
	r.mustAllEqualLone(path)
}

// A large request at the head of the queue waits for blocks; small ones behind it would
// fit, and would keep it waiting for ever.
func TestSmallRequestsDoNotPassALargeOne(t *testing.T) {
	r := newRig(t, path, 12, 4, Config{})
	r.submit(ask(seqFrom(1, 12), 10))
	large := r.submit(ask(seqFrom(2, 40), 4))
	for i := range 30 {
		r.submit(ask(seqFrom(3+i, 3), 4))
		r.turn()
	}
	r.finishAll()
	for _, c := range r.calls[2:] {
		if c.last.Times.Admitted.Before(large.last.Times.Admitted) {
			t.Fatalf("%s was admitted before the large request", c.id)
		}
	}
	r.mustAllEqualLone(path)
}

// What a request reused at first and has to compute after a preemption is no new prompt.
func TestReusedTokensComputedAfterPreemption(t *testing.T) {
	r := newRig(t, path, 10, 4, Config{})
	prefix := seqFrom(2, 16)
	r.submit(ask(prefix, 1))
	r.finishAll()
	r.submit(ask(seqFrom(1, 8), 33)) // will need all 10 blocks
	second := r.submit(ask(join(prefix, seqFrom(3, 5)), 12))
	r.finishAll()
	if second.last.Cached != 16 || r.e.Stats().Preemptions == 0 {
		t.Fatalf("%d tokens reused, %d preemptions", second.last.Cached, r.e.Stats().Preemptions)
	}
	stats := r.e.Stats()
	prompt := 0
	for _, c := range r.calls {
		prompt += len(c.req.Tokens)
	}
	if stats.Recomputed < 16 {
		t.Errorf("%d tokens recomputed: the prefix was not evicted", stats.Recomputed)
	}
	if got := stats.PromptComputed + stats.PromptReused; got != uint64(prompt) {
		t.Errorf("%d prompt tokens counted, %d were sent", got, prompt)
	}
	r.mustAllEqualLone(path)
}

// While a step computes, the counts say who is in it and who waits.
func TestStatsDuringAStep(t *testing.T) {
	m := path
	during := func() {}
	m.open = func(cfg Config) forwarder {
		inner := openPath(cfg)
		return forwardFunc(func(chunks []model.Chunk) []float32 {
			during()
			return inner.Forward(chunks)
		})
	}
	r := newRig(t, m, 40, 4, Config{MaxSequences: 1, MaxWaiting: 2})
	r.submit(ask(seqFrom(1, 10), 1))
	r.submit(ask(seqFrom(2, 10), 1))
	during = func() {
		if stats := r.e.Stats(); stats.Running != 1 || stats.Waiting != 1 {
			t.Errorf("%d run, %d wait; want 1 and 1", stats.Running, stats.Waiting)
		}
		r.submit(ask(seqFrom(3, 10), 1))
		if stats := r.e.Stats(); stats.Waiting != 2 {
			t.Errorf("%d wait, want 2", stats.Waiting)
		}
		if _, err := r.trySubmit(ask(seqFrom(4, 10), 1)); !errors.Is(err, ErrQueueFull) {
			t.Errorf("got %v", err)
		}
	}
	r.turn()
	during = func() {}
	r.finishAll()
	r.mustAllEqualLone(path)
}

// A context that looks back when the loop looks at it: between receiving a request and
// planning it.
type curiousContext struct {
	context.Context
	look func()
}

func (c curiousContext) Err() error {
	c.look()
	return c.Context.Err()
}

// No request is out of the counts for a moment, or a full queue would take one more.
func TestNothingIsUncountedBetweenReceiveAndPlan(t *testing.T) {
	r := newRig(t, path, 40, 4, Config{})
	want := 0
	ctx := curiousContext{context.Background(), func() {
		if got := r.e.Stats().Waiting; got != want {
			t.Errorf("%d wait, want %d", got, want)
		}
	}}
	if _, err := r.e.Submit(ctx, ask(seqFrom(1, 10), 1)); err != nil {
		t.Fatal(err)
	}
	want = 1
	r.turn()
}

func TestResetOnTheLoop(t *testing.T) {
	r := newRig(t, path, 40, 4, Config{})
	reset := func() error {
		answer := make(chan error, 1)
		r.e.mu.Lock()
		r.e.errands = append(r.e.errands, func(s *scheduler, _ error) { answer <- s.reset() })
		r.e.mu.Unlock()
		r.turn()
		return <-answer
	}
	r.submit(ask(seqFrom(1, 10), 5))
	r.turn()
	if err := reset(); !errors.Is(err, ErrHeld) {
		t.Errorf("with a running sequence: %v", err)
	}
	r.finishAll()
	if r.e.Stats().KV.Tokens == 0 {
		t.Fatal("nothing cached")
	}
	if err := reset(); err != nil {
		t.Error(err)
	}
	if kv := r.e.Stats().KV; kv.Held != 0 || kv.Tokens != 0 {
		t.Errorf("after the reset: %+v", kv)
	}
}

func TestDrainFinishesWhatWasAccepted(t *testing.T) {
	r := newRig(t, path, 40, 4, Config{MaxSequences: 1})
	running, waiting := r.submit(ask(seqFrom(1, 10), 5)), r.submit(ask(seqFrom(2, 10), 5))
	r.turn()
	late := r.submit(ask(seqFrom(4, 10), 5)) // not even received
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.e.Drain(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain returned %v before its end", err)
	}
	if _, err := r.trySubmit(ask(seqFrom(3, 10), 5)); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v", err)
	}
	for done := false; !done; {
		r.turn()
		done = finished(r) == len(r.calls)
		select {
		case <-r.e.empty:
			if !done {
				t.Fatal("drained before the last event")
			}
		default:
			if done {
				t.Fatal("not drained after the last event")
			}
		}
	}
	if err := r.e.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := r.trySubmit(ask(seqFrom(3, 10), 5)); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v", err)
	}
	for _, c := range []*call{running, waiting, late} {
		if c.finish != FinishLength {
			t.Errorf("%s: %+v", c.id, c.last)
		}
	}
}

func TestStopAbortsInEveryPhase(t *testing.T) {
	r := newRig(t, path, 40, 4, Config{MaxBatchedTokens: 8, MaxSequences: 2})
	decoding := r.submit(ask(seqFrom(1, 3), 20))
	r.turn()
	prefilling := r.submit(ask(seqFrom(2, 30), 20))
	waiting := r.submit(ask(seqFrom(3, 10), 5))
	r.turn()
	unreceived := r.submit(ask(seqFrom(4, 10), 5))
	r.e.stop(r.s)
	for _, c := range []*call{decoding, prefilling, waiting, unreceived} {
		r.collect(c)
		c.mustBeAborted(t, ErrStopped)
	}
	stats := r.e.Stats()
	if want := (Aborts{Waiting: 2, Prefill: 1, Decode: 1}); stats.Aborts != want {
		t.Errorf("aborts %+v, want %+v", stats.Aborts, want)
	}
	if stats.Running != 0 || stats.Waiting != 0 || stats.KV.Sequences != 0 || stats.KV.Held != stats.KV.Cached {
		t.Errorf("left behind: %+v", stats)
	}
	if err := r.e.kv.Check(); err != nil {
		t.Error(err)
	}
	if _, err := r.trySubmit(ask(seqFrom(3, 10), 5)); !errors.Is(err, ErrStopped) {
		t.Errorf("Submit: %v", err)
	}
	if err := r.e.Reset(context.Background()); !errors.Is(err, ErrStopped) {
		t.Errorf("Reset: %v", err)
	}
	if err := r.e.Drain(context.Background()); err != nil {
		t.Errorf("Drain: %v", err)
	}
}
