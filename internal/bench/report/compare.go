package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tailor/internal/bench"
)

// Comparison is how report B differs from report A.
type Comparison struct {
	A, B Side
	// Warnings say what else differs than what was meant to, and what that does to the
	// figures.
	Warnings []string
	// Groups are the policies and capacities that ran in both, in A's order.
	Groups []GroupChange
	// OnlyA and OnlyB name what ran in one of them only.
	OnlyA, OnlyB []string
}

// Side is where and when one of the reports was made.
type Side struct {
	Machine bench.Machine
	Version string
	Created string // RFC 3339, UTC; empty if unknown
	Command string
}

// GroupChange is how the figures of one policy with one capacity changed.
type GroupChange struct {
	Policy   string
	KVBlocks int
	Figures  []Change
}

// Noise says whether a change is more than what runs differ by anyway.
type Noise string

const (
	// Same: the figures are equal.
	Same Noise = "the same"
	// WithinNoise: the ranges of the repeated runs overlap.
	WithinNoise Noise = "within the noise"
	// BeyondNoise: they do not, and either they would seldom do so by chance, or in each report
	// all runs gave one figure.
	BeyondNoise Noise = "beyond the noise"
	// FewRuns: they do not, but so few runs often lie apart by chance.
	FewRuns Noise = "apart, of few runs"
	// NoiseUnknown: both ran once, so nobody can tell.
	NoiseUnknown Noise = "noise unknown"
)

// Change is how one figure changed.
type Change struct {
	Figure string // its name in the JSON form
	Label  string
	A, B   bench.Spread
	// KnownA and KnownB tell whether anybody counted it; unless both, nothing below is set.
	KnownA, KnownB bool
	// Relative is B's median over A's less 1; it is 0 where A's is 0.
	Relative float64
	Noise    Noise
	// Chance is how often the ranges of so many runs of the same thing lie apart.
	Chance float64
	// Better is, beyond the noise, +1 where B's is the better figure and -1 where A's is;
	// else 0.
	Better int

	figure *figure
}

// comparedFigures are those that a comparison shows.
func comparedFigures() []*figure {
	return []*figure{
		&figComputed, &figTokenHitRate, &figRequestHitRate, &figEvicted, &figFailed, &figImbalance,
		&figPrefillCPU, &ttftFigures[0], &ttftFigures[2], &tpotFigures[0], &e2eFigures[0], &e2eFigures[2], &figRate, &figGoodput,
	}
}

// Compare sets report b against report a. Reports of different workloads are refused with
// an error that wraps [ErrWorkloads] and names the differences: a change of tokens computed
// would then be one of what was asked, and no figure has a meaning that a warning could
// save. Everything else may differ, since that is what comparisons are made for: replicas,
// capacity, arrival, version, machine; it is named in Warnings.
func Compare(a, b *bench.Report) (*Comparison, error) {
	if differences := workloadDifferences(&a.Workload, &b.Workload); len(differences) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrWorkloads, strings.Join(differences, "; "))
	}
	c := &Comparison{A: sideOf(a), B: sideOf(b), Warnings: warnings(a, b)}
	type key struct {
		policy string
		blocks int
	}
	in := map[key]*bench.Group{}
	for i := range b.Groups {
		g := &b.Groups[i]
		if k := (key{g.Policy, g.KVBlocks}); in[k] == nil {
			in[k] = g
		}
	}
	seen := map[key]bool{}
	for i := range a.Groups {
		g := &a.Groups[i]
		k := key{g.Policy, g.KVBlocks}
		if seen[k] {
			continue
		}
		seen[k] = true
		other := in[k]
		if other == nil {
			c.OnlyA = append(c.OnlyA, groupName(g))
			continue
		}
		change := GroupChange{Policy: g.Policy, KVBlocks: g.KVBlocks}
		for _, f := range comparedFigures() {
			if f == &figGoodput && a.SLO == (bench.SLO{}) && b.SLO == (bench.SLO{}) {
				continue // then it is the rate
			}
			change.Figures = append(change.Figures, f.change(g.Runs, other.Runs))
		}
		c.Groups = append(c.Groups, change)
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		if k := (key{g.Policy, g.KVBlocks}); !seen[k] {
			seen[k] = true
			c.OnlyB = append(c.OnlyB, groupName(g))
		}
	}
	return c, nil
}

func (f *figure) change(a, b []bench.Run) Change {
	c := Change{Figure: f.name, Label: f.label, figure: f}
	c.A, c.KnownA = f.spreadOf(a)
	c.B, c.KnownB = f.spreadOf(b)
	if !c.KnownA || !c.KnownB {
		return c
	}
	if c.A.Median != 0 {
		c.Relative = c.B.Median/c.A.Median - 1
	}
	c.Chance = chanceApart(len(a), len(b))
	exact := len(a) > 1 && len(b) > 1 && c.A.Min == c.A.Max && c.B.Min == c.B.Max
	switch {
	case c.A == c.B:
		c.Noise = Same
	case len(a) < 2 && len(b) < 2:
		c.Noise = NoiseUnknown
	case c.A.Min <= c.B.Max && c.B.Min <= c.A.Max:
		c.Noise = WithinNoise
	case !exact && c.Chance > seldom:
		c.Noise = FewRuns
	case c.B.Median > c.A.Median:
		c.Noise, c.Better = BeyondNoise, f.better
	default:
		c.Noise, c.Better = BeyondNoise, -f.better
	}
	return c
}

