package engine

import (
	"errors"
	"testing"
)

// Requests that arrive together compute what they share once.
func TestBurstComputesItsPrefixOnce(t *testing.T) {
	const burst, shared, tail = 8, 40, 5
	r := newRig(t, path, 200, 8, Config{})
	for i := range burst {
		r.submit(ask(join(seqFrom(1, shared), seqFrom(10+i, tail)), 4))
	}
	r.turn()
	if running := r.e.Stats().Running; running != 1 {
		t.Errorf("%d run beside the one that computes the prefix, want 0", running-1)
	}
	r.turn()
	if running := r.e.Stats().Running; running != burst {
		t.Errorf("%d run in the next step, want %d", running, burst)
	}
	r.finishAll()
	stats := r.e.Stats()
	if want := uint64(shared + burst*tail); stats.PromptComputed != want {
		t.Errorf("%d prompt tokens computed, want %d", stats.PromptComputed, want)
	}
	if stats.RequestHits != burst-1 {
		t.Errorf("%d hits, want %d", stats.RequestHits, burst-1)
	}
	r.mustAllEqualLone(path)
}

// Who cannot gain does not wait.
func TestOnlyAUsefulPrefixIsWaitedFor(t *testing.T) {
	first := join(seqFrom(1, 40), seqFrom(2, 5))
	cases := []struct {
		name string
		req  Request
		wait bool
	}{
		{"same prefix", ask(join(seqFrom(1, 40), seqFrom(3, 5)), 2), true},
		{"same prompt", ask(first, 2), true},
		{"one block in common", ask(join(first[:8], seqFrom(20, 5)), 2), true},
		{"less than a block in common", ask(join(first[:7], seqFrom(20, 5)), 2), false},
		{"nothing in common", ask(seqFrom(4, 40), 2), false},
		{"another salt", Request{Tokens: first, Salt: "b", MaxTokens: 2, Sampling: greedy()}, false},
		{"a block, but the last token runs anyway", ask(first[:8], 2), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, path, 200, 8, Config{})
			r.submit(ask(first, 2))
			r.submit(c.req)
			unrelated := r.submit(ask(seqFrom(30, 6), 2))
			r.turn()
			want := 3
			if c.wait {
				want = 2
			}
			if got := r.e.Stats().Running + finished(r); got != want {
				t.Errorf("%d admitted in the first step, want %d", got, want)
			}
			if len(unrelated.tokens) != 1 {
				t.Error("an unrelated request was held up")
			}
			r.turn()
			if got := r.e.Stats().Requests; got != 3 {
				t.Errorf("%d admitted after two steps, want 3", got)
			}
			r.finishAll()
			r.mustAllEqualLone(path)
		})
	}
	t.Run("a block only with what is cached already", func(t *testing.T) {
		r := newRig(t, path, 200, 8, Config{})
		r.submit(ask(join(first[:7], seqFrom(20, 9)), 2))
		r.finishAll()
		// 7 tokens are cached. The first of these computes 15, which make one full
		// block: waiting would gain a single token.
		r.submit(ask(first[:15], 2))
		r.submit(ask(first[:30], 2))
		r.turn()
		if got := r.e.Stats().Requests; got != 3 {
			t.Errorf("%d admitted, want all 3", got)
		}
	})
	t.Run("cached already", func(t *testing.T) {
		r := newRig(t, path, 200, 8, Config{})
		r.submit(ask(first[:40], 2))
		r.finishAll()
		r.submit(ask(first, 2))
		r.submit(ask(join(first[:40], seqFrom(3, 5)), 2))
		r.turn()
		if got := r.e.Stats().Requests; got != 3 {
			t.Errorf("%d admitted, want all 3", got)
		}
	})
}

func finished(r *rig) int {
	n := 0
	for _, c := range r.calls {
		if c.closed {
			n++
		}
	}
	return n
}

// The one that computes goes away in the middle: the one that waits goes on from there.
func TestWaiterGoesOnWithoutTheOther(t *testing.T) {
	prompt := seqFrom(1, 40)
	r := newRig(t, path, 200, 8, Config{MaxBatchedTokens: 24})
	first := r.submit(ask(join(prompt, seqFrom(2, 5)), 2))
	second := r.submit(ask(join(prompt, seqFrom(3, 5)), 2))
	r.turn()
	first.cancel(errors.New("gone"))
	r.turn()
	if first.finish != FinishAbort {
		t.Fatalf("first: %+v", first.last)
	}
	r.finishAll()
	if second.last.Cached != 24 {
		t.Errorf("reused %d tokens, want the 24 that were computed", second.last.Cached)
	}
	if got := r.e.Stats().PromptComputed; got != 45 {
		t.Errorf("%d tokens computed, want 45", got)
	}
	second.mustEqual(t, lone(t, path, second.req))
}

