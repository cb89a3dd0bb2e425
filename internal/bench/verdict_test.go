package bench

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// synthetic is a report of groups with the given computed tokens of 100,000, one for each run.
func synthetic(groups map[string][]int64) *Report {
	r := &Report{
		Replicas: 4, Repeat: 1, Cold: true, BlockTokens: 16, Arrival: Arrival{Kind: Closed, Concurrency: 4},
		Reach: Reach{Unit: Tokens, Prompt: 100_000, Infinite: 80_000, InfiniteHits: 90},
	}
	for _, policy := range []string{"random", "round_robin", "session", "prefix_hash", "prefix_affinity"} {
		computed, ok := groups[policy]
		if !ok {
			continue
		}
		g := Group{Policy: policy, KVBlocks: 512}
		for _, n := range computed {
			g.Runs = append(g.Runs, syntheticRun(n))
		}
		g.summarize()
		r.Groups = append(r.Groups, g)
	}
	return r
}

func syntheticRun(computed int64) Run {
	seconds := float64(computed) * 1e-4
	return Run{
		Requests: 100, PromptTokens: 100_000, Computed: computed, Reused: 100_000 - computed, Hits: 80,
		TokenHitRate: 1 - float64(computed)/100_000, PrefillCPU: seconds, Rate: 10,
		TTFT: Distribution{P50: seconds / 100, P90: seconds / 50, P99: seconds / 25}, LoadMax: 30, LoadMean: 25,
		Lost: map[string]int64{"cold": 20_000, "elsewhere": computed - 20_000},
	}
}

// offer makes the report one of an open loop.
func offer(r *Report, rate float64) {
	r.Arrival = Arrival{Kind: Poisson, Rate: rate, MaxInFlight: 64}
	for i := range r.Groups {
		r.Groups[i].Runs[0].Offered = rate
		r.Groups[i].summarize()
	}
}

