package speed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tailor/model"
)

// Options say what to measure. Every combination of Threads and Batches is run.
type Options struct {
	Prompt   int // tokens of the prefill; 0: none
	Generate int // tokens of the decode, one a step for each sequence; 0: none
	Depth    int // tokens that each sequence has behind it when the decode begins
	Threads  []int
	Batches  []int // sequences that decode at one time
	Repeat   int
	KVDType  model.DType // of keys and values; Auto is F32

	effort effort // zero: full
}

// blockSize is the number of tokens in a KV block, a replica's default.
const blockSize = 16

// Report is all results of one command.
type Report struct {
	Model        string   `json:"model"`
	DType        string   `json:"dtype"`
	KVDType      string   `json:"kv_dtype"`
	Formats      []string `json:"formats"`
	Instructions string   `json:"instructions"`
	WeightBytes  int      `json:"weight_bytes"`
	Limits       []Limits `json:"limits"`
	Results      []Result `json:"results"`
}

// Result is the speed of one test: "pp512" is a prefill of 512 tokens, "tg128" a decode of
// 128 steps.
type Result struct {
	Test    string `json:"test"`
	Threads int    `json:"threads"`
	Batch   int    `json:"batch"`
	// TokensPerSecond is of wall time, all sequences together.
	TokensPerSecond Spread `json:"tokens_per_second"`
	// TokensPerCPUSecond is of the CPU time of the process, which a busy neighbour does
	// not lengthen; 0 where the system does not tell it.
	TokensPerCPUSecond Spread `json:"tokens_per_cpu_second"`
	// Share is the time of the tighter limit over the median time.
	Share float64 `json:"share_of_limit"`
	// Limit names the tighter limit: "arithmetic" or "bandwidth".
	Limit string `json:"limit"`

	tokens int // of a run
	work   work
}

// Spread is the median of several runs, with the extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spread(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Run measures m until ctx ends. each, if not nil, sees the results of one number of
// threads when they are complete.
func Run(ctx context.Context, m *model.Model, name string, opt Options, each func(Limits, []Result)) (*Report, error) {
	cfg := m.Config()
	if longest := max(opt.Prompt, opt.Depth+opt.Generate); longest > cfg.Context {
		return nil, fmt.Errorf("%w: %d, the model's context is %d", ErrTooLong, longest, cfg.Context)
	}
	if opt.KVDType == model.Auto {
		opt.KVDType = model.F32
	}
	if opt.effort == (effort{}) {
		opt.effort = full
	}
	w := m.NewWorkspace(1, 1)
	defer w.Close()
	r := &Report{Model: name, DType: m.DType().String(), KVDType: opt.KVDType.String(), Formats: m.Formats(), Instructions: w.Instructions(), WeightBytes: m.WeightBytes()}
	for _, threads := range opt.Threads {
		limits := Limits{Threads: threads}
		limits.measure(m, opt.effort)
		var results []Result
		for _, t := range tests(m, opt, threads) {
			result, err := t.run(ctx, opt.Repeat)
			if err != nil {
				return nil, err
			}
			results = append(results, result)
		}
		limits.measure(m, opt.effort)
		for i := range results {
			results[i].compare(limits)
		}
		r.Limits = append(r.Limits, limits)
		r.Results = append(r.Results, results...)
		if each != nil {
			each(limits, results)
		}
	}
	return r, nil
}

// compare sets the share of the limits.
func (r *Result) compare(l Limits) {
	r.Share, r.Limit = l.share(r.work, float64(r.tokens)/r.TokensPerSecond.Median)
}

// test is one thing to measure.
type test struct {
	name           string
	threads, batch int
	tokens         int
	work           work
	// prepare makes a run and what ends its use.
	prepare func() (run, end func())
}

func tests(m *model.Model, opt Options, threads int) []test {
	var all []test
	if opt.Prompt > 0 {
		all = append(all, test{
			name: fmt.Sprintf("pp%d", opt.Prompt), threads: threads, batch: 1, tokens: opt.Prompt,
			work:    prefillWork(m, opt.Prompt),
			prepare: func() (run, end func()) { return prefill(m, opt, threads) },
		})
	}
	if opt.Generate > 0 {
		for _, batch := range opt.Batches {
			all = append(all, test{
				name: fmt.Sprintf("tg%d", opt.Generate), threads: threads, batch: batch, tokens: batch * opt.Generate,
				work:    decodeWork(m, opt, batch),
				prepare: func() (run, end func()) { return decode(m, opt, batch, threads) },
			})
		}
	}
	return all
}

// run measures after one run that does not count.
func (t *test) run(ctx context.Context, repeat int) (Result, error) {
	run, end := t.prepare()
	defer end()
	run()
	var wall, cpu []float64
	for range repeat {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		start, startCPU := time.Now(), cpuTime()
		run()
		wall = append(wall, float64(t.tokens)/time.Since(start).Seconds())
		if used := cpuTime() - startCPU; used > 0 {
			cpu = append(cpu, float64(t.tokens)/used.Seconds())
		}
	}
	r := Result{Test: t.name, Threads: t.threads, Batch: t.batch, TokensPerSecond: spread(wall), tokens: t.tokens, work: t.work}
	if len(cpu) > 0 {
		r.TokensPerCPUSecond = spread(cpu)
	}
	return r, nil
}

// prefill runs a prompt in one pass; only its last position has logits, as when a
// completion begins.
func prefill(m *model.Model, opt Options, threads int) (run, end func()) {
	tokens := opt.Prompt
	w := m.NewWorkspace(tokens, threads)
	chunks := []model.Chunk{{
		Tokens: randomTokens(m, tokens),
		KV:     model.NewContiguousKVAs(opt.KVDType, m.Config(), blockSize, tokens),
		Logits: 1,
	}}
	return func() { w.Forward(chunks) }, w.Close
}

// decode runs one token of every sequence a step.
func decode(m *model.Model, opt Options, batch, threads int) (run, end func()) {
	depth, steps := opt.Depth, opt.Generate
	w := m.NewWorkspace(max(depth, batch), threads)
	tokens := randomTokens(m, steps)
	var chunks []model.Chunk
	for range batch {
		kv := model.NewContiguousKVAs(opt.KVDType, m.Config(), blockSize, depth+steps)
		if depth > 0 {
			w.Forward([]model.Chunk{{Tokens: randomTokens(m, depth), KV: kv}})
		}
		chunks = append(chunks, model.Chunk{KV: kv, Logits: 1})
	}
	run = func() {
		for s := range steps {
			for i := range chunks {
				chunks[i].Tokens, chunks[i].Start = tokens[s:s+1], depth+s
			}
			w.Forward(chunks)
		}
	}
	return run, w.Close
}

func randomTokens(m *model.Model, n int) []int32 {
	r, tokens := rand.New(rand.NewPCG(1, 2)), make([]int32, n)
	for i := range tokens {
		tokens[i] = r.Int32N(int32(m.Config().Vocab))
	}
	return tokens
}
