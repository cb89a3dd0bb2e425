package bench

import (
	"fmt"
	"slices"
	"strings"
)

// The answers to whether prefix-aware routing pays.
const (
	PaysYes     = "yes"
	PaysNo      = "no"
	PaysUnclear = "unclear"
)

const (
	// noiseTokens is the share of the prompt tokens below which a difference in computed
	// tokens is none: what a request more or less in flight at the wrong moment changes.
	noiseTokens = 0.01
	// noiseTime is the same for times of single runs, as shares of the larger one.
	noiseTime = 0.10
	// failedTolerated is the share of failed requests beyond which counts do not compare.
	failedTolerated = 0.01
	// littleShared is the share of the prompt tokens that could be reused below which there is
	// little to gain whatever one does.
	littleShared = 0.10
	// saturated is the share of the requests falling due that is answered meanwhile, below
	// which an open loop is above saturation: its queue grows for as long as it lasts.
	saturated = 0.8
	// full is the share of what could be reused that counts as all of it.
	full = 0.97
)

// prefixAware are the router's policies that look at the prompt's prefix. Sticky sessions
// look at a name instead, and the recorded placement at nothing. Of those that do equally
// well here the first is chosen: one that minds the load, then one that keeps its keys when
// replicas come and go.
var prefixAware = []string{"prefix_affinity", "cost", "cache_aware", "consistent_hash", "rendezvous_hash", "prefix_hash"}

// Judge says in plain words what a report's figures mean. It looks at nothing else.
func Judge(r *Report) Verdict {
	j := judge{report: r, verdict: Verdict{Pays: PaysUnclear, Text: []string{}}}
	j.judge()
	j.caveats()
	return j.verdict
}

// judge is a verdict in the making.
type judge struct {
	report  *Report
	verdict Verdict
}

func (j *judge) say(format string, args ...any) {
	j.verdict.Text = append(j.verdict.Text, fmt.Sprintf(format, args...))
}

func (j *judge) judge() {
	var usable []*Group
	failed := ""
	for i := range j.report.Groups {
		g := &j.report.Groups[i]
		if share := g.failedShare(); share > failedTolerated && failed == "" {
			failed = fmt.Sprintf("%s of %s's requests failed, so it cannot be said what the policies cost", percent(share), g.name(j.report))
		}
		if _, known := g.computed(); known && g.prompts() > 0 {
			usable = append(usable, g)
		}
	}
	switch {
	case len(j.report.Groups) == 0:
		j.say("Unclear: nothing ran to its end, so nothing can be said.")
	case len(j.report.Problems()) > 0:
		j.say("Unclear: the counts contradict each other. %s.", upperFirst(j.report.Problems()[0]))
	case failed != "":
		j.say("Unclear: %s.", failed)
	case len(usable) == 0:
		j.say("Unclear: nobody counted what was reused; the server's answers do not say cached_tokens.")
	default:
		j.compare(usable)
	}
}

// compare chooses a capacity, then compares the policies there.
func (j *judge) compare(usable []*Group) {
	chosen, sweep := j.capacity(usable)
	var aware, blind []*Group
	for _, g := range usable {
		if g.KVBlocks != chosen {
			continue
		}
		if slices.Contains(prefixAware, g.Policy) {
			aware = append(aware, g)
		} else {
			blind = append(blind, g)
		}
	}
	switch {
	case len(aware) == 0 || len(blind) == 0:
		best := fewest(append(aware, blind...))
		reused := 1 - best.mustComputed()/best.prompts()
		j.say("Unclear whether prefix-aware routing pays: nothing here compares a policy that looks at prefixes with one that does not. Of %s, %s reused most: %s of the prompt tokens.",
			join(policyNames(append(aware, blind...))), best.Policy, percent(reused))
		j.limits(best)
	case j.report.Replicas == 1:
		j.oneReplica(append(aware, blind...))
	default:
		j.decide(aware, blind)
	}
	if sweep {
		j.capacities(usable, chosen)
	}
}

