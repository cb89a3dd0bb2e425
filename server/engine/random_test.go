package engine

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tailor/kvcache"
)

var (
	modelOps  = flag.Int("model.ops", 100_000, "operations of the model-based tests (a tenth with -short)")
	modelSeed = flag.Uint64("model.seed", 0, "run the model-based tests with this seed alone; 0 runs seeds 1, 2, 3, ...")
)

// Random traffic against lone runs: arrivals, cancels and resets at any time, chunks and
// blocks of any size, pools that are barely large enough, salts, choices, priorities, any
// schedule. Every answer must be, to the bit of its logits, the one that an engine gives
// which never saw another request.

func TestModelRandomTrafficOnPaths(t *testing.T) {
	randomTraffic(t, path, *modelOps*3/4)
}

func TestModelRandomTrafficOnATransformer(t *testing.T) {
	eachType(t, "tiny", tiny(t), func(t *testing.T, m subject) { randomTraffic(t, m, *modelOps/8) })
}

// chooser makes the choices of a run: at random, or from a fuzzer's bytes.
type chooser interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
}

// bytesChooser takes each choice from the next byte, and 0 when they are used up.
type bytesChooser struct{ left []byte }

func (c *bytesChooser) IntN(n int) int {
	if len(c.left) == 0 {
		return 0
	}
	b := c.left[0]
	c.left = c.left[1:]
	return int(b) % n
}

