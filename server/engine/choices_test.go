package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// several asks for n choices.
func several(n int, req Request) Request {
	req.N = n
	return req
}

// cancellable gives each choice a context of its own, and returns what ends them.
func cancellable(req *Request) []context.CancelCauseFunc {
	cancels := make([]context.CancelCauseFunc, req.N)
	req.ChoiceContexts = make([]context.Context, req.N)
	for i := range cancels {
		req.ChoiceContexts[i], cancels[i] = context.WithCancelCause(context.Background())
	}
	return cancels
}

// Every choice is what a request of its own with its seed would get, and their prompt is
// computed once.
func TestChoicesEqualLoneRuns(t *testing.T) {
	for _, m := range append(types(tiny(t)), path) {
		for _, n := range []int{1, 2, 5} {
			for _, budget := range []int{1, 7, 100} {
				for _, length := range []int{1, 4, 21, 24} {
					r := newRig(t, m, 60, 4, Config{MaxBatchedTokens: budget})
					r.submit(several(n, ask(seqFrom(3, length), 9)))
					r.finishAll()
					r.mustAllEqualLone(m)
					if t.Failed() {
						t.Fatalf("n %d, budget %d, prompt %d", n, budget, length)
					}
					stats := r.e.Stats()
					if stats.PromptComputed != uint64(length) || stats.Recomputed != 0 || stats.PromptReused != 0 {
						t.Errorf("n %d, prompt %d: %d computed, %d again, %d reused", n, length, stats.PromptComputed, stats.Recomputed, stats.PromptReused)
					}
					if stats.Decoded != uint64(9*n) || stats.Requests != 1 || stats.RequestHits != 0 || stats.Forks != uint64(n-1) {
						t.Errorf("n %d: %d decoded, %d requests, %d hits, %d forks", n, stats.Decoded, stats.Requests, stats.RequestHits, stats.Forks)
					}
				}
			}
		}
	}
}

func TestGreedyChoicesAreTheSame(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{})
	req := several(3, ask(seqFrom(1, 10), 6))
	req.Sampling = greedy()
	c := r.submit(req)
	r.finishAll()
	for i := range 3 {
		c.choiceMustEqual(t, i, lone(t, path, aloneOf(c.req, 0)))
	}
}

func TestUnseededChoicesDiffer(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{})
	req := several(2, ask(seqFrom(1, 10), 20))
	req.Sampling.Seed = nil
	c := r.submit(req)
	r.finishAll()
	if slices.Equal(c.tokens, c.others[0].tokens) {
		t.Errorf("both gave %v", c.tokens)
	}
}

// The prompt's blocks are held once, whatever the number of choices; what each adds lies
// in blocks of its own, the one that holds the end of the prompt included.
func TestChoicesShareThePromptsBlocks(t *testing.T) {
	const n, prompt = 4, 22 // 5 blocks and 2 rows
	r := newRig(t, path, 100, 4, Config{})
	r.submit(several(n, ask(seqFrom(2, prompt), 12)))
	r.turn()
	r.turn()
	if len(r.s.running) != n {
		t.Fatalf("%d run, want %d", len(r.s.running), n)
	}
	first := r.s.running[0].kv
	for _, seq := range r.s.running[1:] {
		for block := range 6 {
			shared := &first.Keys(0, block)[0] == &seq.kv.Keys(0, block)[0]
			if shared != (block < 5) {
				t.Errorf("choice %d, block %d: shared is %v", seq.index, block, shared)
			}
		}
	}
	if held := r.e.Stats().KV.Held; held != 5+n {
		t.Errorf("%d blocks are held, want 5 in common and 1 for each choice", held)
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

// Choices lose their blocks one by one, the last first, and come back.
func TestChoicesArePreemptedOneByOne(t *testing.T) {
	for _, blocks := range []int{6, 8, 11} {
		t.Run(fmt.Sprintf("blocks=%d", blocks), func(t *testing.T) {
			r := newRig(t, path, blocks, 4, Config{})
			older := r.submit(ask(seqFrom(1, 3), 6))
			c := r.submit(several(4, ask(seqFrom(2, 10), 14)))
			younger := r.submit(ask(seqFrom(3, 3), 6))
			for r.turn() {
				for i := range c.others {
					if len(c.others[i].tokens) > len(c.choice(i).tokens) {
						t.Fatalf("choice %d is ahead of choice %d", i+1, i)
					}
				}
			}
			r.finishAll()
			r.mustAllEqualLone(path)
			if r.e.Stats().Preemptions == 0 {
				t.Error("no preemption")
			}
			if older.last.Times.Finished.After(c.last.Times.Finished) || younger.last.Times.Admitted.Before(c.last.Times.Admitted) {
				t.Error("out of order")
			}
		})
	}
}

func TestMoreChoicesThanMaxSequences(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxSequences: 2})
	c := r.submit(several(5, ask(seqFrom(2, 10), 6)))
	r.submit(ask(seqFrom(3, 10), 6))
	most := 0
	for r.turn() {
		most = max(most, r.e.Stats().Running)
	}
	if most != 2 {
		t.Errorf("%d ran at once, want 2", most)
	}
	// Each gets its first token at once, as the prompt's logits serve them all.
	for i := range c.others {
		if !c.others[i].last.Times.FirstToken.Equal(c.last.Times.FirstToken) {
			t.Errorf("choice %d has its first token at %v, choice 0 at %v", i+1, c.others[i].last.Times.FirstToken, c.last.Times.FirstToken)
		}
	}
	r.mustAllEqualLone(path)
}

