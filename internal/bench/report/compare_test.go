package report_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
)

var errFull = errors.New("full")

func runsComputing(tokens ...int64) (runs []bench.Run) {
	for _, n := range tokens {
		runs = append(runs, bench.Run{Requests: 10, Computed: n, PromptTokens: 1000, Reused: 1000 - n, TokenHitRate: 1 - float64(n)/1000, LoadMean: 1, LoadMax: 1})
	}
	return runs
}

func TestCompareNoise(t *testing.T) {
	for _, c := range []struct {
		name   string
		a, b   []int64
		want   report.Noise
		better int
		change float64
	}{
		{"apart", []int64{500, 510, 520, 530}, []int64{400, 410, 420, 499}, report.BeyondNoise, 1, 415./515 - 1},
		{"apart, worse", []int64{400, 410, 420, 430}, []int64{500, 510, 520, 530}, report.BeyondNoise, -1, 515./415 - 1},
		{"apart, of three runs each", []int64{500, 510, 520}, []int64{400, 410, 499}, report.FewRuns, 0, 410./510 - 1},
		{"apart, and each the same twice", []int64{500, 500}, []int64{400, 400}, report.BeyondNoise, 1, -.2},
		{"apart, one the same twice", []int64{500, 500}, []int64{400, 401}, report.FewRuns, 0, 400.5/500 - 1},
		{"touching", []int64{500, 510, 520}, []int64{400, 410, 500}, report.WithinNoise, 0, 410./510 - 1},
		{"one inside the other", []int64{400, 600}, []int64{450, 460}, report.WithinNoise, 0, 455./500 - 1},
		{"equal", []int64{400, 400}, []int64{400}, report.Same, 0, 0},
		{"one run each", []int64{500}, []int64{400}, report.NoiseUnknown, 0, -.2},
		{"one run inside the other's range", []int64{450}, []int64{400, 500, 410}, report.WithinNoise, 0, 410./450 - 1},
		{"one run outside the other's range", []int64{600}, []int64{400, 500, 410}, report.FewRuns, 0, 410./600 - 1},
	} {
		report := func(tokens []int64) *bench.Report {
			return &bench.Report{Groups: []bench.Group{{Policy: "p", KVBlocks: 8, Runs: runsComputing(tokens...)}}}
		}
		got := compare(t, report(c.a), report(c.b)).Groups[0].Figures[0]
		if got.Figure != "tokens_computed" || got.Noise != c.want || got.Better != c.better || math.Abs(got.Relative-c.change) > 1e-12 {
			t.Errorf("%s: %s %+.4f, %q, better %d; want %+.4f, %q, %d", c.name, got.Figure, got.Relative, got.Noise, got.Better, c.change, c.want, c.better)
		}
	}
}

// The chance that a change carries is how often draws from one distribution lie apart.
func TestChanceOfApart(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct{ a, b int }{{2, 2}, {3, 3}, {4, 4}, {1, 3}, {5, 2}} {
		const trials = 20_000
		apart := 0
		for range trials {
			low, high := [2]float64{2, 2}, [2]float64{-1, -1}
			for side, n := range []int{c.a, c.b} {
				for range n {
					v := draw.Float64()
					low[side], high[side] = min(low[side], v), max(high[side], v)
				}
			}
			if high[0] < low[1] || high[1] < low[0] {
				apart++
			}
		}
		a, b := &bench.Report{Groups: []bench.Group{{Policy: "p", Runs: make([]bench.Run, c.a)}}}, &bench.Report{Groups: []bench.Group{{Policy: "p", Runs: make([]bench.Run, c.b)}}}
		got, drawn := compare(t, a, b).Groups[0].Figures[0].Chance, float64(apart)/trials
		if math.Abs(got-drawn) > 5*math.Sqrt(got*(1-got)/trials) {
			t.Errorf("seed %d: %d and %d runs lie apart in %.4f of draws; %.4f is said", seed, c.a, c.b, drawn, got)
		}
	}
}

