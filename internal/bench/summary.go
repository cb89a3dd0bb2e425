package bench

import (
	"math"
	"slices"
)

// summarize turns the samples of one run and the replicas' counters around it into a result.
func summarize(policy string, samples []sample, before, after []counters) Result {
	r := Result{Policy: policy}
	for i := range after {
		d := after[i].minus(before[i])
		r.Requests += int64(d.admitted)
		r.Computed += int64(d.computed)
		r.Reused += int64(d.reused)
		r.Decoded += int64(d.decoded)
		r.Hits += int64(d.hits)
		r.Evicted += int64(d.evicted)
		r.PrefillCPU += d.prefillCPU
		r.LoadMax = max(r.LoadMax, int64(d.admitted))
	}
	r.PromptTokens = r.Computed + r.Reused
	if r.PromptTokens > 0 {
		r.HitRate = float64(r.Reused) / float64(r.PromptTokens)
	}
	if len(after) > 0 {
		r.LoadMean = float64(r.Requests) / float64(len(after))
	}
	ttft := make([]float64, len(samples))
	for i, s := range samples {
		ttft[i] = s.ttft.Seconds()
	}
	slices.Sort(ttft)
	r.TTFTP50 = percentile(ttft, 0.50)
	r.TTFTP95 = percentile(ttft, 0.95)
	return r
}

// percentile returns the smallest value that at least the fraction q of the sorted values
// do not exceed (nearest rank); 0 for no values.
func percentile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
