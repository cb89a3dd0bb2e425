package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"tailor/internal/bench"
)

// synthetic makes a report as a benchmark would have: a chat workload on four replicas under
// the named policies with each capacity, each so many times. Figures hang together: computed
// and reused add up, causes add up to the computed, the curve's median is P50.
func synthetic(policies []string, capacities []int, repeat, replicas int) *bench.Report {
	draw := rand.New(rand.NewPCG(7, 7))
	const requests = 600
	prompt := int64(412_380)
	r := &bench.Report{
		Schema:   bench.SchemaVersion,
		Created:  time.Date(2026, 11, 30, 18, 5, 0, 0, time.UTC),
		Command:  []string{"tailor", "bench", "--workload", "chat", "--policies", "random,prefix_affinity", "--rate", "12", "--slo-ttft", "250ms"},
		Version:  "v0.6.0",
		Machine:  bench.Machine{CPU: "AMD EPYC 7763 64-Core Processor", Cores: 2, OS: "linux/amd64", Go: "go1.26.8"},
		Model:    "tailor-4m",
		Workload: bench.WorkloadReport{Name: "chat", Seed: 1, Parameters: map[string]string{"sessions": "60", "turns": "10", "system": "256", "think": "2s"}, Requests: requests, PromptTokens: prompt, OutputTokens: 19_200},
		Arrival:  bench.Arrival{Kind: "poisson", Rate: 12},
		SLO:      bench.SLO{TTFT: 0.25},
		Replicas: replicas, Threads: 1, BlockTokens: 16, Repeat: repeat, Cold: true,
		Reach: bench.Reach{Unit: "tokens", Prompt: prompt, Infinite: int64(.874 * float64(prompt)), InfiniteHits: 599},
	}
	for _, c := range capacities {
		share := math.Min(1, .35+.14*math.Log2(float64(c)/256))
		r.Reach.Bounds = append(r.Reach.Bounds, bench.Bound{
			Blocks: c * replicas, Reused: int64(float64(r.Reach.Infinite) * math.Min(1, share+.16)), LRU: int64(float64(r.Reach.Infinite) * share),
		})
	}
	for _, c := range capacities {
		for i, policy := range policies {
			g := bench.Group{Policy: policy, KVBlocks: c, Summary: map[string]bench.Spread{}}
			room := math.Min(1, .35+.13*math.Log2(float64(c)/256))
			rate := .87 * room * (.36 + .64*float64(i)/float64(max(1, len(policies)-1)))
			for range repeat {
				g.Runs = append(g.Runs, syntheticRun(draw, math.Min(.87, rate*(1+.03*draw.Float64())), room, requests, prompt, replicas, i))
			}
			for _, name := range []string{"tokens_computed", "token_hit_rate", "prefill_cpu_seconds"} {
				var values []float64
				for _, run := range g.Runs {
					values = append(values, map[string]float64{"tokens_computed": float64(run.Computed), "token_hit_rate": run.TokenHitRate, "prefill_cpu_seconds": run.PrefillCPU}[name])
				}
				slices.Sort(values)
				if n := len(values); n > 0 {
					g.Summary[name] = bench.Spread{Median: values[n/2], Min: values[0], Max: values[n-1]}
				}
			}
			r.Groups = append(r.Groups, g)
		}
	}
	if len(policies) > 0 {
		r.Verdict = bench.Verdict{
			Pays: "yes", Policy: policies[len(policies)-1], KVBlocks: 0, Saving: .673,
			Text: []string{
				"Yes: choose " + policies[len(policies)-1] + ". It computed 53,200 of 412,380 prompt tokens; least_loaded, the best that ignores prefixes, 162,700. That is 67.3 % less to compute.",
				"TTFT p50 41.2 ms against 129.0 ms (-68 %), prefill CPU 21.3 s against 61.1 s (-65 %).",
				"The workload limits it: 87.4 % of the prompt tokens could be reused by one cache that never evicts, and it reuses 99.6 % of those.",
			},
		}
		if len(capacities) > 1 {
			r.Verdict.KVBlocks = capacities[len(capacities)-1]
		}
	}
	return r
}

