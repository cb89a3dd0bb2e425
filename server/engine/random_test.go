package engine

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"tailor/model/sample"
)

var (
	soak     = flag.Duration("soak", 0, "run the Model tests, of which there are two, with fresh seeds for this long together")
	onlySeed = flag.Uint64("seed", 0, "run the Model tests with this seed alone")
)

// Random traffic against lone runs: arrivals, cancels and resets at any time, chunks and
// blocks of any size, pools that are barely large enough. Every answer must be, to the
// bit of its logits, the one that an engine gives which never saw another request.

func TestModelRandomTrafficOnPaths(t *testing.T) {
	randomTraffic(t, path, 60)
}

func TestModelRandomTrafficOnATransformer(t *testing.T) {
	randomTraffic(t, tiny(t), 24)
}

func randomTraffic(t *testing.T, m subject, seeds int) {
	if testing.Short() {
		seeds /= 4
	}
	var sum Stats
	runs := modelSeeds(t, seeds, func(t *testing.T, rnd *rand.Rand) {
		w := newWorkload(rnd)
		r := newRig(t, m, w.blocks, w.blockSize, w.cfg)
		for next := 0; next < len(w.requests); {
			if rnd.Float64() < w.rate {
				if _, err := r.trySubmit(w.requests[next]); err != nil && !errors.Is(err, ErrQueueFull) {
					t.Fatal(err)
				}
				next++
			} else {
				r.turn()
			}
			if len(r.calls) > 0 && rnd.IntN(20) == 0 {
				r.calls[rnd.IntN(len(r.calls))].cancel(errGone)
			}
			// Without this, few would be cancelled in prefill, which is soon over.
			if n := len(r.s.running); n > 0 && rnd.IntN(20) == 0 {
				r.cancel(r.s.running[n-1].id)
			}
			if rnd.IntN(40) == 0 {
				r.resetNow()
			}
		}
		r.finishAll()
		r.mustAllEqualLone(m)

		stats := r.e.Stats()
		aborted := 0
		for _, c := range r.calls {
			if c.finish == FinishAbort {
				aborted++
			}
		}
		if n := stats.Aborts.Waiting + stats.Aborts.Prefill + stats.Aborts.Decode; n != uint64(aborted) {
			t.Errorf("%d aborts counted, %d seen", n, aborted)
		}
		sum.RequestHits += stats.RequestHits
		sum.PromptReused += stats.PromptReused
		sum.Preemptions += stats.Preemptions
		sum.Recomputed += stats.Recomputed
		sum.ResumeReused += stats.ResumeReused
		sum.KV.Evicted += stats.KV.Evicted
		sum.Aborts.Waiting += stats.Aborts.Waiting
		sum.Aborts.Prefill += stats.Aborts.Prefill
		sum.Aborts.Decode += stats.Aborts.Decode
	})
	t.Logf("%d runs: %+v", runs, sum)
	if *onlySeed != 0 {
		return
	}
	// The test must not pass because nothing happened.
	for name, n := range map[string]uint64{
		"hits": sum.RequestHits, "preemptions": sum.Preemptions, "recomputed": sum.Recomputed,
		"reused on resuming": sum.ResumeReused, "evictions": sum.KV.Evicted,
		"aborts waiting": sum.Aborts.Waiting, "aborts in prefill": sum.Aborts.Prefill, "aborts in decode": sum.Aborts.Decode,
	} {
		if n < uint64(runs)/4 {
			t.Errorf("%s: only %d in %d runs", name, n, runs)
		}
	}
}

// modelSeeds runs the test with a number of seeds that are always the same, or as the
// flags say, and returns how many it ran.
func modelSeeds(t *testing.T, seeds int, test func(t *testing.T, rnd *rand.Rand)) int {
	switch {
	case *onlySeed != 0:
		runSeed(t, *onlySeed, test)
		return 1
	case *soak > 0:
		began := time.Now()
		n := 0
		for ; time.Since(began) < *soak/2 && !t.Failed(); n++ {
			runSeed(t, uint64(began.UnixNano())+uint64(n), test)
		}
		return n
	}
	seedsOf(t, seeds, test)
	return seeds
}

func (r *rig) cancel(id string) {
	for _, c := range r.calls {
		if c.id == id {
			c.cancel(errGone)
		}
	}
}

// resetNow asks for a reset in the next turn.
func (r *rig) resetNow() {
	r.t.Helper()
	done, cancel := context.WithCancel(context.Background())
	cancel() // do not wait for the answer: this goroutine turns the loop
	if err := r.e.Reset(done); err != nil && !errors.Is(err, context.Canceled) {
		r.t.Fatal(err)
	}
	r.turn()
}

type workload struct {
	cfg               Config
	blocks, blockSize int
	rate              float64 // arrivals, of arrivals and turns together
	requests          []Request
}

// newWorkload draws prompts from a few stems that share parts of each other, so that they
// part at any token of a block.
func newWorkload(rnd *rand.Rand) workload {
	w := workload{
		cfg: Config{
			MaxBatchedTokens: 1 + rnd.IntN(1+rnd.IntN(40)),
			MaxSequences:     1 + rnd.IntN(8),
			MaxWaiting:       1 + rnd.IntN(40),
			Threads:          1 + rnd.IntN(2),
		},
		blockSize: []int{1, 2, 3, 4, 8, 16}[rnd.IntN(6)],
		rate:      0.05 + rnd.Float64()*0.6,
	}
	random := func(n int) []int32 {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(rnd.IntN(48))
		}
		return tokens
	}
	stems := [][]int32{random(10 + rnd.IntN(50))}
	for range 3 {
		of := stems[rnd.IntN(len(stems))]
		stems = append(stems, join(of[:rnd.IntN(len(of)+1)], random(1+rnd.IntN(30))))
	}
	most := 0
	for range 10 + rnd.IntN(15) {
		stem := stems[rnd.IntN(len(stems))]
		req := Request{
			Tokens:    join(stem[:1+rnd.IntN(len(stem))], random(rnd.IntN(8))),
			MaxTokens: rnd.IntN(1 + rnd.IntN(40)),
			Salt:      []string{"", "", "", "b"}[rnd.IntN(4)],
			IgnoreEOS: rnd.IntN(2) == 0,
		}
		req.Sampling = sample.Params{TopP: 1}
		if rnd.IntN(3) > 0 {
			req.Sampling = seeded(rnd.Int64())
			req.Sampling.TopK = rnd.IntN(20)
		}
		if rnd.IntN(3) == 0 {
			req.StopTokens = random(1 + rnd.IntN(3))
		}
		most = max(most, len(req.Tokens)+max(req.MaxTokens-1, 0))
		w.requests = append(w.requests, req)
	}
	w.blocks = (most+w.blockSize-1)/w.blockSize + rnd.IntN(11)
	return w
}