func TestJudge(t *testing.T) {
	both := func(blind, aware int64) *Report {
		return synthetic(map[string][]int64{"round_robin": {blind}, "prefix_affinity": {aware}})
	}
	for _, c := range []struct {
		name   string
		report *Report
		change func(*Report)
		pays   string
		policy string
		saving float64
		says   []string
		not    string
	}{
		{name: "it pays", report: both(60_000, 20_000), pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3,
			says: []string{"Yes: choose prefix_affinity", "66.7 % less to compute", "prefill CPU 2.00 s against 6.00 s (-67 %)", "no more to gain", "80.0 %"}},
		{name: "below the noise", report: both(60_000, 59_100), pays: PaysNo, says: []string{"No:", "inside the noise"}},
		{name: "just above the noise", report: both(60_000, 58_900), pays: PaysYes, policy: "prefix_affinity", saving: 1100.0 / 60_000,
			says: []string{"1.8 % less", "inside the noise", "routing (another replica had it)"}},
		{name: "worse", report: both(30_000, 60_000), pays: PaysNo, policy: "round_robin", says: []string{"which ignores them, only 30,000"}},
		{name: "nothing shared", report: both(100_000, 100_000), change: func(r *Report) { r.Reach.Infinite = 0 },
			pays: PaysNo, says: []string{"share nothing worth routing for", "0.0 %"}},
		{name: "nothing shared, reach unknown", report: both(100_000, 100_000), change: func(r *Report) { r.Reach = Reach{} },
			pays: PaysNo, says: []string{"inside the noise"}, not: "never evicts"},
		{name: "little shared", report: both(96_000, 94_500), change: func(r *Report) { r.Reach.Infinite = 6_000 },
			pays: PaysYes, policy: "prefix_affinity", saving: 1_500.0 / 96_000, says: []string{"little is shared", "6.0 %", "91.7 %"}},
		{name: "one replica", report: both(20_000, 20_000), change: func(r *Report) { r.Replicas = 1 },
			pays: PaysNo, says: []string{"with one replica there is nothing to choose; all 2 policies computed the same"}},
		{name: "one replica, and no tie", report: both(40_000, 20_000), change: func(r *Report) { r.Replicas = 1 },
			pays: PaysUnclear, says: []string{"must do the same, yet"}},
		{name: "repeats apart", report: synthetic(map[string][]int64{"random": {60_000, 62_000}, "prefix_affinity": {20_000, 21_000}}),
			pays: PaysYes, policy: "prefix_affinity", saving: 1 - 20_500.0/61_000},
		{name: "repeats overlap", report: synthetic(map[string][]int64{"random": {30_000, 62_000}, "prefix_affinity": {20_000, 31_000}}),
			pays: PaysUnclear, says: []string{"repeated runs of the two overlap"}},
		{name: "ties go to the more even load", report: synthetic(map[string][]int64{"random": {60_000}, "prefix_hash": {20_000}, "prefix_affinity": {20_500}}),
			change: func(r *Report) { r.Groups[1].Runs[0].LoadMax = 90; r.Groups[1].summarize() },
			pays:   PaysYes, policy: "prefix_affinity", saving: 1 - 20_500.0/60_000, says: []string{"prefix_hash computed as little"}},
		{name: "ties of equals go to the default", report: synthetic(map[string][]int64{"random": {60_000}, "prefix_hash": {20_000}, "prefix_affinity": {20_000}}),
			pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3},
		{name: "a better one beats an even load", report: synthetic(map[string][]int64{"random": {60_000}, "prefix_hash": {20_000}, "prefix_affinity": {30_000}}),
			change: func(r *Report) { r.Groups[1].Runs[0].LoadMax = 90; r.Groups[1].summarize() },
			pays:   PaysYes, policy: "prefix_hash", saving: 2.0 / 3, says: []string{"Its load is uneven: the busiest replica served 90"}},
		{name: "sticky sessions do as well", report: synthetic(map[string][]int64{"random": {60_000}, "session": {20_300}, "prefix_affinity": {20_000}}),
			pays: PaysNo, policy: "session", says: []string{"session, the best that ignores prefixes", "Sticky sessions are enough", "Against random"}},
		{name: "sticky sessions do as badly", report: synthetic(map[string][]int64{"random": {60_000}, "session": {60_000}, "prefix_affinity": {60_000}}),
			pays: PaysNo, not: "Sticky"},
		{name: "only one policy", report: synthetic(map[string][]int64{"prefix_affinity": {40_000}}),
			pays: PaysUnclear, says: []string{"Unclear whether", "prefix_affinity reused most: 60.0 %", "routing (another replica had it), 20.0 %"}},
		{name: "only those that ignore prefixes", report: synthetic(map[string][]int64{"random": {60_000}, "round_robin": {50_000}}),
			pays: PaysUnclear, says: []string{"round_robin reused most: 50.0 %"}},
		{name: "capacity", report: both(60_000, 50_000), change: func(r *Report) {
			r.Reach.Bounds = []Bound{{Blocks: 2048, Reused: 70_000, LRU: 55_000}}
			for i := range r.Groups {
				r.Groups[i].Runs[0].Lost = map[string]int64{"cold": 20_000, "evicted": 30_000}
				r.Groups[i].summarize()
			}
		}, pays: PaysYes, policy: "prefix_affinity", saving: 1.0 / 6,
			says: []string{"Capacity limits it: one pooled cache of all 2,048 blocks would reuse 55.0 %", "more than 70.0 %", "evicted before"}, not: "routing (another"},
		{name: "nothing ran", report: &Report{}, pays: PaysUnclear, says: []string{"nothing ran to its end"}},
		{name: "nothing ran, interrupted", report: &Report{Interrupted: true}, pays: PaysUnclear, says: []string{"nothing ran", "interrupted"}},
		{name: "no requests", report: both(0, 0), change: func(r *Report) {
			for i := range r.Groups {
				r.Groups[i].Runs[0] = Run{}
				r.Groups[i].summarize()
			}
			r.Reach = Reach{}
		}, pays: PaysUnclear},
		{name: "all failed", report: both(0, 0), change: func(r *Report) {
			for i := range r.Groups {
				r.Groups[i].Runs[0] = Run{Requests: 100, Failed: 100}
				r.Groups[i].summarize()
			}
		}, pays: PaysUnclear, says: []string{"100.0 % of round_robin's requests failed"}},
		{name: "some failed", report: both(60_000, 20_000), change: func(r *Report) { r.Groups[1].Runs[0].Failed = 2 },
			pays: PaysUnclear, says: []string{"2.0 % of prefix_affinity's requests failed"}},
		{name: "hardly any failed", report: both(60_000, 20_000), change: func(r *Report) { r.Groups[1].Runs[0].Failed = 1 },
			pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3, says: []string{"1 requests failed"}},
		{name: "contradictions", report: both(60_000, 20_000), change: func(r *Report) { r.Groups[0].Runs[0].Problems = []string{"two and two are five"} },
			pays: PaysUnclear, says: []string{"contradict", "two and two are five"}},
		{name: "nobody counted", report: both(60_000, 20_000), change: func(r *Report) {
			for i := range r.Groups {
				r.Groups[i].Runs[0].unknown("tokens_computed", "tokens_reused", "lost")
				r.Groups[i].summarize()
			}
		}, pays: PaysUnclear, says: []string{"do not say cached_tokens"}},
		{name: "a warm target", report: synthetic(map[string][]int64{"prefix_affinity": {40_000}}),
			change: func(r *Report) { r.Target, r.Cold = "http://x", false },
			pays:   PaysUnclear, says: []string{"not cleared"}},
		{name: "above saturation", report: both(60_000, 20_000), change: func(r *Report) { offer(r, 20) },
			pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3, says: []string{"faster than round_robin (10.0 answers per second of 20.0 asked for) and prefix_affinity", "mostly the queue"}},
		{name: "below saturation", report: both(60_000, 20_000), change: func(r *Report) { offer(r, 11) },
			pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3, not: "queue"},
		{name: "one client", report: both(60_000, 20_000), change: func(r *Report) { r.Arrival.Concurrency = 1 },
			pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3, says: []string{"no policy meets load"}},
		{name: "an SLO", report: both(60_000, 20_000), change: func(r *Report) {
			r.SLO.TTFT = 0.1
			r.Groups[1].Runs[0].Goodput = 9
			r.Groups[1].summarize()
		}, pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3, says: []string{"Within the SLO it answered 9.00 requests per second against 0.00"}},
		{name: "no clock", report: both(60_000, 20_000), change: func(r *Report) {
			for i := range r.Groups {
				r.Groups[i].Runs[0].unknown("prefill_cpu_seconds", "ttft_seconds", "load_max_requests", "load_mean_requests")
				r.Groups[i].summarize()
			}
		}, pays: PaysYes, policy: "prefix_affinity", saving: 2.0 / 3, not: "prefill CPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.report)
			}
			v := Judge(c.report)
			text := strings.Join(v.Text, "\n")
			if v.Pays != c.pays || v.Policy != c.policy || math.Abs(v.Saving-c.saving) > 1e-9 || v.KVBlocks != 0 {
				t.Errorf("%s, choose %q with %d blocks, saving %v; want %s, %q, %v\n%s", v.Pays, v.Policy, v.KVBlocks, v.Saving, c.pays, c.policy, c.saving, text)
			}
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			if c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("it says %q:\n%s", c.not, text)
			}
			if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || len(v.Text) == 0 {
				t.Errorf("text:\n%s", text)
			}
			if _, err := json.Marshal(v); err != nil {
				t.Error(err)
			}
			if err := WriteTable(new(strings.Builder), c.report); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestJudgeChoosesTheSmallestCapacityThatDoesAsWell(t *testing.T) {
	sweep := func(best ...int64) *Report {
		r := synthetic(nil)
		for i, computed := range best {
			for policy, n := range map[string]int64{"round_robin": 70_000, "prefix_affinity": computed} {
				g := Group{Policy: policy, KVBlocks: 64 << i, Runs: []Run{syntheticRun(n)}}
				g.summarize()
				r.Groups = append(r.Groups, g)
			}
		}
		return r
	}
	for _, c := range []struct {
		best   []int64
		blocks int
	}{
		{[]int64{60_000, 40_000, 20_000}, 256}, {[]int64{60_000, 20_500, 20_000}, 128}, {[]int64{20_000, 20_000, 20_000}, 64},
		{[]int64{20_000, 30_000, 60_000}, 64},
	} {
		v := Judge(sweep(c.best...))
		if v.KVBlocks != c.blocks || v.Policy != "prefix_affinity" || v.Pays != PaysYes {
			t.Errorf("%v: %+v, want %d blocks", c.best, v, c.blocks)
		}
		if !slices.ContainsFunc(v.Text, func(s string) bool { return strings.Contains(s, "64 blocks") && strings.Contains(s, "256 blocks") }) {
			t.Errorf("%v: %q", c.best, v.Text)
		}
	}
}

func TestTimesInsideTheNoiseAreCalledThat(t *testing.T) {
	a, b := &Group{Runs: make([]Run, 1)}, &Group{Runs: make([]Run, 1)}
	at := func(g *Group, median, low, high float64) {
		g.Summary = map[string]Spread{"x": {median, low, high}}
	}
	for _, c := range []struct {
		runs                           int
		x, xLow, xHigh, y, yLow, yHigh float64
		want                           bool
	}{
		{1, 1, 1, 1, 1.05, 1.05, 1.05, false}, {1, 1, 1, 1, 1.2, 1.2, 1.2, true},
		{3, 1, 0.9, 1.1, 1.2, 1.05, 1.3, false}, {3, 1, 0.99, 1.01, 1.05, 1.04, 1.06, true},
	} {
		a.Runs, b.Runs = make([]Run, c.runs), make([]Run, c.runs)
		at(a, c.x, c.xLow, c.xHigh)
		at(b, c.y, c.yLow, c.yHigh)
		if got := timesDiffer(a, b, "x"); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
