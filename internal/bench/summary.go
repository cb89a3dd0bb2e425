package bench

import (
	"math"
	"slices"
)

// percentile returns the smallest value that at least the fraction q of the sorted values
// do not exceed (nearest rank); 0 for no values.
func percentile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// figures are the numbers of a run by the names that they have in its JSON form, without
// those that are not known.
func (r *Run) figures() map[string]float64 {
	f := map[string]float64{
		"requests": float64(r.Requests), "failed": float64(r.Failed), "held_requests": float64(r.Held),
		"prompt_tokens": float64(r.PromptTokens), "tokens_computed": float64(r.Computed), "tokens_reused": float64(r.Reused),
		"tokens_decoded": float64(r.Decoded), "request_hits": float64(r.Hits), "blocks_evicted": float64(r.Evicted),
		"token_hit_rate": r.TokenHitRate, "request_hit_rate": r.RequestHitRate,
		"prefill_cpu_seconds": r.PrefillCPU, "decode_cpu_seconds": r.DecodeCPU, "wall_seconds": r.Wall,
		"requests_per_second": r.Rate, "offered_requests_per_second": r.Offered,
		"goodput_requests_per_second": r.Goodput,
		"load_max_requests":           float64(r.LoadMax), "load_mean_requests": r.LoadMean,
	}
	for name := range f {
		if !r.Known(name) {
			delete(f, name)
		}
	}
	for name, d := range map[string]Distribution{
		"ttft_seconds": r.TTFT, "ttft_from_sent_seconds": r.TTFTSent, "tpot_seconds": r.TPOT, "e2e_seconds": r.E2E,
	} {
		if r.Known(name) {
			f[name+".p50"], f[name+".p90"], f[name+".p99"], f[name+".mean"], f[name+".max"] = d.P50, d.P90, d.P99, d.Mean, d.Max
		}
	}
	if c := r.Cost; c != nil {
		f["cost.predicted_seconds"], f["cost.measured_seconds"] = c.Predicted, c.Measured
	}
	return f
}

// summarize fills in the group's Summary. A figure that some run does not know is left out,
// but a cause of lost reuse that some run did not meet is 0 there.
func (g *Group) summarize() {
	values := map[string][]float64{}
	causes := map[string]bool{}
	for i := range g.Runs {
		for cause := range g.Runs[i].Lost {
			causes[cause] = true
		}
	}
	for i := range g.Runs {
		r := &g.Runs[i]
		for name, v := range r.figures() {
			values[name] = append(values[name], v)
		}
		if r.Known("lost") {
			for cause := range causes {
				values["lost."+cause] = append(values["lost."+cause], float64(r.Lost[cause]))
			}
		}
	}
	g.Summary = map[string]Spread{}
	for name, v := range values {
		if len(v) == len(g.Runs) {
			g.Summary[name] = spread(v)
		}
	}
}

// spread of at least one value; the median of an even number is the mean of the middle two.
func spread(values []float64) Spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}
