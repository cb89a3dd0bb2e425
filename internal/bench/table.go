package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable prints one row a policy and, where the workload's author published figures,
// how the measured ones compare.
func WriteTable(out io.Writer, w *Workload, results []Result) error {
	fmt.Fprintf(out, "%s: %d requests, %d prompt tokens, %d replicas\n\n", w.Name, len(w.Requests), w.PromptTokens(), w.Replicas)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tcomputed\treused\thit rate\thits\tprefill CPU\tTTFT p50\tp95\tload max/mean\tevicted\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\t%d/%d\t%.2f s\t%s\t%s\t%d/%.1f\t%d\t\n",
			r.Policy, r.Computed, r.Reused, 100*r.HitRate, r.Hits, r.Requests, r.PrefillCPU,
			milliseconds(r.TTFTP50), milliseconds(r.TTFTP95), r.LoadMax, r.LoadMean, r.Evicted)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\ncomputed, reused: prompt tokens, counted by the engines; hit rate: of tokens; hits: requests that reused any;")
	fmt.Fprintln(out, "load: requests on the busiest replica / on the mean one; evicted: KV blocks.")

	var lines []string
	for _, r := range results {
		if p := r.Published; p != nil {
			verdict := "the same"
			if p.Computed != r.Computed || p.Hits != r.Hits {
				verdict = "DIFFERENT"
			}
			lines = append(lines, fmt.Sprintf("  %-12s published %d computed, %d hits; measured %d, %d: %s",
				r.Policy, p.Computed, p.Hits, r.Computed, r.Hits, verdict))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(out, "\nThe lesson's own count:\n%s\n", strings.Join(lines, "\n"))
	}
	return nil
}

func milliseconds(seconds float64) string {
	return fmt.Sprintf("%.1f ms", seconds*1e3)
}

// progressEvery bounds how often a progress line is rewritten.
const progressEvery = 100 * time.Millisecond

// Progress returns a callback for Options.Progress that keeps one line of out up to date,
// meant for a terminal.
func Progress(out io.Writer) func(policy string, done, total int) {
	var last time.Time
	return func(policy string, done, total int) {
		if now := time.Now(); done == total || now.Sub(last) >= progressEvery {
			last = now
			fmt.Fprintf(out, "\r\033[K%s  %d/%d", policy, done, total)
			if done == total {
				fmt.Fprint(out, "\r\033[K")
			}
		}
	}
}
