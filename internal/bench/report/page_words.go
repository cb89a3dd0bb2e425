package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tailor/internal/bench"
)

// verdictOf is the page's first line, in large words, the sentence below it, and the others.
func verdictOf(r *bench.Report) (class, headline, lead string, reasons []string) {
	class, headline = "unclear", "No verdict: nothing ran to its end."
	switch r.Verdict.Pays {
	case "yes":
		class, headline = "yes", "Routing by prefix pays for this traffic."
	case "no":
		class, headline = "no", "Routing by prefix does not pay for this traffic."
	case "unclear":
		headline = "These runs do not tell whether routing by prefix pays."
	default:
		if len(r.Groups) > 0 {
			headline = "No verdict: these runs do not compare policies."
		}
	}
	for i, sentence := range r.Verdict.Text {
		if i == 0 {
			lead = unbroken(sentence)
			continue
		}
		reasons = append(reasons, unbroken(sentence))
	}
	return class, headline, lead, reasons
}

// unbroken keeps percentages from breaking between number and sign.
func unbroken(s string) string { return strings.ReplaceAll(s, " %", "\u00a0%") }

// eyebrow says in one line what was measured.
func eyebrow(r *bench.Report) string {
	parts := []string{"tailor bench", r.Workload.Name}
	if r.Workload.Requests > 0 {
		parts = append(parts, countText(float64(r.Workload.Requests))+" requests")
	}
	switch {
	case r.Replicas == 1:
		parts = append(parts, "1 replica")
	case r.Replicas > 1:
		parts = append(parts, countText(float64(r.Replicas))+" replicas")
	}
	if !r.Created.IsZero() {
		parts = append(parts, r.Created.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return strings.Join(parts, " · ")
}

// notices warn of what makes the figures less than they seem.
func notices(r *bench.Report) (lines []string) {
	var ended []string
	if r.Interrupted {
		ended = append(ended, "The benchmark was interrupted. What follows is what had run to its end.")
	}
	if p := r.Partial; p != nil && len(p.Runs) > 0 {
		ended = append(ended, fmt.Sprintf("Under way when it ended: %s, %s of %s requests; they are in none of the figures.",
			p.Policy, countText(float64(p.Runs[0].Requests)), countText(float64(r.Workload.Requests))))
	}
	if len(ended) > 0 {
		lines = append(lines, strings.Join(ended, " "))
	}
	if problems := r.Problems(); len(problems) > 0 {
		line := "The counts contradict each other: " + problems[0]
		if more := len(problems) - 1; more > 0 {
			line += fmt.Sprintf(" (and %s more)", countText(float64(more)))
		}
		lines = append(lines, line)
	}
	var failed, held int64
	for i := range r.Groups {
		for j := range r.Groups[i].Runs {
			failed += max(0, r.Groups[i].Runs[j].Failed)
			held += max(0, r.Groups[i].Runs[j].Held)
		}
	}
	if failed > 0 {
		lines = append(lines, countText(float64(failed))+" requests failed, counted over all runs. Times and rates are of the others.")
	}
	if held > 0 {
		lines = append(lines, countText(float64(held))+" requests were sent later than they were due, because as many as were allowed were in flight; their wait counts in all times.")
	}
	return lines
}

// failures are the failed requests by what was wrong, most frequent first.
func failures(r *bench.Report) (lines []string) {
	total := map[string]int64{}
	for i := range r.Groups {
		for j := range r.Groups[i].Runs {
			for text, n := range r.Groups[i].Runs[j].Errors {
				total[text] += max(0, n)
			}
		}
	}
	texts := slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), strings.Compare(a, b))
	})
	for _, text := range texts {
		lines = append(lines, countText(float64(total[text]))+" × "+text)
	}
	return lines
}

// cardsOf are the few figures that matter most, of the policy to choose against the one that the
// verdict compares it with or, if it does not say, that computes most with the same capacity.
func cardsOf(r *bench.Report) (cards []card) {
	var best, worst *bench.Group
	var least, most float64
	for _, g := range atCapacity(r, shownCapacity(r)) {
		s, known := figComputed.spreadOf(g.Runs)
		if !known {
			continue
		}
		chosen := g.Policy == r.Verdict.Policy
		if best == nil || chosen || best.Policy != r.Verdict.Policy && s.Median < least {
			best, least = g, s.Median
		}
		against := g.Policy == r.Verdict.Against
		if worst == nil || against || worst.Policy != r.Verdict.Against && s.Median > most {
			worst, most = g, s.Median
		}
	}
	if v := r.Verdict; v.Policy != "" && isFinite(v.Saving) && v.Saving > 0 {
		cards = append(cards, card{"fewer prompt tokens computed", percentText(v.Saving), "with " + v.Policy + ", against " + cmp.Or(v.Against, "the best policy that ignores prefixes")})
	}
	if best == nil {
		return cards
	}
	add := func(f *figure, label string) {
		s, known := f.spreadOf(best.Runs)
		if !known {
			return
		}
		note := best.Policy
		if w, known := f.spreadOf(worst.Runs); known && worst != best {
			note += "; " + worst.Policy + ": " + strings.ReplaceAll(f.text(w.Median), " ", "\u00a0")
		}
		if f == &figTokenHitRate {
			if reach, known := reachable(r); known {
				note += "; reachable: " + percentText(reach)
			}
		}
		cards = append(cards, card{label, f.text(s.Median), unbroken(note)})
	}
	add(&figTokenHitRate, "prompt tokens reused")
	add(&ttftFigures[0], "median time to first token")
	add(&figPrefillCPU, "CPU time for prefill")
	return cards
}