// One choice ends, at whatever point; the others do not notice.
func TestChoicesAreCancelledOneByOne(t *testing.T) {
	for _, turns := range []int{-1, 0, 1, 2, 5, 6, 9} {
		for victim := range 3 {
			t.Run(fmt.Sprintf("turns=%d,choice=%d", turns, victim), func(t *testing.T) {
				r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 8, MaxSequences: 4})
				if turns == 0 { // let it wait for a place
					for i := range 4 {
						r.submit(ask(seqFrom(10+i, 2), 5))
					}
				}
				req := several(3, ask(seqFrom(2, 34), 12))
				none := 0
				req.PromptLogprobs = &none
				cancels := cancellable(&req)
				c := r.submit(req)
				for range max(turns, 1) {
					if turns >= 0 {
						r.turn()
					}
				}
				cancels[victim](errGone)
				r.turn()
				ended := c.choice(victim)
				if ended.finish != FinishAbort || !errors.Is(ended.last.Err, errGone) || c.closed {
					t.Errorf("got %+v, want an abort of one choice", ended.last)
				}
				r.finishAll()
				r.mustAllEqualLone(path)
				aborts := r.e.Stats().Aborts
				if n := aborts.Waiting + aborts.Prefill + aborts.Decode; n != 1 {
					t.Errorf("%d aborts", n)
				}
				if got := r.e.Stats().PromptComputed; turns != 0 && got != 34 {
					t.Errorf("%d prompt tokens computed, want 34", got)
				}
			})
		}
	}
}

func TestAllChoicesCancelledOneByOneEndTheRequest(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 8})
	req := several(3, ask(seqFrom(2, 34), 12))
	cancels := cancellable(&req)
	c := r.submit(req)
	for i, cancel := range cancels {
		r.turn()
		cancel(errGone)
		r.turn()
		if c.choice(i).finish != FinishAbort {
			t.Errorf("choice %d goes on", i)
		}
	}
	if r.turn() || !c.closed {
		t.Error("something is left to do")
	}
}

// A request's end ends every choice of it, each with an event of its own.
func TestCancelEndsAllChoices(t *testing.T) {
	cases := map[int]Aborts{-1: {Waiting: 3}, 1: {Prefill: 3}, 7: {Decode: 3}}
	for turns, want := range cases {
		r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 8})
		c := r.submit(several(3, ask(seqFrom(2, 34), 12)))
		for range turns {
			r.turn()
		}
		c.cancel(errGone)
		r.turn()
		for i := range 3 {
			if a := c.choice(i); a.finish != FinishAbort || !errors.Is(a.last.Err, errGone) || a.last.Choice != i {
				t.Errorf("after %d turns: choice %d got %+v", turns, i, a.last)
			}
		}
		if got := r.e.Stats().Aborts; got != want || !c.closed {
			t.Errorf("after %d turns: aborts %+v, want %+v", turns, got, want)
		}
		if kv := r.e.Stats().KV; kv.Held != kv.Cached {
			t.Errorf("after %d turns: %+v", turns, kv)
		}
	}
}

func TestChoicesFinishByThemselves(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{})
	req := several(6, ask(seqFrom(2, 10), 30))
	for id := range int32(6) {
		req.StopTokens = append(req.StopTokens, 8*id)
	}
	c := r.submit(req)
	r.finishAll()
	lengths := map[int]bool{}
	for i := range 6 {
		lengths[len(c.choice(i).tokens)] = true
	}
	if len(lengths) < 3 {
		t.Errorf("all finish together: %v", lengths)
	}
	r.mustAllEqualLone(path)
}

func TestChoicesOfNothing(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{})
	c := r.submit(several(3, ask(seqFrom(2, 10), 0)))
	r.finishAll()
	for i := range 3 {
		if a := c.choice(i); a.finish != FinishLength || a.last.Token != noToken {
			t.Errorf("choice %d: %+v", i, a.last)
		}
	}
	if got := r.e.Stats().PromptComputed; got != 10 {
		t.Errorf("%d prompt tokens computed", got)
	}
}

// Where the model gives no logits for the prompt, every choice says so.
func TestNoLogitsEndEveryChoice(t *testing.T) {
	prompt := seqFrom(8, 6)
	m := path
	m.open = func(cfg Config) forwarder { return badModel{openPath(cfg), prompt} }
	r := newRig(t, m, 60, 4, Config{})
	c := r.submit(several(3, ask(prompt, 4)))
	r.finishAll()
	for i := range 3 {
		if a := c.choice(i); !errors.Is(a.last.Err, ErrNoLogits) {
			t.Errorf("choice %d: %+v", i, a.last)
		}
	}
}

// The queue is counted in choices: each has its events' room from the start.
func TestQueueCountsChoices(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxWaiting: 4})
	r.submit(several(3, ask(seqFrom(1, 5), 3)))
	_, err := r.trySubmit(several(2, ask(seqFrom(2, 5), 3)))
	if !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "3 choices wait and the request has 2, more than 4 together") {
		t.Errorf("got %v", err)
	}
	r.submit(ask(seqFrom(2, 5), 3))
	if _, err := r.trySubmit(ask(seqFrom(3, 5), 3)); !errors.Is(err, ErrQueueFull) {
		t.Errorf("got %v", err)
	}
	r.finishAll()
	// More than the bound, but nothing waits that it could be told to wait for.
	r.submit(several(5, ask(seqFrom(1, 5), 3)))
	r.finishAll()
	r.mustAllEqualLone(path)
}

func TestSubmitRefusesOtherThanAContextPerChoice(t *testing.T) {
	e := path.engine(t, 10, 4, Config{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	req := several(2, ask(seqFrom(1, 5), 3))
	req.ChoiceContexts = []context.Context{context.Background()}
	_, _ = e.Submit(context.Background(), req)
}