func syntheticRun(draw *rand.Rand, rate, room float64, requests, prompt int64, replicas, policy int) bench.Run {
	reused := int64(rate * float64(prompt))
	computed := prompt - reused
	run := bench.Run{
		Requests: requests, PromptTokens: prompt, Computed: computed, Reused: reused, Decoded: 19_200,
		Hits: int64(rate * 1.1 * float64(requests)), Evicted: int64((1.2 - room) * 9000), TokenHitRate: float64(reused) / float64(prompt),
		RequestHitRate: math.Min(1, rate*1.1), PrefillCPU: float64(computed) * 3.9e-4 * (1 + .02*draw.Float64()), DecodeCPU: 14.2,
		Wall: 52 * (1 + .02*draw.Float64()), Rate: 11.6, Offered: 12.1, Goodput: 11.6 * (.3 + .7*rate), Prompts: "9f3c01aa5e77d210",
		Lost: map[string]int64{},
	}
	cold := int64(float64(prompt) * .126)
	rest := computed - cold
	run.Lost["cold"] = cold
	run.Lost["elsewhere"] = int64(float64(rest) * .66)
	run.Lost["evicted"] = int64(float64(rest) * .21)
	run.Lost["in_flight"] = int64(float64(rest) * .08)
	run.Lost["stale_index"] = rest - run.Lost["elsewhere"] - run.Lost["evicted"] - run.Lost["in_flight"]
	median := .018 + .16*(1-rate)*(1+.05*draw.Float64())
	for q := range 101 {
		p := math.Min(math.Max(float64(q)/100, .004), .996)
		// The logistic distribution's inverse, for a bell of logarithms without tables.
		run.TTFTCurve = append(run.TTFTCurve, median*math.Exp(.55*math.Log(p/(1-p))))
	}
	times := func(scale float64) bench.Distribution {
		return bench.Distribution{P50: scale * run.TTFTCurve[50], P90: scale * run.TTFTCurve[90], P99: scale * run.TTFTCurve[99], Mean: scale * median * 1.3, Max: scale * run.TTFTCurve[100]}
	}
	run.TTFT, run.TTFTSent, run.E2E = times(1), times(.98), times(4.1)
	run.TPOT = bench.Distribution{P50: .0041, P90: .0073, P99: .0141, Mean: .0048, Max: .031}
	for i := range replicas {
		s := bench.LoadSeries{Replica: fmt.Sprintf("r%d", i), Requests: requests / int64(replicas), Step: run.Wall / 200}
		skew := 1.0
		if policy%3 == 2 && i == replicas/2 {
			skew, s.Requests = 2.6, int64(1.7*float64(s.Requests))
		}
		level := 0.0
		for k := range 201 {
			level += .3 * (skew*(1.8+math.Sin(float64(k)/17+float64(i))) - level + 1.6*draw.NormFloat64())
			s.InFlight = append(s.InFlight, int(math.Max(0, math.Round(level))))
		}
		run.LoadMax = max(run.LoadMax, s.Requests)
		run.LoadMean += float64(s.Requests) / float64(replicas)
		run.Load = append(run.Load, s)
	}
	for i := range 20 {
		run.Samples = append(run.Samples, bench.Sample{
			Index: i, Due: time.Duration(i) * 80 * time.Millisecond, Sent: time.Duration(i) * 81 * time.Millisecond, TTFT: 40 * time.Millisecond, E2E: 170 * time.Millisecond,
			Prompt: 680, Cached: 512, Output: 32, Replica: fmt.Sprintf("r%d", i%max(1, replicas)), Session: fmt.Sprintf("chat-%d", i/10),
		})
	}
	perToken := run.PrefillCPU / float64(computed)
	prefix, suffix := 560*perToken, 127*perToken
	run.Cost = &bench.Cost{HitRate: run.RequestHitRate, Prefix: prefix, Suffix: suffix,
		Predicted: suffix + (1-run.RequestHitRate)*prefix, Measured: run.PrefillCPU / float64(requests)}
	return run
}

var fivePolicies = []string{"random", "round_robin", "least_loaded", "prefix_hash", "prefix_affinity"}

var elevenPolicies = []string{
	"random", "round_robin", "least_loaded", "power_of_two", "session", "prefix_hash",
	"consistent_hash", "rendezvous_hash", "cache_aware", "cost", "prefix_affinity",
}
