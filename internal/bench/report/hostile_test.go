package report_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	"tailor/internal/bench"
)

// hostileText breaks out of whatever does not escape: markup, attributes, styles, formulas,
// terminals.
const hostileText = `</title></style><script>alert(1)</script>" onload="alert(2)' & <b> =1+1 ]]> -->` + "\u202e \U0001F9F5"

// hostileReports make reports as no benchmark does, by what is wrong with them.
func hostileReports() map[string]func() *bench.Report {
	usual := func() *bench.Report { return synthetic(fivePolicies, []int{512, 1024}, 2, 4) }
	// withRuns is a usual report whose runs were changed.
	withRuns := func(change func(*bench.Run)) func() *bench.Report {
		return func() *bench.Report {
			r := usual()
			for i := range r.Groups {
				for j := range r.Groups[i].Runs {
					change(&r.Groups[i].Runs[j])
				}
			}
			return r
		}
	}
	reports := map[string]func() *bench.Report{
		"empty":            func() *bench.Report { return &bench.Report{} },
		"no groups":        func() *bench.Report { return synthetic(nil, []int{1024}, 1, 4) },
		"no runs":          func() *bench.Report { return synthetic(fivePolicies, []int{1024}, 0, 4) },
		"one policy":       func() *bench.Report { return synthetic([]string{"random"}, []int{1024}, 1, 1) },
		"eleven policies":  func() *bench.Report { return synthetic(elevenPolicies, []int{512, 1024}, 2, 4) },
		"64 replicas":      func() *bench.Report { return synthetic(fivePolicies, []int{1024}, 1, 64) },
		"capacity unknown": func() *bench.Report { return synthetic(fivePolicies, []int{0}, 2, 4) },
		"no lost":          withRuns(func(r *bench.Run) { r.Lost = nil }),
		"lost zeros": withRuns(func(r *bench.Run) {
			r.Lost = map[string]int64{"cold": 0}
			r.Computed = 0
		}),
		"strange causes": withRuns(func(r *bench.Run) {
			r.Lost = map[string]int64{hostileText: 12_345, "": 17, "cold": -5, "elsewhere": math.MaxInt64, "evicted": math.MaxInt64}
		}),
		"long load": withRuns(func(r *bench.Run) {
			for i := range r.Load {
				r.Load[i].InFlight = make([]int, 10_000)
				for k := range r.Load[i].InFlight {
					r.Load[i].InFlight[k] = k * k
				}
			}
		}),
		"strange load": withRuns(func(r *bench.Run) {
			for i := range r.Load {
				r.Load[i].Step = []float64{0, -1, math.NaN(), math.Inf(1), 1e300}[i%5]
				r.Load[i].InFlight = [][]int{nil, {math.MinInt, -1}, {1}, {math.MaxInt, math.MaxInt, 0}}[i%4]
				r.Load[i].Replica = hostileText
			}
			r.Load = append(r.Load, bench.LoadSeries{Step: 1e300, InFlight: []int{math.MaxInt, 0, math.MinInt}}, bench.LoadSeries{Step: 5e-324, InFlight: []int{1, 2}})
		}),
		"strange curves": withRuns(func(r *bench.Run) { r.TTFTCurve = []float64{0, -3, math.NaN(), math.Inf(1), 1e308, 5e-324} }),
		"curves of different lengths": func() *bench.Report {
			r := usual()
			r.Groups[0].Runs[0].TTFTCurve = []float64{1, 2, 3}
			r.Groups[1].Runs[0].TTFTCurve = []float64{1}
			r.Groups[2].Runs[0].TTFTCurve = nil
			return r
		},
		"all times equal": withRuns(func(r *bench.Run) {
			for i := range r.TTFTCurve {
				r.TTFTCurve[i] = .25
			}
		}),
		"all unknown": withRuns(func(r *bench.Run) {
			*r = bench.Run{Requests: 600, Unknown: []string{
				"blocks_evicted", "decode_cpu_seconds", "e2e_seconds", "load", "load_max_requests", "load_mean_requests", "lost", "prefill_cpu_seconds",
				"prompt_tokens", "request_hit_rate", "request_hits", "token_hit_rate", "tokens_computed", "tokens_decoded", "tokens_reused", "tpot_seconds",
				"ttft_from_sent_seconds", "ttft_seconds"}}
		}),
		"hostile text": func() *bench.Report {
			r := withRuns(func(r *bench.Run) {
				r.Errors = map[string]int64{hostileText: 3}
				r.Problems = []string{hostileText}
				r.Failed = 3
				for i := range r.Samples {
					r.Samples[i].Error, r.Samples[i].Session, r.Samples[i].Replica = hostileText, hostileText, hostileText
				}
			})()
			for i := range r.Groups {
				r.Groups[i].Policy = fmt.Sprint(i, hostileText)
			}
			r.Version, r.Model, r.Target, r.Arrival.Kind = hostileText, hostileText, hostileText, hostileText
			r.Machine = bench.Machine{CPU: hostileText, OS: hostileText, Go: hostileText}
			r.Workload.Name = hostileText
			r.Workload.Parameters = map[string]string{hostileText: hostileText}
			r.Command = []string{hostileText, ""}
			r.Reach.Unit = hostileText
			r.Verdict = bench.Verdict{Pays: hostileText, Policy: r.Groups[0].Policy, Text: []string{hostileText}}
			r.Partial = &bench.Group{Policy: hostileText, Runs: []bench.Run{{Requests: 3}}}
			return r
		},
		"control characters": func() *bench.Report {
			r := usual()
			for i := range r.Groups {
				r.Groups[i].Policy = fmt.Sprintf("p%d\x00\x01\x1b[31m\xff\xfe\ufffe\r\n%s", i, strings.Repeat("long", 500))
			}
			return r
		},
	}
	for name, v := range map[string]float64{"NaN": math.NaN(), "Inf": math.Inf(1), "-Inf": math.Inf(-1), "huge": math.MaxFloat64, "tiny": math.SmallestNonzeroFloat64, "negative": -1} {
		reports["figures "+name] = func() *bench.Report {
			r := withRuns(func(r *bench.Run) {
				r.TokenHitRate, r.RequestHitRate, r.PrefillCPU, r.Wall, r.Rate, r.Goodput, r.LoadMean = v, v, v, v, v, v, v
				d := bench.Distribution{P50: v, P90: v, P99: v, Mean: v, Max: v}
				r.TTFT, r.TPOT, r.E2E = d, d, d
				for i := range r.TTFTCurve {
					r.TTFTCurve[i] = v
				}
				for i := range r.Load {
					r.Load[i].Step = v
				}
				r.Cost = &bench.Cost{HitRate: v, Prefix: v, Suffix: v, Predicted: v, Measured: v}
			})()
			r.SLO = bench.SLO{TTFT: v, TPOT: v}
			r.Arrival = bench.Arrival{Kind: "poisson", Rate: v}
			r.Verdict.Saving = v
			return r
		}
	}
	for name, n := range map[string]int64{"max": math.MaxInt64, "min": math.MinInt64, "zero": 0} {
		reports["counts "+name] = func() *bench.Report {
			r := withRuns(func(r *bench.Run) {
				r.Requests, r.Failed, r.PromptTokens, r.Computed, r.Reused, r.Decoded, r.Hits, r.Evicted, r.LoadMax, r.Held = n, n, n, n, n, n, n, n, n, n
				for cause := range r.Lost {
					r.Lost[cause] = n
				}
				for i := range r.Load {
					r.Load[i].Requests = n
				}
			})()
			r.Replicas, r.Repeat, r.Threads, r.BlockTokens = int(n), int(n), int(n), int(n)
			r.Reach.Prompt, r.Reach.Infinite = n, n
			r.Reach.Bounds = []bench.Bound{{Blocks: int(n), Reused: n, LRU: n}}
			r.Workload.Requests, r.Workload.PromptTokens = int(n), n
			r.Created = time.Unix(n%(1<<40), 0)
			for i := range r.Groups {
				r.Groups[i].KVBlocks = int(n) - i/5
				r.Groups[i].Published = &bench.PublishedCheck{Computed: n, Hits: n}
			}
			return r
		}
	}
	return reports
}
