package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Each test is named after a fault that other engines had, with the number under which
// TestFault tests of all packages count them.

// 1: the answer depended on what was in the cache.
func TestFault01HotEqualsCold(t *testing.T) {
	eachType(t, "tiny", tiny(t), hotEqualsCold)
	eachType(t, "bundled", bundled(t), hotEqualsCold)
}

func hotEqualsCold(t *testing.T, m subject) {
	stem := seqFrom(5, 100)
	req := ask(join(stem, seqFrom(6, 11)), 12)
	want := lone(t, m, req)
	r := newRig(t, m, 64, 16, Config{MaxBatchedTokens: 48})
	check := func(name string, cached int, before ...Request) {
		t.Helper()
		for _, b := range before {
			r.submit(b)
		}
		c := r.submit(req)
		r.finishAll()
		c.mustEqual(t, want)
		if c.last.Cached != cached {
			t.Errorf("%s: reused %d tokens, want %d", name, c.last.Cached, cached)
		}
	}
	check("cold", 0)
	check("warm", 110)
	r.resetNow()
	check("cold again", 0)
	r.resetNow()
	r.submit(ask(join(stem[:55], seqFrom(20, 9)), 3))
	r.finishAll()
	check("part of a block", 55)
	r.resetNow()
	check("beside others", 0, ask(seqFrom(8, 30), 30), ask(seqFrom(9, 3), 30))
}

// 2: with everything cached, nothing was computed, and there were no logits.
func TestFault02FullHitStillComputesOneToken(t *testing.T) {
	const block = 8
	for _, length := range []int{1, block - 1, block, block + 1, 2*block - 1, 2 * block, 2*block + 1, 5 * block} {
		r := newRig(t, path, 40, block, Config{})
		req := ask(seqFrom(3, length), 4)
		cold := r.submit(req)
		r.finishAll()
		warm := r.submit(req)
		r.finishAll()
		// In the tree are the full blocks of all rows that were run.
		rows := (length + 3) / block * block
		if want := min(length-1, rows); warm.last.Cached != want {
			t.Errorf("%d tokens: reused %d, want %d", length, warm.last.Cached, want)
		}
		want := lone(t, path, req)
		cold.mustEqual(t, want)
		warm.mustEqual(t, want)
	}
}

// 7: a request reused blocks that another one of the same batch had yet to compute.
func TestFault07SameBatchEqualsSerial(t *testing.T) {
	for _, m := range append(types(tiny(t)), path) {
		for _, budget := range []int{3, 16, 40, 512} {
			for _, common := range []int{5, 15, 16, 17, 40} {
				r := newRig(t, m, 100, 16, Config{MaxBatchedTokens: budget})
				stem := seqFrom(11, common)
				for i := range 4 {
					r.submit(ask(join(stem, seqFrom(20+i, 1+5*i)), 6))
				}
				r.submit(ask(stem, 6))
				r.finishAll()
				r.mustAllEqualLone(m)
				if hits := r.e.Stats().RequestHits; common > 16 && hits == 0 {
					t.Errorf("budget %d, %d in common: no hits", budget, common)
				}
			}
		}
	}
}

// 7: two sequences compute the same block at the same time, and both commit it.
func TestFault07TwoComputeTheSame(t *testing.T) {
	const block = 8
	first := ask(seqFrom(1, block-1), 20)
	// The second's prompt is the first's, less than a block, and what the first is about
	// to generate.
	second := ask(join(first.Tokens, lone(t, path, first).tokens[:5]), 20)
	r := newRig(t, path, 60, block, Config{})
	r.submit(first)
	r.submit(second)
	r.turn() // the second commits the block, the first has one row of it to go
	r.turn() // and commits it again
	if len(r.s.running) != 2 {
		t.Fatalf("%d run, want 2", len(r.s.running))
	}
	if &r.s.running[0].kv.Keys(0, 0)[0] != &r.s.running[1].kv.Keys(0, 0)[0] {
		t.Error("the two keep a block each for the same tokens")
	}
	r.finishAll()
	if reused := r.e.Stats().PromptReused; reused != 0 {
		t.Errorf("%d tokens reused: not computed at the same time", reused)
	}
	r.mustAllEqualLone(path)
}