// capacity is the smallest that does as well as any, within the noise.
func (j *judge) capacity(usable []*Group) (blocks int, sweep bool) {
	best := fewest(usable)
	blocks = best.KVBlocks
	for _, g := range usable {
		sweep = sweep || g.KVBlocks != usable[0].KVBlocks
		if g.KVBlocks < blocks && g.mustComputed() <= best.mustComputed()+noiseTokens*best.prompts() {
			blocks = g.KVBlocks
		}
	}
	return blocks, sweep
}

func (j *judge) oneReplica(groups []*Group) {
	best, worst := fewest(groups), most(groups)
	j.verdict.Pays = PaysNo
	if differ(worst, best) == different {
		j.verdict.Pays = PaysUnclear
		j.say("Unclear: with one replica all policies must do the same, yet %s computed %s prompt tokens and %s %s.",
			best.Policy, count(best.mustComputed()), worst.Policy, count(worst.mustComputed()))
		return
	}
	j.say("No: with one replica there is nothing to choose; all %d policies computed the same %s of %s prompt tokens.",
		len(groups), count(best.mustComputed()), count(best.prompts()))
	j.limits(best)
}

// decide answers the question from the best of both kinds.
func (j *judge) decide(aware, blind []*Group) {
	a, b := chosenOf(aware), fewest(blind)
	saving := 1 - a.mustComputed()/b.mustComputed()
	d := differ(b, fewest(aware))
	j.verdict.Against = b.Policy
	switch {
	case d == overlapping:
		j.say("Unclear: %s computed %s prompt tokens (median) and %s %s, but repeated runs of the two overlap: the difference is inside the noise.",
			a.Policy, count(a.mustComputed()), b.Policy, count(b.mustComputed()))
	case d == same && j.nothingToReuse():
		j.verdict.Pays = PaysNo
		j.say("No: these prompts share nothing worth routing for; one cache that never evicts would reuse %s of their tokens, and no policy saves any work.",
			percent(share(j.report.Reach.Infinite, j.report.Reach.Prompt)))
		return
	case d == same:
		j.verdict.Pays = PaysNo
		j.say("No: %s computed %s of %s prompt tokens and %s, the best that ignores prefixes, %s: a difference inside the noise.",
			a.Policy, count(a.mustComputed()), count(a.prompts()), b.Policy, count(b.mustComputed()))
		j.sticky(a, b, blind)
	case saving < 0:
		j.verdict.Pays = PaysNo
		j.say("No: %s, the best that looks at prefixes, computed %s prompt tokens; %s, which ignores them, only %s.",
			a.Policy, count(a.mustComputed()), b.Policy, count(b.mustComputed()))
		j.verdict.Policy = b.Policy
	default:
		j.verdict.Pays, j.verdict.Policy, j.verdict.Saving = PaysYes, a.Policy, saving
		j.say("Yes: choose %s. It computed %s of %s prompt tokens; %s, the best that ignores prefixes, %s. That is %s less to compute%s.",
			a.Policy, count(a.mustComputed()), count(a.prompts()), b.Policy, count(b.mustComputed()), percent(saving), ties(a, aware))
	}
	j.times(a, b)
	j.limits(a)
	j.balance(a)
}

// sticky says what is gained over policies that are not sticky either, where sticky sessions
// do as well as looking at prefixes.
func (j *judge) sticky(a, b *Group, blind []*Group) {
	others := slices.DeleteFunc(slices.Clone(blind), func(g *Group) bool { return g.Policy == "session" })
	if b.Policy != "session" || len(others) == 0 {
		return
	}
	if next := fewest(others); differ(next, a) == different && next.mustComputed() > a.mustComputed() {
		j.verdict.Policy = b.Policy
		j.say("Sticky sessions are enough: what is shared here is shared within a session. Against %s, which is not sticky, both save: it computed %s.",
			next.Policy, count(next.mustComputed()))
	}
}

