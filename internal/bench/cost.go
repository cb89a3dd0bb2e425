package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"tailor/internal/bench/workload"
)

// calibrations is how many prompts of each kind are timed, at least, after each run.
const calibrations = 16

// prices are what the lesson's formula is made of, in seconds of prefill CPU a request: c_p
// for a prefix and c_s for a suffix.
type prices struct{ prefix, suffix float64 }

// prices are the means of what was measured: a run's cost is a sum.
func (c *comparison) prices() prices {
	if len(c.hot) == 0 {
		return prices{}
	}
	suffix := distribution(c.hot).Mean
	return prices{prefix: distribution(c.cold).Mean - suffix, suffix: suffix}
}

// calibrate measures the prices on a cluster of their own, one request after another, with
// prompts as long as the workload's are in the mean: a prefix is what an infinite cache
// reuses of a request that finds anything there, a suffix the rest. Replicas take turns, as
// they do in the runs, and so do cold and hot: a processor's caches know what it did before.
// It is done after each run, so that a machine that becomes slower does so for both sides.
// Each gets a prompt, cold, and later the same prefix with another suffix, hot. So the prices
// come from nothing that they are to predict. It does nothing where the formula has no
// meaning or nobody counts.
func (c *comparison) calibrate(ctx context.Context) (err error) {
	rep := c.report
	reach := &rep.Reach
	if !rep.Cold || reach.Unit != Tokens || reach.InfiniteHits == 0 || len(c.alphabet) == 0 {
		return nil
	}
	prefix := int(math.Round(float64(reach.Infinite) / float64(reach.InfiniteHits)))
	suffix := max(1, int(math.Round(float64(reach.Prompt)/float64(len(c.opt.Workload.Requests))))-prefix)
	cluster, err := c.start(ctx, plainPolicy, max(1, c.opt.Replicas), slices.Max(c.opt.KVBlocks))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	if len(cluster.Replicas) == 0 {
		return nil
	}
	client := newClient("", c.opt.Key, 1)
	defer client.close()
	counted := map[string]counters{}
	spend := func(url string, ids []int32) (float64, error) {
		if ids != nil {
			m, err := newMessages([]workload.Request{{Tokens: ids, MaxTokens: 1, After: -1}}, c.opt.Model).write(0, prompt{tokens: ids})
			if err != nil {
				return 0, err
			}
			client.url = url
			if _, _, err := client.send(ctx, m); err != nil {
				return 0, err
			}
		}
		now, err := readCounters(ctx, client, url)
		spent := now.prefillCPU - counted[url].prefillCPU
		counted[url] = now
		return spent, err
	}
	var cold, hot []float64
	random := rand.New(rand.NewPCG(c.opt.Workload.Seed, uint64(len(c.cold))))
	prefixes := map[string][]int32{}
	for _, r := range cluster.Replicas {
		if _, err := spend(r.URL, nil); err != nil {
			return err
		}
	}
	send := func(i int, to *[]float64) error {
		r := cluster.Replicas[i%len(cluster.Replicas)]
		spent, err := spend(r.URL, slices.Concat(prefixes[r.ID], c.random(random, suffix)))
		*to = append(*to, spent)
		if err == nil && cluster.Settle != nil {
			err = cluster.Settle(ctx, r.ID)
		}
		return err
	}
	for i := 0; i < calibrations || i%len(cluster.Replicas) != 0; i++ {
		before := i + len(cluster.Replicas) - 1
		if i == 0 {
			before = 0 // nobody has a prefix yet
		}
		prefixes[cluster.Replicas[i%len(cluster.Replicas)].ID] = c.random(random, prefix)
		if err := send(i, &cold); err != nil {
			return err
		}
		if err := send(before, &hot); err != nil {
			return err
		}
	}
	c.cold, c.hot = append(c.cold, cold...), append(c.hot, hot...)
	return nil
}

// random returns tokens of those that the workload's prompts have.
func (c *comparison) random(r *rand.Rand, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = c.alphabet[r.IntN(len(c.alphabet))]
	}
	return tokens
}

// predictCosts holds the lesson's formula against every run whose figures are known.
func predictCosts(r *Report, p prices) {
	if p == (prices{}) {
		return
	}
	for i := range r.Groups {
		for j := range r.Groups[i].Runs {
			run := &r.Groups[i].Runs[j]
			if !run.Known("prefill_cpu_seconds") || run.Requests == 0 || run.Failed > 0 {
				continue
			}
			h := run.RequestHitRate
			run.Cost = &Cost{
				HitRate: h, Prefix: p.prefix, Suffix: p.suffix, Measured: run.PrefillCPU / float64(run.Requests),
				Predicted: h*p.suffix + (1-h)*(p.prefix+p.suffix),
			}
		}
	}
}
