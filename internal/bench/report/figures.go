package report

import (
	"slices"
	"strings"

	"tailor/internal/bench"
)

// figure is one measured quantity of a run.
type figure struct {
	name  string // in the JSON form; what a run's list of unknown figures calls it
	label string
	text  func(float64) string
	// better is +1 where more is better, -1 where less is, 0 where neither.
	better int
	// timed figures depend on the machine and its moment, the others only on the bytes sent
	// and where they went.
	timed bool
	value func(*bench.Run) float64
}

// of is the figure's value in a run, unless nobody counted it or it is no number.
func (f *figure) of(r *bench.Run) (v float64, known bool) {
	name, _, _ := strings.Cut(f.name, ".")
	v = f.value(r)
	return v, r.Known(name) && isFinite(v)
}

// spreadOf is a figure over the runs that know it: the median (of two middle values their mean),
// the smallest and the largest. It is unknown where no run knows it.
func (f *figure) spreadOf(runs []bench.Run) (s bench.Spread, known bool) {
	values := make([]float64, 0, len(runs))
	for i := range runs {
		if v, known := f.of(&runs[i]); known {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

func spreadOf(values []float64) (s bench.Spread, known bool) {
	if len(values) == 0 {
		return s, false
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	median := values[n/2]
	if n%2 == 0 {
		median = values[n/2-1]/2 + values[n/2]/2
	}
	return bench.Spread{Median: median, Min: values[0], Max: values[n-1]}, true
}

// The figures of a run, in the order in which tables show them.
var (
	figFailed = figure{name: "failed", label: "requests failed", text: countText, better: -1,
		value: func(r *bench.Run) float64 { return float64(r.Failed) }}
	figComputed = figure{name: "tokens_computed", label: "prompt tokens computed", text: countText, better: -1,
		value: func(r *bench.Run) float64 { return float64(r.Computed) }}
	figTokenHitRate = figure{name: "token_hit_rate", label: "hit rate of tokens", text: percentText, better: +1,
		value: func(r *bench.Run) float64 { return r.TokenHitRate }}
	figRequestHitRate = figure{name: "request_hit_rate", label: "hit rate of requests", text: percentText, better: +1,
		value: func(r *bench.Run) float64 { return r.RequestHitRate }}
	figEvicted = figure{name: "blocks_evicted", label: "blocks evicted", text: countText, better: -1,
		value: func(r *bench.Run) float64 { return float64(r.Evicted) }}
	figPrefillCPU = figure{name: "prefill_cpu_seconds", label: "prefill CPU", text: secondsText, better: -1, timed: true,
		value: func(r *bench.Run) float64 { return r.PrefillCPU }}
	figRate = figure{name: "requests_per_second", label: "answers per second", text: threeDigits, better: +1, timed: true,
		value: func(r *bench.Run) float64 { return r.Rate }}
	figOffered = figure{name: "offered_requests_per_second", label: "requests due per second", text: threeDigits, timed: true,
		value: func(r *bench.Run) float64 { return r.Offered }}
	figGoodput = figure{name: "goodput_requests_per_second", label: "goodput per second", text: threeDigits, better: +1, timed: true,
		value: func(r *bench.Run) float64 { return r.Goodput }}
	// figImbalance is how much more than the mean the busiest replica served. No requests
	// have no balance.
	figImbalance = figure{name: "load_mean_requests", label: "load max/mean", text: threeDigits, better: -1,
		value: func(r *bench.Run) float64 { return float64(r.LoadMax) / r.LoadMean }}
)

// distribution makes figures of three percentiles of a distribution of times.
func distribution(name, label string, of func(*bench.Run) *bench.Distribution) []figure {
	percentile := func(p string, pick func(*bench.Distribution) float64) figure {
		return figure{name: name + "." + p, label: label + " " + p, text: secondsText, better: -1, timed: true,
			value: func(r *bench.Run) float64 { return pick(of(r)) }}
	}
	return []figure{
		percentile("p50", func(d *bench.Distribution) float64 { return d.P50 }),
		percentile("p90", func(d *bench.Distribution) float64 { return d.P90 }),
		percentile("p99", func(d *bench.Distribution) float64 { return d.P99 }),
	}
}

var (
	ttftFigures = distribution("ttft_seconds", "TTFT", func(r *bench.Run) *bench.Distribution { return &r.TTFT })
	tpotFigures = distribution("tpot_seconds", "TPOT", func(r *bench.Run) *bench.Distribution { return &r.TPOT })
	e2eFigures  = distribution("e2e_seconds", "E2E", func(r *bench.Run) *bench.Distribution { return &r.E2E })
)