func (j *judge) nothingToReuse() bool {
	r := &j.report.Reach
	return r.Unit != "" && share(r.Infinite, r.Prompt) < noiseTokens
}

// times compares what the saving does to the clock.
func (j *judge) times(a, b *Group) {
	var parts []string
	for _, f := range []struct{ name, label string }{
		{"prefill_cpu_seconds", "prefill CPU"}, {"ttft_seconds.p50", "TTFT p50"}, {"ttft_seconds.p90", "TTFT p90"},
	} {
		x, known := a.Summary[f.name]
		y, alsoKnown := b.Summary[f.name]
		if !known || !alsoKnown || y.Median <= 0 {
			continue
		}
		text := fmt.Sprintf("%s %s against %s", f.label, seconds(x.Median), seconds(y.Median))
		if timesDiffer(a, b, f.name) {
			text += fmt.Sprintf(" (%+.0f %%)", 100*(x.Median/y.Median-1))
		} else {
			text += " (inside the noise)"
		}
		parts = append(parts, text)
	}
	if len(parts) > 0 {
		hint := ""
		if j.report.Repeat < 2 {
			hint = " Times of one run each are a hint: --repeat tells them from noise."
		}
		j.say("Of %s against %s: %s.%s", a.Policy, b.Policy, strings.Join(parts, ", "), hint)
	}
	slo := j.report.SLO
	if slo.TTFT > 0 || slo.TPOT > 0 {
		x, y := a.Summary["goodput_requests_per_second"], b.Summary["goodput_requests_per_second"]
		j.say("Within the SLO it answered %.2f requests per second against %.2f.", x.Median, y.Median)
	}
}

// limits says what keeps the reuse from being more.
func (j *judge) limits(g *Group) {
	r := &j.report.Reach
	prompts := g.prompts()
	reused := prompts - g.mustComputed()
	if r.Unit == Tokens && r.Prompt > 0 {
		reach := float64(r.Infinite)
		switch got := reused / max(reach, 1); {
		case share(r.Infinite, r.Prompt) < noiseTokens:
			j.say("The workload limits it: one cache that never evicts would reuse %s.", percent(share(r.Infinite, r.Prompt)))
			return
		case share(r.Infinite, r.Prompt) < littleShared:
			j.say("The workload limits it: little is shared. One cache that never evicts would reuse %s of the prompt tokens; %s reuses %s of those.",
				percent(share(r.Infinite, r.Prompt)), g.Policy, percent(min(got, 1)))
		case got >= full:
			j.say("There is no more to gain, the workload is the limit: one cache that never evicts would reuse %s of the prompt tokens, and %s reuses %s of those.",
				percent(share(r.Infinite, r.Prompt)), g.Policy, percent(min(got, 1)))
			return
		default:
			j.say("One cache that never evicts would reuse %s of the prompt tokens; %s reused %s of those.",
				percent(share(r.Infinite, r.Prompt)), g.Policy, percent(got))
		}
		if b := j.bound(g); b != nil && float64(b.LRU) < full*reach {
			j.say("Capacity limits it: one pooled cache of all %s blocks would reuse %s of the prompt tokens, and none of that size, whatever it evicts, more than %s; %s reused %s.",
				count(float64(b.Blocks)), percent(share(b.LRU, r.Prompt)), percent(share(b.Reused, r.Prompt)), g.Policy, percent(reused/prompts))
		}
	}
	if causes := lostCauses(g, prompts); len(causes) > 0 {
		j.say("Reuse was lost to: %s.", strings.Join(causes, "; "))
	}
}

// lostWords are what the ledger's causes mean, in the order in which they are named.
var lostWords = []struct{ cause, words string }{
	{"elsewhere", "routing (another replica had it)"},
	{"evicted", "capacity (evicted before, or gone with its replica)"},
	{"evicted_after_prediction", "capacity (evicted between choice and arrival)"},
	{"in_flight", "timing (another request was still computing it)"},
	{"salt", "isolation (it was there under another salt)"},
	{"stale_index", "a stale index (predicted, and not there)"},
}