// 8: after a preemption, what was cached and what was scheduled no longer added up.
func TestFault08TinyPools(t *testing.T) {
	runs := 40
	if testing.Short() {
		runs = 10
	}
	preempted := uint64(0)
	seedsOf(t, runs, func(t *testing.T, rnd *rand.Rand) {
		blocks := 2 + rnd.IntN(9)
		blockSize := 1 + rnd.IntN(6)
		r := newRig(t, path, blocks, blockSize, Config{MaxBatchedTokens: 1 + rnd.IntN(12), MaxSequences: 6})
		rows := blocks * blockSize
		stem := seqFrom(rnd.IntN(48), rows)
		for range 8 {
			length := 1 + rnd.IntN(rows)
			prompt := slices.Clone(stem[:length])
			prompt[rnd.IntN(length)] += int32(rnd.IntN(2)) // half of them part somewhere
			r.submit(ask(prompt, rnd.IntN(rows-length+2)))
		}
		r.finishAll()
		r.mustAllEqualLone(path)
		preempted += r.e.Stats().Preemptions
	})
	if preempted == 0 {
		t.Error("no preemptions in any run")
	}
}

// 12: blocks leaked, or were freed twice, when a request was cancelled.
func TestFault12CancelInEveryPhase(t *testing.T) {
	prompt := seqFrom(5, 40)
	cases := []struct {
		name   string
		turns  int // before the cancel
		aborts Aborts
		tokens int
	}{
		{"not received", -1, Aborts{Waiting: 1}, 0},
		{"waiting", 0, Aborts{Waiting: 1}, 0},
		{"prefill begun", 1, Aborts{Prefill: 1}, 0},
		{"in the middle of prefill", 3, Aborts{Prefill: 1}, 0},
		{"after the first token", 6, Aborts{Decode: 1}, 1},
		{"decoding", 10, Aborts{Decode: 1}, 5},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 8, MaxSequences: 2})
			other := r.submit(ask(seqFrom(9, 4), 40))
			r.turn()
			if c.turns == 0 {
				r.submit(ask(seqFrom(10, 4), 3)) // takes the second place
			}
			victim := r.submit(ask(prompt, 20))
			for range max(c.turns, 0) {
				r.turn()
			}
			if c.turns == 0 {
				r.turn()
			}
			if len(victim.tokens) != c.tokens {
				t.Fatalf("%d tokens before the cancel, want %d", len(victim.tokens), c.tokens)
			}
			victim.cancel(errGone)
			r.turn()
			victim.mustBeAborted(t, errGone)
			if got := r.e.Stats().Aborts; got != c.aborts {
				t.Errorf("aborts %+v, want %+v", got, c.aborts)
			}
			if got, want := r.e.Stats().KV.Sequences, r.e.Stats().Running; got != want {
				t.Errorf("%d sequences hold blocks, %d run", got, want)
			}
			r.finishAll()
			other.mustEqual(t, lone(t, path, other.req))
			victim.mustEqual(t, lone(t, path, victim.req))
			// What it had computed is of use: the same prompt hits it.
			again := r.submit(ask(prompt, 2))
			r.finishAll()
			if c.turns > 0 && again.last.Cached == 0 {
				t.Error("nothing of the aborted prefill was reused")
			}
			again.mustEqual(t, lone(t, path, again.req))
		})
	}
	t.Run("preempted", func(t *testing.T) {
		r := newRig(t, path, 6, 4, Config{})
		first, second := r.submit(ask(seqFrom(1, 8), 12)), r.submit(ask(seqFrom(2, 8), 12))
		for r.e.Stats().Preemptions == 0 {
			r.turn()
		}
		second.cancel(errGone)
		r.turn()
		second.mustBeAborted(t, errGone)
		if got, want := r.e.Stats().Aborts, (Aborts{Waiting: 1}); got != want {
			t.Errorf("aborts %+v, want %+v", got, want)
		}
		r.finishAll()
		first.mustEqual(t, lone(t, path, first.req))
	})
	t.Run("twice, and after the end", func(t *testing.T) {
		r := newRig(t, path, 20, 4, Config{})
		c := r.submit(ask(seqFrom(1, 8), 3))
		r.finishAll()
		c.cancel(errGone)
		c.cancel(errors.New("again"))
		r.turn()
		if c.finish != FinishLength || r.e.Stats().Aborts != (Aborts{}) {
			t.Errorf("got %+v", c.last)
		}
	})
}

// 14: one caller could tell from the time what another had asked. Neither the counts nor
// the time to the first token, here in steps, may say so; for its own prompts both do.
func TestFault14SaltsDoNotShare(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 8})
	for i, want := range []struct {
		salt string
		hit  bool
	}{{"a", false}, {"a", true}, {"b", false}, {"", false}, {"b", true}, {"", true}} {
		req := ask(seqFrom(1, 30), 2)
		req.Salt = want.salt
		c := r.submit(req)
		steps := 0
		for ; len(c.tokens) == 0; steps++ {
			r.turn()
		}
		r.finishAll()
		c.mustEqual(t, lone(t, path, req))
		wantCached, wantSteps := 0, 4 // 30 tokens, 8 at a time
		if want.hit {
			wantCached, wantSteps = 28, 1
		}
		if c.last.Cached != wantCached || steps != wantSteps {
			t.Errorf("request %d with salt %q reused %d tokens and had the first one after %d steps, want %d and %d",
				i, want.salt, c.last.Cached, steps, wantCached, wantSteps)
		}
	}
}

