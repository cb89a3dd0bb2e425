package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tailor/internal/openai"
)

func TestPercentileIsNearestRank(t *testing.T) {
	v := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]float64{0: 1, 0.05: 1, 0.5: 5, 0.51: 6, 0.95: 10, 1: 10} {
		if got := percentile(v, q); got != want {
			t.Errorf("percentile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("percentile of nothing = %v", got)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{3, 3, 3}}, {[]float64{5, 1}, Spread{3, 1, 5}}, {[]float64{9, 1, 2}, Spread{2, 1, 9}},
	} {
		if got := spread(c.values); got != c.want {
			t.Errorf("%v: %+v", c.values, got)
		}
	}
}

func TestMeasureFromWhenARequestWasDue(t *testing.T) {
	s := time.Second
	samples := []Sample{
		// Due at 0, sent 1 s late, first token 2 s after it was due, 4 tokens in all.
		{Index: 0, Due: 0, Sent: s, TTFT: 2 * s, E2E: 5 * s, Prompt: 10, Cached: 4, Output: 4, Replica: "a"},
		{Index: 1, Due: 4 * s, Sent: 4 * s, TTFT: 1 * s, E2E: 1 * s, Prompt: 10, Cached: 0, Output: 1, Replica: "b"},
		{Index: 2, Due: 4 * s, Sent: 4 * s, Error: "no", Prompt: -1, Cached: -1, Output: -1, E2E: 4 * s, Replica: "b"},
	}
	r := measure(samples, reading{}, 10*s, SLO{TTFT: 1.5})
	if r.TTFT.P50 != 1 || r.TTFT.P99 != 2 || r.TTFTSent.Max != 1 || r.E2E.Max != 5 || r.TPOT.P50 != 1 {
		t.Errorf("TTFT %+v, from sent %+v, E2E %+v, TPOT %+v", r.TTFT, r.TTFTSent, r.E2E, r.TPOT)
	}
	if r.Requests != 3 || r.Failed != 1 || r.Rate != 0.2 || r.Goodput != 0.1 {
		t.Errorf("%d requests, %d failed, %v and %v per second", r.Requests, r.Failed, r.Rate, r.Goodput)
	}
	if r.PromptTokens != 20 || r.Reused != 4 || r.Computed != 16 || r.Hits != 1 || r.RequestHitRate != 0.5 || r.TokenHitRate != 0.2 {
		t.Errorf("tokens %+v", r)
	}
	if len(r.TTFTCurve) != 101 || r.TTFTCurve[0] != 1 || r.TTFTCurve[50] != 1 || r.TTFTCurve[51] != 2 || r.TTFTCurve[100] != 2 {
		t.Errorf("curve %v", r.TTFTCurve)
	}
	// Steps of 50 ms: a has one request from 1 s up to 5 s, b two from 4 s, of which one ends at 5 s, the other at 8 s.
	for _, c := range []struct{ replica, step, want int }{
		{0, 19, 0}, {0, 20, 1}, {0, 99, 1}, {0, 100, 0}, {1, 79, 0}, {1, 80, 2}, {1, 99, 2}, {1, 100, 1}, {1, 159, 1}, {1, 160, 0},
	} {
		if got := r.Load[c.replica].InFlight[c.step]; got != c.want {
			t.Errorf("replica %d at step %d: %d in flight, want %d", c.replica, c.step, got, c.want)
		}
	}
	if r.Load[0].Step != 0.05 || r.LoadMax != 1 || r.LoadMean != 1 {
		t.Errorf("load %+v, max %d, mean %v", r.Load[0].Step, r.LoadMax, r.LoadMean)
	}
}

func TestUnknownFiguresAreAbsent(t *testing.T) {
	samples := []Sample{{Prompt: 10, Cached: -1, Output: 1, TTFT: 1, E2E: 2}}
	r := measure(samples, reading{}, time.Second, SLO{})
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"tokens_computed", "tokens_reused", "request_hits", "token_hit_rate", "request_hit_rate", "blocks_evicted",
		"prefill_cpu_seconds", "decode_cpu_seconds", "lost", "load", "load_max_requests", "load_mean_requests", "tpot_seconds",
	} {
		if _, there := fields[name]; there || r.Known(name) {
			t.Errorf("%s: nobody counted it, and it is there", name)
		}
	}
	for _, name := range []string{"requests", "failed", "prompt_tokens", "ttft_seconds", "wall_seconds"} {
		if _, there := fields[name]; !there || !r.Known(name) {
			t.Errorf("%s is absent", name)
		}
	}
	g := Group{Policy: "x", Runs: []Run{r}}
	g.summarize()
	if _, there := g.Summary["tokens_computed"]; there || g.Summary["prompt_tokens"].Median != 10 {
		t.Errorf("summary %v", g.Summary)
	}
	var out strings.Builder
	report := &Report{Groups: []Group{g}, Replicas: 0, Target: "http://x", Workload: WorkloadReport{Name: "w", Requests: 1}}
	report.Verdict = Judge(report)
	if err := WriteTable(&out, report); err != nil {
		t.Fatal(err)
	}
	row := ""
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "x" {
			row = strings.Join(fields, " ")
		}
	}
	if !strings.HasPrefix(row, "x - - - - - - 0.0 ms") || !strings.HasSuffix(row, "- -") {
		t.Errorf("row %q in:\n%s", row, out.String())
	}

	// Known figures are written in the order of their fields, and read back as they were.
	known := syntheticRun(30_000)
	data, err = json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	var back Run
	if err := json.Unmarshal(data, &back); err != nil || back.Computed != 30_000 || back.Lost["cold"] != 20_000 {
		t.Errorf("read back %+v, %v", back, err)
	}
}