func compare(t *testing.T, a, b *bench.Report) *report.Comparison {
	t.Helper()
	c, err := report.Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompareRefusesOtherWorkloads(t *testing.T) {
	base := func() *bench.Report { return synthetic(fivePolicies, []int{1024}, 1, 4) }
	for want, change := range map[string]func(*bench.Report){
		`name chat and hot`:        func(r *bench.Report) { r.Workload.Name = "hot" },
		`seed 1 and 2`:             func(r *bench.Report) { r.Workload.Seed = 2 },
		`turns "10" and "11"`:      func(r *bench.Report) { r.Workload.Parameters["turns"] = "11" },
		`skew (none) and "1.1"`:    func(r *bench.Report) { r.Workload.Parameters["skew"] = "1.1" },
		`requests 600 and 599`:     func(r *bench.Report) { r.Workload.Requests = 599 },
		`prompt tokens 412380 and`: func(r *bench.Report) { r.Workload.PromptTokens++ },
	} {
		b := base()
		change(b)
		if _, err := report.Compare(base(), b); !errors.Is(err, report.ErrWorkloads) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	b := base()
	b.Workload.PromptTokens = 0 // a target that does not say
	if _, err := report.Compare(base(), b); err != nil {
		t.Error(err)
	}
}

func TestCompareWarns(t *testing.T) {
	a, b := synthetic(fivePolicies, []int{1024}, 1, 4), synthetic(fivePolicies, []int{1024}, 1, 4)
	if w := compare(t, a, b).Warnings; len(w) != 0 {
		t.Errorf("two reports alike: %q", w)
	}
	b.Machine.CPU, b.Model, b.Replicas, b.Threads, b.BlockTokens = "another", "gpt2", 8, 2, 32
	b.Arrival, b.SLO, b.Target, b.Cold, b.Interrupted = bench.Arrival{Kind: "closed", Concurrency: 3}, bench.SLO{}, "http://x", false, true
	for i := range b.Groups {
		b.Groups[i].Runs[0].Prompts = "another hash"
	}
	warnings := strings.Join(compare(t, a, b).Warnings, "\n")
	for _, want := range []string{"machines differ", "model: tailor-4m in A, gpt2 in B", "replicas: 4 in A, 8 in B", "threads of a replica: 1 in A, 2 in B", "KV block: 16 in A, 32 in B",
		"arrival: open loop", "objective: first token", "target:  in A, http://x in B", "caches emptied", "not the same bytes", "B was interrupted"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning says %q:\n%s", want, warnings)
		}
	}
}

func TestCompareText(t *testing.T) {
	a, b := synthetic(fivePolicies, []int{512, 1024}, 3, 4), synthetic(fivePolicies[1:], []int{1024, 2048}, 3, 4)
	b.Machine.CPU = "Neoverse-N1"
	for i := range a.Groups {
		for j := range a.Groups[i].Runs {
			a.Groups[i].Runs[j].Unknown = []string{"blocks_evicted"}
		}
	}
	c := compare(t, a, b)
	var out bytes.Buffer
	if err := c.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"A: AMD EPYC 7763 64-Core Processor, 2 cores, linux/amd64, go1.26.8; v0.6.0; 2026-11-30T18:05:00Z\n",
		"B: Neoverse-N1, 2 cores",
		"note: the machines differ",
		"\nround_robin, 1,024 KV blocks per replica\n",
		"only in A: random with 512 KV blocks per replica; ", "only in B: round_robin with 2,048 KV blocks per replica",
		" points", "apart, of few runs (10 % by chance)", "within the noise", "the same",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(line, "  blocks evicted") && !strings.Contains(line, "unknown") {
			t.Errorf("nobody counted evictions in A, yet: %s", line)
		}
	}
	if err := c.WriteText(full{}); !errors.Is(err, errFull) {
		t.Errorf("error %v from a writer that is full", err)
	}
}

func TestCompareHostile(t *testing.T) {
	for name, hostile := range hostileReports() {
		r := hostile()
		var out bytes.Buffer
		if err := compare(t, r, r).WriteText(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text := out.String(); strings.Contains(text, "NaN") || strings.ContainsAny(text, "\x00\x1b\r") {
			t.Errorf("%s: %q", name, text)
		}
	}
}