// seldom is the largest Chance that a difference may have to be called one. Four runs each
// have .029, three have .1.
const seldom = .05

// chanceApart is the probability that the ranges of n and m draws from one distribution do
// not overlap: all of one sort come before all of the other in 2 of the (n+m)!/(n! m!) equally
// likely orders.
func chanceApart(n, m int) float64 {
	chance := 2.0
	for i := 1; i <= n; i++ {
		chance *= float64(i) / float64(m+i)
	}
	return min(chance, 1)
}

func sideOf(r *bench.Report) Side {
	s := Side{Machine: r.Machine, Version: r.Version, Command: commandText(r.Command)}
	if !r.Created.IsZero() {
		s.Created = r.Created.UTC().Format("2006-01-02T15:04:05Z")
	}
	return s
}

func groupName(g *bench.Group) string { return g.Policy + " with " + capacityText(g.KVBlocks) }

// workloadDifferences tells two workloads apart. A number of prompt tokens that one of them
// does not know is not a difference.
func workloadDifferences(a, b *bench.WorkloadReport) (list []string) {
	differ := func(what string, a, b any) {
		if a != b {
			list = append(list, fmt.Sprintf("%s %v and %v", what, a, b))
		}
	}
	differ("name", a.Name, b.Name)
	differ("seed", a.Seed, b.Seed)
	names := map[string]bool{}
	for name := range a.Parameters {
		names[name] = true
	}
	for name := range b.Parameters {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, inA := a.Parameters[name]
		y, inB := b.Parameters[name]
		if inA != inB || x != y {
			differ(name, present(x, inA), present(y, inB))
		}
	}
	differ("requests", a.Requests, b.Requests)
	if a.PromptTokens > 0 && b.PromptTokens > 0 {
		differ("prompt tokens", a.PromptTokens, b.PromptTokens)
	}
	return list
}

func present(value string, is bool) string {
	if !is {
		return "(none)"
	}
	return fmt.Sprintf("%q", value)
}

// settingNames are those of the reports' settings, in order.
func settingNames(reports ...*bench.Report) []string {
	names := map[string]bool{}
	for _, r := range reports {
		for name := range r.Settings {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func settingText(r *bench.Report, name string) string {
	if value, ok := r.Settings[name]; ok {
		return value
	}
	return "unknown"
}

// warnings name what differs between two reports of one workload.
func warnings(a, b *bench.Report) (list []string) {
	differ := func(what string, a, b any, effect string) {
		if a != b {
			list = append(list, fmt.Sprintf("%s: %v in A, %v in B; %s", what, a, b, effect))
		}
	}
	if a.Machine != b.Machine {
		list = append(list, "the machines differ: times compare the machines too, counts of tokens do not")
	}
	differ("model", a.Model, b.Model, "all figures compare the models too")
	differ("replicas", number(a.Replicas, a.Replicas > 0), number(b.Replicas, b.Replicas > 0), "all figures compare that too")
	differ("threads of a replica", a.Threads, b.Threads, "times compare that too")
	differ("tokens in a KV block", a.BlockTokens, b.BlockTokens, "a capacity of as many blocks is another one")
	for _, name := range settingNames(a, b) {
		differ(name, settingText(a, name), settingText(b, name), "all figures compare that too")
	}
	differ("arrival", arrivalText(a.Arrival), arrivalText(b.Arrival), "times and in-flight reuse compare that too")
	differ("objective", sloText(a.SLO), sloText(b.SLO), "goodput means another thing")
	differ("target", a.Target, b.Target, "not the same servers")
	differ("caches emptied before each run", a.Cold, b.Cold, "what was in them counts as reuse")
	if x, y := promptsHash(a), promptsHash(b); x != "" && y != "" && x != y {
		list = append(list, "the prompts were not the same bytes in both: where turns contain the model's answers, those differed")
	}
	for _, side := range []struct {
		name   string
		report *bench.Report
	}{{"A", a}, {"B", b}} {
		if side.report.Interrupted {
			list = append(list, side.name+" was interrupted and may lack groups or runs")
		}
		if problems := side.report.Problems(); len(problems) > 0 {
			list = append(list, side.name+"'s counts contradict each other: "+problems[0])
		}
	}
	return list
}

// promptsHash is what all of a report's runs were asked, if they agree on it.
func promptsHash(r *bench.Report) string {
	hash := ""
	for i := range r.Groups {
		for j := range r.Groups[i].Runs {
			switch h := r.Groups[i].Runs[j].Prompts; {
			case hash == "":
				hash = h
			case h != hash:
				return ""
			}
		}
	}
	return hash
}