func lostCauses(g *Group, prompts float64) []string {
	var out []string
	for _, w := range lostWords {
		if s, known := g.Summary["lost."+w.cause]; known && s.Median >= noiseTokens*prompts {
			out = append(out, fmt.Sprintf("%s, %s of the prompt tokens", w.words, percent(s.Median/prompts)))
		}
	}
	return out
}

func (j *judge) bound(g *Group) *Bound {
	for i := range j.report.Reach.Bounds {
		if b := &j.report.Reach.Bounds[i]; b.Blocks == g.KVBlocks*max(1, j.report.Replicas) {
			return b
		}
	}
	return nil
}

// balance says what the choice does to the load.
func (j *judge) balance(g *Group) {
	most, known := g.Summary["load_max_requests"]
	mean := g.Summary["load_mean_requests"]
	if known && j.report.Replicas > 1 && mean.Median > 0 && most.Median > 2*mean.Median {
		j.say("Its load is uneven: the busiest replica served %s requests, the mean one %.1f.", count(most.Median), mean.Median)
	}
}

// capacities says what the sweep shows.
func (j *judge) capacities(usable []*Group, chosen int) {
	var sizes []int
	for _, g := range usable {
		if !slices.Contains(sizes, g.KVBlocks) {
			sizes = append(sizes, g.KVBlocks)
		}
	}
	slices.Sort(sizes)
	var parts []string
	for _, size := range sizes {
		var at []*Group
		for _, g := range usable {
			if g.KVBlocks == size {
				at = append(at, g)
			}
		}
		best := fewest(at)
		parts = append(parts, fmt.Sprintf("%d blocks %s (%s)", size, percent(1-best.mustComputed()/best.prompts()), best.Policy))
	}
	j.verdict.KVBlocks = chosen
	text := fmt.Sprintf("Choose %d blocks per replica: no other size reuses noticeably more, and smaller ones less.", chosen)
	if chosen == sizes[0] {
		text = fmt.Sprintf("Choose %d blocks per replica: more reuse nothing more.", chosen)
	}
	j.say("%s The best of each, reused: %s.", text, strings.Join(parts, ", "))
}

// caveats are what one has to know about the figures whatever they say.
func (j *judge) caveats() {
	r := j.report
	if r.Interrupted {
		j.say("It was interrupted: only what ran to its end counts here.")
	}
	if len(r.Groups) == 0 {
		return
	}
	if r.Target != "" && !r.Cold {
		j.say("The caches were not cleared before: some of the reuse is of what was there already.")
	}
	var held, failed int64
	slow := []string{}
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Runs {
			held += g.Runs[k].Held
			failed += g.Runs[k].Failed
		}
		rate, offered := g.Summary["requests_per_second"].Median, g.Summary["offered_requests_per_second"].Median
		if r.Arrival.Kind != Closed && rate < saturated*offered {
			slow = append(slow, fmt.Sprintf("%s (%.1f answers per second of %.1f asked for)", g.name(r), rate, offered))
		}
	}
	if len(slow) > 0 {
		j.say("Requests came faster than %s could answer: there, TTFT is mostly the queue and says little about what reuse saves.", join(slow))
	}
	if held > 0 {
		j.say("%s requests were sent late because %d were in flight, the bound of this open loop; their wait counts as TTFT.", count(float64(held)), r.Arrival.MaxInFlight)
	}
	if failed > 0 && j.verdict.Pays != PaysUnclear {
		j.say("%s requests failed.", count(float64(failed)))
	}
	if r.Arrival.Kind == Closed && r.Arrival.Concurrency == 1 && r.Replicas > 1 {
		j.say("One client sends one request after another here, so no policy meets load; --concurrency or --rate shows what balancing costs.")
	}
}
