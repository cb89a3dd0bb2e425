package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// absent stands in a table where nobody counted.
const absent = "-"

// WriteTable prints a table for each capacity, where reuse was lost, what the workload's
// author published, and the verdict.
func WriteTable(out io.Writer, r *Report) error {
	w := &errorWriter{to: out}
	writeHead(w, r)
	for _, blocks := range capacities(r) {
		var groups []*Group
		for i := range r.Groups {
			if g := &r.Groups[i]; g.KVBlocks == blocks {
				groups = append(groups, g)
			}
		}
		fmt.Fprintln(w)
		if blocks > 0 {
			fmt.Fprintf(w, "%d KV blocks of %d tokens per replica%s\n", blocks, r.BlockTokens, boundText(r, blocks))
		}
		writeMain(w, r, groups)
		writeLost(w, groups)
		writeCost(w, r, groups)
	}
	if p := r.Partial; p != nil && len(p.Runs) > 0 {
		run := &p.Runs[0]
		fmt.Fprintf(w, "\nUnder way when it ended: %s", p.Policy)
		if p.KVBlocks > 0 {
			fmt.Fprintf(w, " with %d blocks", p.KVBlocks)
		}
		fmt.Fprintf(w, ", %d of %d requests, %d failed", run.Requests, r.Workload.Requests, run.Failed)
		if run.Known("tokens_computed") {
			fmt.Fprintf(w, ", %d prompt tokens computed, %d reused", run.Computed, run.Reused)
		}
		fmt.Fprintln(w)
	}
	writeErrors(w, r)
	writePublished(w, r)
	writeLegend(w, r)
	for i, problem := range r.Problems() {
		if i == 0 {
			fmt.Fprintln(w, "\nThe counts contradict each other:")
		}
		fmt.Fprintf(w, "  %s\n", problem)
	}
	fmt.Fprintln(w, "\nWould prefix-aware routing pay for this traffic?")
	for _, line := range r.Verdict.Text {
		fmt.Fprintf(w, "  %s\n", line)
	}
	return w.err
}

func writeHead(w io.Writer, r *Report) {
	fmt.Fprintf(w, "%s: %d requests", r.Workload.Name, r.Workload.Requests)
	if n := r.Workload.PromptTokens; n > 0 {
		fmt.Fprintf(w, ", %d prompt tokens", n)
	}
	switch {
	case r.Replicas > 0 && r.Target != "":
		fmt.Fprintf(w, ", %d replicas at %s", r.Replicas, r.Target)
	case r.Replicas > 0:
		fmt.Fprintf(w, ", %d replicas", r.Replicas)
	default:
		fmt.Fprintf(w, ", %s", r.Target)
	}
	switch a := r.Arrival; a.Kind {
	case Closed:
		fmt.Fprintf(w, ", %d at one time", a.Concurrency)
	case Poisson:
		fmt.Fprintf(w, ", %.4g per second at random times", a.Rate)
	case Trace:
		fmt.Fprintf(w, ", at the trace's times x %.4g", a.Speed)
	}
	if r.Repeat > 1 {
		fmt.Fprintf(w, ", %d runs each: median (min..max)", r.Repeat)
	}
	fmt.Fprintln(w)
	if reach := r.Reach; reach.Unit != "" {
		fmt.Fprintf(w, "reachable: one cache that never evicts would reuse %s of the %s, in %d requests\n",
			percent(share(reach.Infinite, reach.Prompt)), reach.Unit, reach.InfiniteHits)
	}
}

func capacities(r *Report) []int {
	var sizes []int
	for i := range r.Groups {
		if !slices.Contains(sizes, r.Groups[i].KVBlocks) {
			sizes = append(sizes, r.Groups[i].KVBlocks)
		}
	}
	return sizes
}

func boundText(r *Report, blocks int) string {
	for _, b := range r.Reach.Bounds {
		if b.Blocks == blocks*max(1, r.Replicas) {
			return fmt.Sprintf("; one cache of all %d: %s reused by LRU, %s at most", b.Blocks,
				percent(share(b.LRU, r.Reach.Prompt)), percent(share(b.Reused, r.Reach.Prompt)))
		}
	}
	return ""
}

// writeMain prints one row a policy.
func writeMain(w io.Writer, r *Report, groups []*Group) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	slo := r.SLO.TTFT > 0 || r.SLO.TPOT > 0
	goodput := ""
	if slo {
		goodput = "goodput\t"
	}
	fmt.Fprintf(t, "policy\tcomputed\treused\thit rate\tof reachable\thits\tprefill CPU\tTTFT p50\tp90\tp99\t%sload max/mean\tevicted\t\n", goodput)
	reach := share(r.Reach.Infinite, r.Reach.Prompt)
	for _, g := range groups {
		row := []string{
			g.Policy,
			g.cell("tokens_computed", plainCount), g.cell("tokens_reused", plainCount), g.cell("token_hit_rate", percent),
			absent, g.hitsCell(), g.cell("prefill_cpu_seconds", func(s float64) string { return fmt.Sprintf("%.2f s", s) }),
			g.cell("ttft_seconds.p50", milliseconds), g.cell("ttft_seconds.p90", milliseconds), g.cell("ttft_seconds.p99", milliseconds),
		}
		if s, known := g.Summary["token_hit_rate"]; known && reach > 0 && r.Reach.Unit == Tokens {
			row[4] = percent(s.Median / reach)
		}
		if slo {
			row = append(row, g.cell("goodput_requests_per_second", func(v float64) string { return fmt.Sprintf("%.2f/s", v) }))
		}
		load := absent
		if m, known := g.Summary["load_max_requests"]; known {
			load = fmt.Sprintf("%s/%.1f", plainCount(m.Median), g.Summary["load_mean_requests"].Median)
		}
		row = append(row, load, g.cell("blocks_evicted", plainCount))
		fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
	}
	_ = t.Flush() // w keeps the error
}