// published compares with what the workload's author counted.
func published(r *bench.Report) (lines []string) {
	for i := range r.Groups {
		g := &r.Groups[i]
		p := g.Published
		if p == nil {
			continue
		}
		same := "every run measured the same"
		if !p.Same {
			same = "not every run measured the same"
		}
		lines = append(lines, fmt.Sprintf("%s: %s prompt tokens computed and %s requests hit were published; %s.",
			g.Policy, countText(float64(p.Computed)), countText(float64(p.Hits)), same))
	}
	return lines
}

// facts are all that someone would need to judge the figures or to repeat them.
func facts(r *bench.Report) (f []fact) {
	add := func(label, value string) {
		if value != "" {
			f = append(f, fact{label, value})
		}
	}
	number := func(label string, n int64) {
		if n == 0 {
			add(label, unknown)
			return
		}
		add(label, countText(float64(n)))
	}
	add("Workload", r.Workload.Name)
	for _, name := range slices.Sorted(maps.Keys(r.Workload.Parameters)) {
		add(name, r.Workload.Parameters[name])
	}
	add("Seed", fmt.Sprint(r.Workload.Seed))
	number("Requests", int64(r.Workload.Requests))
	number("Prompt tokens", r.Workload.PromptTokens)
	number("Output tokens", r.Workload.OutputTokens)
	add("Arrival", arrivalText(r.Arrival))
	add("Objective", sloText(r.SLO))
	add("Model", r.Model)
	if r.Target != "" {
		add("Target", r.Target+", which ran already")
	}
	number("Replicas", int64(r.Replicas))
	number("Threads each", int64(r.Threads))
	for _, name := range settingNames(r) {
		add("--"+name, settingText(r, name))
	}
	number("Tokens in a KV block", int64(r.BlockTokens))
	number("Runs each", int64(r.Repeat))
	add("Machine", machineText(r.Machine))
	add("Version", r.Version)
	if !r.Created.IsZero() {
		add("Made", r.Created.UTC().Format(time.RFC1123))
	}
	return f
}

func machineText(m bench.Machine) string {
	var parts []string
	if m.CPU != "" {
		parts = append(parts, m.CPU)
	}
	if m.Cores > 0 {
		parts = append(parts, countText(float64(m.Cores))+" cores")
	}
	for _, s := range []string{m.OS, m.Go} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return unknown
	}
	return strings.Join(parts, ", ")
}

func arrivalText(a bench.Arrival) string {
	switch a.Kind {
	case "closed":
		if a.Concurrency == 1 {
			return "closed loop, 1 client: requests never overlap"
		}
		return fmt.Sprintf("closed loop, %s clients, each sends when its last answer is complete", countText(float64(a.Concurrency)))
	case "poisson":
		return fmt.Sprintf("open loop, Poisson arrivals at %s requests a second", threeDigits(a.Rate))
	case "trace":
		if a.Speed == 1 || a.Speed == 0 {
			return "at the trace’s own times"
		}
		return fmt.Sprintf("at the trace’s own times, %s times as fast", threeDigits(a.Speed))
	}
	return a.Kind
}

func sloText(s bench.SLO) string {
	var parts []string
	if s.TTFT > 0 {
		parts = append(parts, "first token within "+secondsText(s.TTFT))
	}
	if s.TPOT > 0 {
		parts = append(parts, "then "+secondsText(s.TPOT)+" a token at most")
	}
	return strings.Join(parts, ", ")
}

// commandText writes a command so that a POSIX shell reads it back as the same words.
func commandText(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		plain := word != "" && strings.IndexFunc(word, func(c rune) bool {
			return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=,@%+", c))
		}) < 0
		quoted[i] = word
		if !plain {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// method explains the words and the bounds.
func method(r *bench.Report) []string {
	start := "Every policy got the same requests, on caches that were not emptied before: some of the reuse may be of what was there already."
	if r.Cold {
		start = "Every policy got the same requests, byte for byte, on replicas with cold caches."
	}
	unit := "tokens"
	if r.Reach.Unit == "bytes" {
		unit = "bytes of text, because the target has no tokenizer to ask,"
	}
	lines := []string{
		start,
		"Computed are the prompt tokens that ran through the model, reused those whose keys and values came from a cache; together they are all prompt tokens. The last token of a prompt is always computed. A hit rate is of tokens unless it says of requests.",
		"Reachable is what one cache that never evicts would reuse of the prompts sent in order, counted in " + unit + " from the workload alone.",
		"The upper bound for a capacity is for one cache with the blocks of all replicas together, and holds for every eviction policy, even one that knows the future; no routing over separate caches can exceed it. Beside it is what that one cache reuses when it evicts the least recently used.",
		"Lost reuse comes from the router’s ledger: each computed token has one cause, in the order of the prompt.",
		"TTFT is the time from when a request was due to be sent to the first part of its answer, TPOT the time of each output token after that, E2E the time to the end, all as the client saw them. Goodput counts the answers that kept the objective. Load max/mean is the busiest replica’s number of requests against the mean.",
	}
	if repeated(r) {
		line := "Figures are medians over the repeated runs, with the smallest and largest below where they differ. A difference between two policies whose ranges overlap is inside the noise."
		if n := r.Repeat; n > 1 && n < 5 {
			line += fmt.Sprintf(" The other way round, ranges of %d runs each of the same thing lie apart by chance in %.0f %% of cases.", n, 100*chanceApart(n, n))
		}
		lines = append(lines, line)
	} else {
		lines = append(lines, "Each policy ran once, so how much the figures vary from run to run is unknown.")
	}
	return append(lines, "What was not measured is called unknown. A target that is not Tailor has no engine counters to read.")
}
