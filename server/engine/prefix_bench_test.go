package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tailor/kvcache"
	"tailor/model"
	"tailor/model/speed"
)

const (
	prefixTokens = 500
	suffixTokens = 40
)

// BenchmarkSharedPrefix is eight prompts at once that share a prefix, in a cold cache, on
// GPT-2 124M's shape. "ideal" is the least that this model can do: the prefix once, then
// the eight suffixes together. Both are timed in turn, so that what else the machine does meets both.
func BenchmarkSharedPrefix(b *testing.B) { eachThreads(b, benchSharedPrefix) }

func benchSharedPrefix(b *testing.B, e timedEngine) {
	ids := rand.New(rand.NewPCG(1, 1))
	prefix := randomTokens(ids, prefixTokens)
	prompts := make([][]int32, 8)
	for i := range prompts {
		prompts[i] = slices.Concat(prefix, randomTokens(ids, suffixTokens))
	}
	filled := slices.Concat(prefix, randomTokens(ids, suffixTokens))
	var at, ideal, ratio []float64
	for b.Loop() {
		before := e.Stats().PromptComputed
		together := e.firstTokens(prompts...)
		computed := e.Stats().PromptComputed - before
		if want := uint64(prefixTokens + len(prompts)*suffixTokens); computed != want {
			b.Fatalf("computed %d tokens of the prompts, want %d", computed, want)
		}
		e.reset()
		apart := e.prefill(prefix)
		e.prefill(filled) // not timed: now all rows of the prefix are in full blocks
		apart += e.firstTokens(prompts...)
		e.reset()
		at = append(at, together.Seconds()*1e3)
		ideal = append(ideal, apart.Seconds()*1e3)
		ratio = append(ratio, together.Seconds()/apart.Seconds())
	}
	b.ReportMetric(median(at), "ms")
	b.ReportMetric(median(ideal), "ideal-ms")
	b.ReportMetric(median(ratio), "ratio")
}

// BenchmarkHotStart is the time to the first token of a prompt of which all but the last
// 40 tokens are cached, against that of 40 tokens alone.
func BenchmarkHotStart(b *testing.B) { eachThreads(b, benchHotStart) }

func benchHotStart(b *testing.B, e timedEngine) {
	ids := rand.New(rand.NewPCG(1, 2))
	prefix := randomTokens(ids, prefixTokens)
	var hot, alone, ratio []float64
	e.prefill(slices.Concat(prefix, randomTokens(ids, suffixTokens)))
	for b.Loop() {
		suffix := randomTokens(ids, suffixTokens)
		before := e.Stats().PromptComputed
		long := e.firstTokens(slices.Concat(prefix, suffix))
		short := e.firstTokens(suffix)
		if computed := e.Stats().PromptComputed - before; computed != 2*suffixTokens {
			b.Fatalf("computed %d tokens, want two times %d", computed, suffixTokens)
		}
		hot = append(hot, long.Seconds()*1e3)
		alone = append(alone, short.Seconds()*1e3)
		ratio = append(ratio, long.Seconds()/short.Seconds())
	}
	b.ReportMetric(median(hot), "ms")
	b.ReportMetric(median(alone), "alone-ms")
	b.ReportMetric(median(ratio), "ratio")
}

// timedEngine is a running engine whose answers are timed.
type timedEngine struct {
	*Engine
	b *testing.B
}

// eachThreads runs f with an engine of GPT-2 124M's shape, in float32, with 1 and 2 threads.
func eachThreads(b *testing.B, f func(*testing.B, timedEngine)) {
	m, err := model.NewAs(model.F32, speed.GPT2Small, speed.RandomTensors(speed.GPT2Small))
	if err != nil {
		b.Fatal(err)
	}
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) { f(b, runEngine(b, m, threads)) })
	}
}

// runEngine runs an engine until the benchmark ends.
func runEngine(b *testing.B, m *model.Model, threads int) timedEngine {
	b.Helper()
	cfg := m.Config()
	kv, err := kvcache.New(kvcache.Config{Blocks: 512, BlockSize: 16, Layers: cfg.Layers, Heads: cfg.Heads, HeadDim: cfg.HeadDim()})
	if err != nil {
		b.Fatal(err)
	}
	e := New(m, kv, Config{Threads: threads}, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return timedEngine{e, b}
}

// firstTokens sends all prompts at once and returns when each has its first token.
func (e timedEngine) firstTokens(prompts ...[]int32) time.Duration {
	return e.answers(1, prompts)
}

// prefill computes a prompt and no token after it.
func (e timedEngine) prefill(prompt []int32) time.Duration {
	return e.answers(0, [][]int32{prompt})
}

func (e timedEngine) answers(maxTokens int, prompts [][]int32) time.Duration {
	e.b.Helper()
	began := time.Now()
	var streams []<-chan Event
	for _, p := range prompts {
		events, err := e.Submit(e.b.Context(), Request{Tokens: p, MaxTokens: maxTokens, Sampling: greedy(), IgnoreEOS: true})
		if err != nil {
			e.b.Fatal(err)
		}
		streams = append(streams, events)
	}
	for _, events := range streams {
		for ev := range events {
			if ev.Err != nil {
				e.b.Fatal(ev.Err)
			}
		}
	}
	return time.Since(began)
}

func (e timedEngine) reset() {
	e.b.Helper()
	if err := e.Reset(e.b.Context()); err != nil {
		e.b.Fatal(err)
	}
}

func randomTokens(r *rand.Rand, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = r.Int32N(int32(speed.GPT2Small.Vocab - 1))
	}
	return tokens
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