// Being waited for is a privilege of age: it is what bounds the wait.
func TestNobodyWaitsForTheYounger(t *testing.T) {
	r := newRig(t, path, 200, 8, Config{MaxBatchedTokens: 24})
	old := &sequence{request: &request{arrival: 5}, tokens: seqFrom(1, 40)}
	for arrival, want := range map[uint64]bool{4: true, 6: false} {
		kv, err := r.e.kv.Allocate("", old.tokens)
		if err != nil {
			t.Fatal(err)
		}
		other := &sequence{request: &request{arrival: arrival}, tokens: old.tokens, kv: kv}
		r.s.runs, r.s.budget = []run{{seq: other, tokens: 24}}, 8
		if got := r.s.prefixUnderway(old); got != want {
			t.Errorf("number 5 waits for number %d: %v", arrival, got)
		}
		r.e.kv.Free(kv)
	}
}

// Newcomers that would extend what a waiter shares do not make it wait again.
func TestWaitingIsBoundedByOlderRequests(t *testing.T) {
	r := newRig(t, path, 400, 4, Config{MaxSequences: 100})
	stem := seqFrom(1, 80)
	r.submit(ask(stem[:16], 60))
	waiter := r.submit(ask(stem, 1))
	for i := range 20 {
		r.submit(ask(join(stem[:20+2*i], seqFrom(2, 3)), 1))
		r.turn()
		if i == 1 && len(waiter.tokens) == 0 {
			t.Fatal("still waiting in the second step")
		}
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

// Two prompts with 600 tokens in common that arrive in the same moment compute them once,
// in one step or in many, whatever else runs.
func TestOnePrefixAtOnceIsComputedOnce(t *testing.T) {
	const shared, tailA, tailB, answers = 600, 9, 12, 4
	stem := seqFrom(1, shared)
	a, b := ask(join(stem, seqFrom(2, tailA)), answers), ask(join(stem, seqFrom(3, tailB)), answers)
	for _, schedule := range []Schedule{FCFS, LongestPrefix} {
		for _, budget := range []int{1024, 512, 64, 17, 7} {
			for _, beside := range []int{0, 3} {
				r := newRig(t, longPath, 200, 16, Config{MaxBatchedTokens: budget, Schedule: schedule})
				for i := range beside {
					r.submit(ask(seqFrom(10+i, 4), 200))
				}
				for range beside {
					r.turn()
				}
				before := r.e.Stats().PromptComputed
				first, second := r.submit(a), r.submit(b)
				r.finishAll()
				stats := r.e.Stats()
				if got := stats.PromptComputed - before; got != shared+tailA+tailB {
					t.Errorf("%s, budget %d, %d beside: %d prompt tokens computed, want %d", schedule, budget, beside, got, shared+tailA+tailB)
				}
				// Counted by the model: what ran beside the tokens generated.
				ran := 2*(answers-1) + beside*(4+199) + shared + tailA + tailB
				if got := r.s.forward.(*pathModel).tokens; got != ran {
					t.Errorf("%s, budget %d, %d beside: the model ran %d tokens, want %d", schedule, budget, beside, got, ran)
				}
				if first.last.Cached != 0 || second.last.Cached != shared || second.last.Cache.InFlight != shared {
					t.Errorf("%s, budget %d: %+v and %+v", schedule, budget, first.last.Cache, second.last.Cache)
				}
				r.mustAllEqualLone(longPath)
			}
		}
	}
}

// The other goes on by itself from where the cancelled one was, whenever that is.
func TestOnePrefixGoesOnAfterACancel(t *testing.T) {
	const shared, block = 600, 16
	stem := seqFrom(1, shared)
	for _, budget := range []int{64, 17} {
		for _, turns := range []int{1, 2, 5, 9} {
			r := newRig(t, longPath, 200, block, Config{MaxBatchedTokens: budget})
			first := r.submit(ask(join(stem, seqFrom(2, 9)), 4))
			second := r.submit(ask(join(stem, seqFrom(3, 12)), 4))
			for range turns {
				r.turn()
			}
			first.cancel(errGone)
			r.finishAll()
			first.mustBeAborted(t, errGone)
			second.mustEqual(t, lone(t, longPath, second.req))
			done := turns * budget
			if got, want := second.last.Cached, done-done%block; got != want {
				t.Errorf("budget %d, %d turns: %d tokens reused, want the %d in full blocks", budget, turns, got, want)
			}
			// Only what the cancelled one had in a block that was not full is lost.
			if got, want := r.e.Stats().PromptComputed, uint64(shared+12+done%block); got != want {
				t.Errorf("budget %d, %d turns: %d tokens computed, want %d", budget, turns, got, want)
			}
		}
	}
}
