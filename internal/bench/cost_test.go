package bench

import (
	"math"
	"testing"
)

func TestCosts(t *testing.T) {
	// A request has 50 tokens of its own and, unless it hits, 500 more, at 0.1 ms each.
	run := func(hits, more int64) Run {
		computed := 300*50 + (300-hits)*500 + more
		return Run{Requests: 300, Hits: hits, RequestHitRate: float64(hits) / 300, Computed: computed, PrefillCPU: float64(computed) * 1e-4}
	}
	report := func(runs ...Run) *Report {
		r := &Report{Reach: Reach{Unit: Tokens, Prompt: 300 * 550, Infinite: 295 * 500, InfiniteHits: 295}, Groups: []Group{{Runs: runs}}}
		predictCosts(r, prices{prefix: 50e-3, suffix: 5e-3})
		return r
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	// Whole prefixes only: the formula is exact. Then hits that find a part: it knows nothing of the rest.
	for _, more := range []int64{0, 295 * 100} {
		for _, hits := range []int64{0, 224, 295} {
			r := report(run(hits, more))
			c := r.Groups[0].Runs[0].Cost
			if c == nil || !near(c.Measured-c.Predicted, float64(more)*1e-4/300) {
				t.Errorf("%d hits: %+v", hits, c)
			}
			if partly := hitsPartly(&r.Reach, &r.Groups[0].Runs[0]); partly != (more > 0) {
				t.Errorf("%d hits, %d tokens more: parts only %v", hits, more, partly)
			}
		}
	}
	failed, foreign := run(224, 0), run(224, 0)
	failed.Failed = 1
	foreign.unknown("prefill_cpu_seconds")
	r := report(failed, foreign, Run{})
	for i := range r.Groups[0].Runs {
		if c := r.Groups[0].Runs[i].Cost; c != nil {
			t.Errorf("run %d: %+v of what is not known", i, c)
		}
	}
	unpriced := &Report{Groups: []Group{{Runs: []Run{run(224, 0)}}}}
	if predictCosts(unpriced, prices{}); unpriced.Groups[0].Runs[0].Cost != nil {
		t.Error("a cost without prices")
	}
}