// 16: a preempted request, or one that had to try twice, counted as a hit on its own work.
func TestFault16HitsCountOnce(t *testing.T) {
	r := newRig(t, path, 8, 4, Config{})
	for i := range 4 { // 6 blocks each, nothing in common
		r.submit(ask(seqFrom(10*i, 9), 14))
	}
	r.finishAll()
	stats := r.e.Stats()
	if stats.Preemptions == 0 || stats.ResumeReused == 0 {
		t.Fatalf("no preemption: %+v", stats)
	}
	if stats.RequestHits != 0 || stats.PromptReused != 0 {
		t.Errorf("%d hits with %d tokens, nothing was shared", stats.RequestHits, stats.PromptReused)
	}
	if stats.Requests != 4 || stats.PromptComputed != 36 || stats.Decoded != 56 {
		t.Errorf("%d requests, %d prompt tokens, %d decoded; want 4, 36, 56", stats.Requests, stats.PromptComputed, stats.Decoded)
	}
	// The model's own count: what ran, once or again.
	ran := int(stats.PromptComputed + stats.Recomputed)
	if got := r.s.forward.(*pathModel).tokens; got < ran || got > ran+4*13 {
		t.Errorf("the model ran %d tokens, counted are %d and at most %d generated ones", got, ran, 4*13)
	}
	for _, c := range r.calls {
		if c.last.Cached != 0 {
			t.Errorf("%s says it reused %d", c.id, c.last.Cached)
		}
	}
	r.mustAllEqualLone(path)
}

// 17: a reset said yes and kept everything.
func TestFault17ResetMeansNoHits(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{})
	req := ask(seqFrom(1, 30), 2)
	for i, want := range []bool{false, true, false, true} {
		if i == 2 {
			r.resetNow()
		}
		c := r.submit(req)
		r.finishAll()
		if (c.last.Cached > 0) != want {
			t.Errorf("request %d reused %d tokens", i, c.last.Cached)
		}
	}
}

// 18: preemption changed what was sampled.
func TestFault18PreemptionChangesNothing(t *testing.T) {
	eachType(t, "tiny", tiny(t), preemptionChangesNothing)
	if !testing.Short() {
		eachType(t, "bundled", bundled(t), preemptionChangesNothing)
	}
}

func preemptionChangesNothing(t *testing.T, m subject) {
	for _, threads := range []int{1, 2} {
		for _, blocks := range []int{10, 12, 15} {
			t.Run(fmt.Sprintf("threads=%d,blocks=%d", threads, blocks), func(t *testing.T) {
				r := newRig(t, m, blocks, 4, Config{Threads: threads, MaxBatchedTokens: 10})
				for i := range 5 {
					req := ask(seqFrom(i, 6+i), 24)
					// They go by the tokens generated, also before the preemption.
					req.Sampling.RepetitionPenalty, req.Sampling.FrequencyPenalty = 1.1*float64(i%2), 0.3*float64(i%3)
					r.submit(req)
				}
				r.finishAll()
				if r.e.Stats().Preemptions == 0 {
					t.Error("no preemption")
				}
				r.mustAllEqualLone(m)
			})
		}
	}
}

// 20: requests with a warm prefix kept passing one with a cold one.
func TestFault20TheColdRequestIsNotPassed(t *testing.T) {
	r := newRig(t, path, 24, 4, Config{MaxSequences: 3, MaxBatchedTokens: 16})
	hot := func(i int) Request { return ask(join(seqFrom(1, 20), seqFrom(i, 2)), 5) }
	r.submit(hot(0))
	r.finishAll()
	for i := range 6 {
		r.submit(hot(i))
	}
	cold := r.submit(ask(seqFrom(40, 50), 5))
	before := len(r.calls)
	turns := 0
	for ; len(cold.tokens) == 0; turns++ {
		if turns > 100 {
			t.Fatal("the cold request starves")
		}
		r.submit(hot(turns))
		r.turn()
	}
	r.finishAll()
	for _, c := range r.calls[before:] {
		if c.last.Cached == 0 {
			t.Errorf("%s is not hot", c.id)
		}
		if c.last.Times.Admitted.Before(cold.last.Times.Admitted) {
			t.Errorf("%s came later and was admitted before the cold request", c.id)
		}
	}
	// Six hot ones, three at a time, 5 steps each; then 50 tokens at 14 to 16 a step.
	if turns > 2*6+5+5 {
		t.Errorf("the cold request's first token took %d steps", turns)
	}
	r.mustAllEqualLone(path)
}