func TestErrorKindsAreBounded(t *testing.T) {
	var r Run
	for i := range 50 {
		r.addError(fmt.Sprint("error ", i%25))
	}
	r.addError(strings.Repeat("é", 500))
	total := int64(0)
	for _, n := range r.Errors {
		total += n
	}
	if len(r.Errors) != errorKinds+1 || total != 51 {
		t.Errorf("%d kinds, %d errors", len(r.Errors), total)
	}
}

func TestCausesThatSomeRunsDidNotMeetAreZeroThere(t *testing.T) {
	g := Group{Runs: []Run{syntheticRun(30_000), syntheticRun(30_000)}}
	g.Runs[1].Lost = map[string]int64{"evicted": 4}
	g.summarize()
	if s := g.Summary["lost.evicted"]; s != (Spread{2, 0, 4}) {
		t.Errorf("evicted %+v", s)
	}
	if g.cell("lost.evicted", plainCount) != "2 (0..4)" {
		t.Errorf("cell %q", g.cell("lost.evicted", plainCount))
	}
}

func TestReplicasAreOrderedByNumber(t *testing.T) {
	ids := []string{"r10", "r2", "joined1", "r1"}
	slices.SortFunc(ids, compareIDs)
	if want := []string{"r1", "r2", "r10", "joined1"}; !slices.Equal(ids, want) {
		t.Errorf("%v", ids)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", 17243.5: "17,244"} {
		if got := count(n); got != want {
			t.Errorf("%v: %s", n, got)
		}
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	at := time.Unix(0, 0)
	show := NewProgress(&out, func() time.Time { return at })
	show(Progress{Policy: "random", Runs: 2, Done: 1, Sent: 100, KVBlocks: 64})
	show(Progress{Policy: "random", Runs: 2, Done: 2, Sent: 100, KVBlocks: 64}) // too soon
	at = at.Add(10 * time.Second)
	show(Progress{Policy: "random", Runs: 2, Done: 50, Sent: 100, KVBlocks: 64})
	show(Progress{Policy: "hash", Run: 1, Runs: 2, Done: 100, Sent: 100})
	want := "\r\033[K1/2 random, 64 blocks  [........................] 1/100" +
		"\r\033[K1/2 random, 64 blocks  [######..................] 50/100  ETA 30s\r\033[K"
	if out.String() != want {
		t.Errorf("%q\nwant %q", out.String(), want)
	}
}

func TestErrorsCannotReachTheTerminalRaw(t *testing.T) {
	var r Run
	r.addError("red \x1b[31m title \x1b]0;t\a line\nnext \u202eleft")
	for text := range r.Errors {
		if want := "red  [31m title  ]0;t  line next  left"; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

func TestImpossibleUsageIsRefused(t *testing.T) {
	for _, usage := range []string{
		`"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":5000}`,
		`"prompt_tokens":-10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":-20}`,
		`"prompt_tokens":9223372036854775807,"completion_tokens":1`,
	} {
		stream := `data: {"choices":[{"index":0,"text":"x"}],"usage":{` + usage + "}}\n\ndata: [DONE]\n\n"
		if _, err := readAnswer(openai.NewStreamReader(strings.NewReader(stream))); err == nil || !strings.Contains(err.Error(), "prompt_tokens") {
			t.Errorf("%s: %v", usage, err)
		}
	}
}