func FuzzTraffic(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for n := range 8 {
		data := make([]byte, 100*n)
		for i := range data {
			data[i] = byte(rnd.IntN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		traffic(t, path, &bytesChooser{data}, 2+len(data)/60)
	})
}

func randomTraffic(t *testing.T, m subject, ops int) {
	if testing.Short() {
		ops /= 10
	}
	var sum Stats
	ran, seeds := 0, 0
	one := func(t *testing.T, rnd *rand.Rand) {
		r, n := traffic(t, m, rnd, 10+rnd.IntN(15))
		ran += n
		seeds++
		sum = add(sum, r.e.Stats())
	}
	switch began := time.Now(); {
	case *modelSeed != 0:
		runSeed(t, *modelSeed, one)
	case *soak > 0:
		for seed := uint64(began.UnixNano()); time.Since(began) < *soak/2 && !t.Failed(); seed++ {
			runSeed(t, seed, one)
		}
	default:
		for seed := uint64(1); ran < ops && !t.Failed(); seed++ {
			runSeed(t, seed, one)
		}
	}
	t.Logf("%d operations of %d seeds: %d requests, %d tokens decoded, %d reused, %d recomputed; %d forks, %d preemptions, %d evictions; aborts %+v",
		ran, seeds, sum.Requests, sum.Decoded, sum.PromptReused, sum.Recomputed, sum.Forks, sum.Preemptions, sum.KV.Evicted, sum.Aborts)
	if *modelSeed != 0 {
		return
	}
	// The test must not pass because nothing happened.
	for name, n := range map[string]uint64{
		"hits": sum.RequestHits, "preemptions": sum.Preemptions, "recomputed": sum.Recomputed, "forks": sum.Forks, "deferred choices": sum.Deferred,
		"reused on resuming": sum.ResumeReused, "evictions": sum.KV.Evicted,
		"aborts waiting": sum.Aborts.Waiting, "aborts in prefill": sum.Aborts.Prefill, "aborts in decode": sum.Aborts.Decode,
	} {
		if n < uint64(seeds)/4 {
			t.Errorf("%s: only %d in %d runs", name, n, seeds)
		}
	}
}

func add(a, b Stats) Stats {
	a.Requests += b.Requests
	a.RequestHits += b.RequestHits
	a.PromptComputed += b.PromptComputed
	a.PromptReused += b.PromptReused
	a.Decoded += b.Decoded
	a.Forks += b.Forks
	a.Deferred += b.Deferred
	a.Preemptions += b.Preemptions
	a.Recomputed += b.Recomputed
	a.ResumeReused += b.ResumeReused
	a.Aborts.Waiting += b.Aborts.Waiting
	a.Aborts.Prefill += b.Aborts.Prefill
	a.Aborts.Decode += b.Aborts.Decode
	a.Steps += b.Steps
	for i, n := range b.StepTokens {
		a.StepTokens[i] += n
	}
	a.StepTokensSum += b.StepTokensSum
	a.KV.Evicted += b.KV.Evicted
	return a
}

// traffic runs some requests in the order that rnd chooses, and compares each answer with
// its lone run. It returns how many operations that were: arrivals, steps, cancels,
// deadlines, resets.
func traffic(t *testing.T, m subject, rnd chooser, requests int) (r *rig, ops int) {
	w := newWorkload(rnd, requests)
	m.eviction = kvcache.Eviction(rnd.IntN(2))
	r = newRig(t, m, w.blocks, w.blockSize, w.cfg)
	cancels := map[*call][]context.CancelCauseFunc{}
	defer func() {
		if t.Failed() {
			t.Logf("%d blocks of %d, %+v", w.blocks, w.blockSize, w.cfg)
		}
	}()
	for next := 0; next < len(w.requests); ops++ {
		if rnd.IntN(100) < w.rate {
			req := w.requests[next]
			var own []context.CancelCauseFunc
			if req.N > 1 {
				own = cancellable(&req)
			}
			c, err := r.trySubmit(req)
			if err != nil && !errors.Is(err, ErrQueueFull) {
				t.Fatal(err)
			}
			cancels[c] = own
			next++
		} else {
			r.turn()
		}
		if len(r.calls) == 0 {
			continue
		}
		c := r.calls[rnd.IntN(len(r.calls))]
		switch rnd.IntN(40) {
		case 1, 2:
			c.cancel(errGone)
		case 3, 4, 5:
			if own := cancels[c]; len(own) > 0 {
				own[rnd.IntN(len(own))](errGone)
			}
		case 6, 7, 8:
			// Without this, few would be cancelled in prefill, which is soon over.
			if n := len(r.s.running); n > 0 {
				r.cancel(r.s.running[n-1].id)
			}
		case 9:
			if all := slices.Concat(r.s.running, r.s.waiting); len(all) > 0 {
				all[rnd.IntN(len(all))].deadline = time.Now().Add(-1)
			}
		case 10:
			r.resetNow()
		default:
			continue
		}
		ops++
	}
	ops += r.finishAll()
	r.mustAllEqualLone(m)

	aborted, reused := uint64(0), uint64(0)
	for _, c := range r.calls {
		cached := 0
		for i := range max(c.req.N, 1) {
			cached = max(cached, c.choice(i).last.Cached)
			if c.choice(i).finish == FinishAbort {
				aborted++
			}
		}
		reused += uint64(cached)
	}
	stats := r.e.Stats()
	if n := stats.Aborts.Waiting + stats.Aborts.Prefill + stats.Aborts.Decode; n != aborted {
		t.Errorf("%d aborts counted, %d seen", n, aborted)
	}
	if stats.PromptReused != reused {
		t.Errorf("%d tokens reused, %d reported", stats.PromptReused, reused)
	}
	return r, ops
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
	rate              int // arrivals, in 100 arrivals and turns together
	requests          []Request
}

// newWorkload draws prompts from a few stems that share parts of each other, so that they
// part at any token of a block.
func newWorkload(rnd chooser, requests int) workload {
	w := workload{
		cfg: Config{
			MaxBatchedTokens: 1 + rnd.IntN(1+rnd.IntN(40)),
			MaxSequences:     1 + rnd.IntN(8),
			MaxWaiting:       1 + rnd.IntN(40),
			MaxWaitingTokens: rnd.IntN(3) * (1 + rnd.IntN(200)),
			Threads:          1 + rnd.IntN(2),
			Schedule:         []Schedule{FCFS, LongestPrefix}[rnd.IntN(2)],
		},
		blockSize: []int{1, 2, 3, 4, 8, 16}[rnd.IntN(6)],
		rate:      5 + rnd.IntN(60),
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
	for range requests {
		stem := stems[rnd.IntN(len(stems))]
		req := randomRequest(rnd, join(stem[:1+rnd.IntN(len(stem))], random(rnd.IntN(8))))
		most = max(most, len(req.Tokens)+max(req.MaxTokens-1, 0))
		w.requests = append(w.requests, req)
	}
	w.blocks = (most+w.blockSize-1)/w.blockSize + rnd.IntN(11)
	return w
}

// randomRequest asks for anything that can be asked for.
func randomRequest(rnd chooser, prompt []int32) Request {
	req := Request{
		Tokens:    prompt,
		N:         max(rnd.IntN(8)-3, 0),
		Priority:  max(rnd.IntN(6)-3, 0),
		MaxTokens: rnd.IntN(1 + rnd.IntN(40)),
		Salt:      []string{"", "", "", "b"}[rnd.IntN(4)],
		IgnoreEOS: rnd.IntN(2) == 0,
		Sampling:  greedy(),
	}
	if rnd.IntN(3) > 0 {
		req.Sampling = seeded(int64(rnd.IntN(256)))
		req.Sampling.TopK = rnd.IntN(20)
	}
	if rnd.IntN(4) == 0 {
		// What sampling keeps of earlier tokens must come through a preemption.
		req.Sampling.RepetitionPenalty, req.Sampling.FrequencyPenalty = 1.2, 0.5
	}
	if rnd.IntN(3) == 0 {
		for range 1 + rnd.IntN(3) {
			req.StopTokens = append(req.StopTokens, int32(rnd.IntN(48)))
		}
		req.MinTokens = min(rnd.IntN(6), req.MaxTokens)
	}
	if rnd.IntN(4) == 0 {
		req.Logprobs = count(rnd.IntN(4))
	}
	if rnd.IntN(6) == 0 {
		req.PromptLogprobs = count(rnd.IntN(3))
	}
	return req
}