// cell is a figure's median, and its range where that is one.
func (g *Group) cell(name string, text func(float64) string) string {
	s, known := g.Summary[name]
	switch {
	case !known:
		return absent
	case text(s.Min) == text(s.Max):
		return text(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", text(s.Median), text(s.Min), text(s.Max))
}

func (g *Group) hitsCell() string {
	s, known := g.Summary["request_hits"]
	if !known {
		return absent
	}
	return fmt.Sprintf("%s/%s", plainCount(s.Median), plainCount(g.Summary["requests"].Median))
}

// writeLost prints the causes that occur, where a router tells.
func writeLost(w io.Writer, groups []*Group) {
	causes := map[string]bool{}
	for _, g := range groups {
		for name, s := range g.Summary {
			if cause, is := strings.CutPrefix(name, "lost."); is && s.Max > 0 {
				causes[cause] = true
			}
		}
	}
	if len(causes) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(causes))
	fmt.Fprintln(w, "\nwhy tokens were computed")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "policy\t%s\t\n", strings.Join(names, "\t"))
	for _, g := range groups {
		row := []string{g.Policy}
		for _, cause := range names {
			row = append(row, g.lostCell(cause))
		}
		fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
	}
	_ = t.Flush()
}

func (g *Group) lostCell(cause string) string {
	if _, known := g.Summary["lost."+cause]; known {
		return g.cell("lost."+cause, plainCount)
	}
	for i := range g.Runs {
		if !g.Runs[i].Known("lost") {
			return absent
		}
	}
	return "0"
}

// writeCost prints the lesson's formula against what was measured.
func writeCost(w io.Writer, r *Report, groups []*Group) {
	var lines []string
	partial := false
	var c Cost
	for _, g := range groups {
		p, known := g.Summary["cost.predicted_seconds"]
		m := g.Summary["cost.measured_seconds"]
		if known && m.Median > 0 {
			partial, c = partial || hitsPartly(&r.Reach, &g.Runs[0]), *g.Runs[0].Cost
			lines = append(lines, fmt.Sprintf("%s %s / %s (%+.1f %%)", g.Policy, seconds(p.Median), seconds(m.Median), 100*(p.Median/m.Median-1)))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\nprefill CPU a request: the lesson's E = h*c_s + (1-h)*(c_p + c_s) / measured; c_p %s and c_s %s, timed apart:\n  %s\n",
			seconds(c.Prefix), seconds(c.Suffix), strings.Join(lines, "\n  "))
		if partial {
			fmt.Fprintln(w, "  (the formula knows whole prefixes only; here some hits found no more than a part of theirs)")
		}
	}
}

// hitsPartly tells whether a run computed noticeably more tokens than it would have, had each
// of its hits found a whole prefix.
func hitsPartly(reach *Reach, run *Run) bool {
	prefix := float64(reach.Infinite) / float64(max(reach.InfiniteHits, 1))
	whole := float64(reach.Prompt) - float64(run.Hits)*prefix
	return float64(run.Computed) > 1.05*whole
}

func writeErrors(w io.Writer, r *Report) {
	total := map[string]int64{}
	groups := r.Groups
	if r.Partial != nil {
		groups = append(slices.Clone(groups), *r.Partial)
	}
	for i := range groups {
		for j := range groups[i].Runs {
			for text, n := range groups[i].Runs[j].Errors {
				total[text] += n
			}
		}
	}
	if len(total) == 0 {
		return
	}
	fmt.Fprintln(w, "\nfailed requests")
	for _, text := range slices.Sorted(maps.Keys(total)) {
		fmt.Fprintf(w, "  %6d  %s\n", total[text], text)
	}
}

func writePublished(w io.Writer, r *Report) {
	first := true
	for i := range r.Groups {
		g := &r.Groups[i]
		p := g.Published
		if p == nil {
			continue
		}
		if first {
			fmt.Fprintln(w, "\nThe lesson's own count:")
			first = false
		}
		verdict := "the same"
		if !p.Same {
			verdict = "DIFFERENT"
		}
		fmt.Fprintf(w, "  %-12s published %d computed, %d hits; measured %s, %s: %s\n", g.Policy, p.Computed, p.Hits,
			g.cell("tokens_computed", plainCount), g.cell("request_hits", plainCount), verdict)
	}
}

func plainCount(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

func milliseconds(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1e3) }

// errorWriter keeps the first error, so that printing needs to look only once.
type errorWriter struct {
	to  io.Writer
	err error
}

func (w *errorWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

// writeLegend says what the tables' words mean.
func writeLegend(w io.Writer, r *Report) {
	if len(r.Groups) == 0 {
		return
	}
	fmt.Fprint(w, `
computed, reused: prompt tokens, as the engines count; hit rate: of tokens; hits: requests that reused any; of reachable: of what
one cache that never evicts would reuse; load: requests on the busiest replica and on the mean one; evicted: KV blocks;
cold: new, or in no full block before; elsewhere: on another replica; times: in an open loop from when a request was due
`)
}
