package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var soak = flag.Duration("soak", 0, "how long TestSoak loads the engine; 0 skips it. The random model-based tests run that long together, with fresh seeds")

// TestSoak loads a pool of 64 blocks with twice what it can hold, cancels a part of it, and
// stops from time to time to look at what is left: no block, no goroutine, no memory. Every
// answer must be that of a lone run.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("takes as long as -soak says, for example -soak 3m")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	noLeaks(t)
	m := tiny(t)
	const (
		blocks, blockSize = 64, 16
		load              = 2 * 8 // clients; 8 requests of the mean size fill the pool
		idleEvery         = 2 * time.Second
	)
	e := m.engine(t, blocks, blockSize, Config{
		MaxBatchedTokens: 48, MaxSequences: 16, MaxWaiting: 12, MaxWaitingTokens: 1500, Threads: 1, Check: true,
		Schedule: LongestPrefix, RequestTimeout: time.Minute,
	})
	start(t, e)
	mix := newSoakMix(t, m, rand.New(rand.NewPCG(seed, 0)))

	record := newMemory(t)
	goroutines, rounds := runtime.NumGoroutine(), 0
	began := time.Now()
	for time.Since(began) < *soak && !t.Failed() {
		until := time.Now().Add(idleEvery)
		var clients sync.WaitGroup
		for client := range load {
			rnd := rand.New(rand.NewPCG(seed, uint64(1+rounds*load+client)))
			clients.Go(func() {
				for time.Now().Before(until) && !t.Failed() {
					mix.serve(t, e, rnd)
				}
			})
		}
		clients.Go(func() { record.sampleUntil(until) })
		clients.Wait()
		mustBeIdle(t, e, blocks)
		record.sampleLive()
		mustSettle(t, goroutines)
		if rounds++; rounds%10 == 0 {
			if err := e.Reset(context.Background()); err != nil {
				t.Errorf("reset while idle: %v", err)
			}
		}
	}
	stats := e.Stats()
	t.Logf("%v, %d rounds: %d answers compared (%d cut short), %d refused; %+v", time.Since(began).Round(time.Second), rounds,
		mix.compared.Load(), mix.cut.Load(), mix.refused.Load(), stats)
	for name, n := range map[string]uint64{
		"hits": stats.RequestHits, "preemptions": stats.Preemptions, "forks": stats.Forks, "evictions": stats.KV.Evicted,
		"aborts waiting": stats.Aborts.Waiting, "aborts in prefill": stats.Aborts.Prefill, "aborts in decode": stats.Aborts.Decode,
		"refusals": mix.refused.Load(),
	} {
		if n == 0 {
			t.Errorf("no %s: the load was too small", name)
		}
	}
	record.mustStayFlat(*soak)
}

// mustBeIdle waits for the engine to have nothing left, and looks at what it holds.
func mustBeIdle(t *testing.T, e *Engine, blocks int) {
	t.Helper()
	err := e.onLoop(context.Background(), func(s *scheduler) error {
		if !s.idle() {
			return fmt.Errorf("%d run and %d wait after the last client", len(s.running), len(s.waiting))
		}
		kv := s.kv.Stats()
		if kv.Free+kv.Held != blocks || kv.Held != kv.Cached || kv.Evictable != kv.Cached || kv.Sequences != 0 {
			return fmt.Errorf("idle with %+v", kv)
		}
		return s.kv.Check()
	})
	if err != nil {
		t.Error(err)
	}
}

// soakMix is a fixed number of requests and their lone answers, of which a hash of each row
// of logits is kept: the test's own memory must not grow.
type soakMix struct {
	hash    maphash.Seed
	asks    []Request
	answers [][]soakAnswer // [request][choice]

	compared, cut, refused atomic.Uint64
}

type soakAnswer struct {
	tokens []int32
	rows   []uint64 // hashes of the logits that each token was chosen from
	finish FinishReason
}

func newSoakMix(t *testing.T, m subject, rnd *rand.Rand) *soakMix {
	x := &soakMix{hash: maphash.MakeSeed()}
	random := func(n int) []int32 {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(rnd.IntN(60))
		}
		return tokens
	}
	stems := [][]int32{random(120), random(90), random(60)}
	for range 300 {
		stem := stems[rnd.IntN(len(stems))]
		req := randomRequest(rnd, join(stem[:1+rnd.IntN(len(stem))], random(rnd.IntN(40))))
		x.asks = append(x.asks, req)
		var answers []soakAnswer
		for _, a := range loneChoices(t, m, req) {
			answer := soakAnswer{tokens: a.tokens, finish: a.finish}
			for _, row := range a.bits {
				answer.rows = append(answer.rows, x.hashOf(row))
			}
			answers = append(answers, answer)
		}
		x.answers = append(x.answers, answers)
	}
	return x
}

func (x *soakMix) hashOf(row []uint32) uint64 {
	var h maphash.Hash
	h.SetSeed(x.hash)
	for _, bits := range row {
		maphash.WriteComparable(&h, bits)
	}
	return h.Sum64()
}

// serve sends a request and reads its answer, or leaves in the middle.
func (x *soakMix) serve(t *testing.T, e *Engine, rnd *rand.Rand) {
	n := rnd.IntN(len(x.asks))
	req, want := x.asks[n], x.answers[n]
	rows := make([]int, len(want)) // seen, by choice; written by the step loop until the channel is closed
	req.observe = func(choice, index int, logits []float32) {
		bits := make([]uint32, len(logits))
		for i, l := range logits {
			bits[i] = math.Float32bits(l)
		}
		if index >= len(want[choice].rows) || x.hashOf(bits) != want[choice].rows[index] {
			t.Errorf("request %d, choice %d: the logits of token %d differ from a lone run's", n, choice, index)
		}
		rows[choice]++
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leave := -1 // after so many events
	leaves := rnd.IntN(3) == 0
	switch {
	case leaves && rnd.IntN(2) == 0:
		leave = rnd.IntN(12)
	case leaves: // at any moment
		defer time.AfterFunc(time.Duration(rnd.IntN(4000))*time.Microsecond, cancel).Stop()
	}
	events, err := e.Submit(ctx, req)
	if leaves && errors.Is(err, context.Canceled) {
		return
	}
	if errors.Is(err, ErrQueueFull) {
		x.refused.Add(1)
		<-time.After(time.Duration(rnd.IntN(3)) * time.Millisecond)
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	seen := 0
	if leave == 0 {
		cancel()
	}
	tokens := make([][]int32, len(want))
	finish := make([]FinishReason, len(want))
	for ev := range events {
		if seen++; seen == leave {
			cancel()
		}
		if ev.Token != noToken {
			tokens[ev.Choice] = append(tokens[ev.Choice], ev.Token)
		}
		finish[ev.Choice] = ev.Finish
	}
	for i, want := range want {
		cut := finish[i] == FinishAbort && leaves
		if cut {
			x.cut.Add(1)
			want.tokens = want.tokens[:min(len(want.tokens), len(tokens[i]))]
		}
		if !cut && (finish[i] != want.finish || rows[i] != len(want.rows)) || !slices.Equal(tokens[i], want.tokens) {
			t.Errorf("request %d, choice %d: %v by %q, alone %v by %q", n, i, tokens[i], finish[i], want.tokens, want.finish)
		}
		x.compared.Add(1)
	}
}
