package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// difference is what two groups' computed tokens say.
type difference int

const (
	same        difference = iota // below the noise
	overlapping                   // above it, but repeated runs of the two overlap
	different
)

// differ compares what two groups computed.
func differ(a, b *Group) difference {
	x, y := a.Summary["tokens_computed"], b.Summary["tokens_computed"]
	switch {
	case math.Abs(x.Median-y.Median) < noiseTokens*max(a.prompts(), b.prompts()):
		return same
	case overlap(a, b, x, y):
		return overlapping
	}
	return different
}

// timesDiffer tells whether a time is more than noise apart.
func timesDiffer(a, b *Group, name string) bool {
	x, y := a.Summary[name], b.Summary[name]
	if len(a.Runs) > 1 && len(b.Runs) > 1 {
		return !overlap(a, b, x, y)
	}
	return math.Abs(x.Median-y.Median) >= noiseTime*max(x.Median, y.Median)
}

// overlap tells whether the ranges of repeated runs do. Single runs have none.
func overlap(a, b *Group, x, y Spread) bool {
	return (len(a.Runs) > 1 || len(b.Runs) > 1) && x.Min <= y.Max && y.Min <= x.Max
}

func (g *Group) computed() (median float64, known bool) {
	s, known := g.Summary["tokens_computed"]
	return s.Median, known
}

// mustComputed is for groups that are known to have counted.
func (g *Group) mustComputed() float64 { return g.Summary["tokens_computed"].Median }

func (g *Group) prompts() float64 { return g.Summary["prompt_tokens"].Median }

func (g *Group) failedShare() float64 {
	var failed, requests int64
	for i := range g.Runs {
		failed += g.Runs[i].Failed
		requests += g.Runs[i].Requests
	}
	return share(failed, requests)
}

// fewest is the group that computed least; the first of equals.
func fewest(groups []*Group) *Group {
	best := groups[0]
	for _, g := range groups[1:] {
		if g.mustComputed() < best.mustComputed() {
			best = g
		}
	}
	return best
}

func most(groups []*Group) *Group {
	worst := groups[0]
	for _, g := range groups[1:] {
		if g.mustComputed() > worst.mustComputed() {
			worst = g
		}
	}
	return worst
}

// chosenOf is, of those that compute least within the noise, the one whose busiest replica
// has least to do; of equals, the one that comes first in prefixAware.
func chosenOf(groups []*Group) *Group {
	best := fewest(groups)
	var chosen *Group
	for _, name := range prefixAware {
		for _, g := range groups {
			if g.Policy != name || differ(g, best) != same {
				continue
			}
			if chosen == nil || g.Summary["load_max_requests"].Median < chosen.Summary["load_max_requests"].Median {
				chosen = g
			}
		}
	}
	return chosen
}

// ties names those that compute as little as the chosen one.
func ties(chosen *Group, groups []*Group) string {
	var others []string
	for _, g := range groups {
		if g != chosen && differ(g, chosen) == same {
			others = append(others, g.Policy)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return "; " + join(others) + " computed as little, within the noise"
}

func policyNames(groups []*Group) []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.Policy)
	}
	return names
}

func join(names []string) string {
	switch n := len(names); n {
	case 0:
		return ""
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// share of the whole; 0 of nothing.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// count writes a whole number with thousands separators.
func count(n float64) string {
	s := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return sign + s
}

// seconds writes a time in the unit that suits it.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.1f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}
