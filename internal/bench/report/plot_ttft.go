package report

import (
	"fmt"
	"strings"

	"tailor/internal/bench"
)

// curve is the distribution of TTFT of one policy: at each of its points the share of
// requests, and the median and extremes over the runs of the seconds that share waited at
// most.
type curve struct {
	policy string
	spread []bench.Spread
}

// curveOf is false where no run has one.
func curveOf(g *bench.Group) (curve, bool) {
	n := 0
	for i := range g.Runs {
		n = max(n, len(g.Runs[i].TTFTCurve))
	}
	k := curve{policy: g.Policy}
	for i := range n {
		var values []float64
		for j := range g.Runs {
			if t := g.Runs[j].TTFTCurve; len(t) == n && isFinite(t[i]) && t[i] > 0 {
				values = append(values, t[i])
			}
		}
		s, known := spreadOf(values)
		if !known {
			return k, false
		}
		k.spread = append(k.spread, s)
	}
	return k, n > 1
}

// ttftChart draws, for one capacity, which share of requests had their first token after
// which time.
func ttftChart(r *bench.Report) *chart {
	size := shownCapacity(r)
	var curves []curve
	low, high := 0.0, 0.0
	repeated := false
	for _, g := range atCapacity(r, size) {
		k, ok := curveOf(g)
		if !ok {
			continue
		}
		curves = append(curves, k)
		for _, s := range k.spread {
			if low == 0 || s.Min < low {
				low = s.Min
			}
			high = max(high, s.Max)
			repeated = repeated || s.Min < s.Max
		}
	}
	if len(curves) == 0 {
		return nil
	}
	c := &chart{name: "ttft", title: "Time to first token"}
	c.desc = "Lines: share of requests whose first token came within the time on the x axis, which is logarithmic."
	below := "share of requests answered within a time (log scale)"
	if len(capacities(r)) > 1 {
		below = "share of requests; " + capacityText(size)
	}
	if repeated {
		below += "; shaded: all runs"
	}
	top := c.heading(below)
	const left, plotHeight = 48.0, 210.0
	bottom := top + 6 + plotHeight
	if slo := r.SLO.TTFT; isFinite(slo) && slo > 0 {
		low, high = min(low, slo), max(high, slo)
	}
	x := logarithmic(low, high, left, chartWidth-16, 8)
	y := &scale{low: 0, high: 1, from: bottom, to: top + 6, ticks: []float64{0, .25, .5, .75, 1}}
	c.xAxis(x, top+6, bottom, secondsTick)
	c.yAxis(y, left, chartWidth-16, axisPercent)
	if slo := r.SLO.TTFT; isFinite(slo) && slo > 0 {
		c.titled("objective: first token within "+secondsText(slo), func() {
			c.line(x.at(slo), top+6, x.at(slo), bottom, "bound")
		})
	}

	colour := policyIndex(r)
	at := func(k *curve, i int, v float64) point {
		return point{x.at(v), y.at(float64(i) / float64(len(k.spread)-1))}
	}
	var desc []string
	var items []legendItem
	for i := range curves {
		k := &curves[i]
		var around, middle []point
		for i, s := range k.spread {
			middle = append(middle, at(k, i, s.Median))
			around = append(around, at(k, i, s.Min))
		}
		for i := len(k.spread) - 1; i >= 0; i-- {
			around = append(around, at(k, i, k.spread[i].Max))
		}
		half := k.spread[(len(k.spread)-1)/2]
		note := fmt.Sprintf("%s: half of the requests within %s", k.policy, rangeText(half, secondsText))
		desc = append(desc, note)
		class := seriesClass(colour[k.policy])
		if k.policy == r.Verdict.Policy {
			class += " chosen"
		}
		c.titled(note, func() {
			if repeated {
				c.path(around, "band "+fillClass(colour[k.policy]), true)
			}
			c.path(middle, class, false)
		})
		items = append(items, legendItem{shortened(k.policy, labelRunes), c.across(class)})
	}
	if slo := r.SLO.TTFT; isFinite(slo) && slo > 0 {
		items = append(items, legendItem{"objective " + secondsText(slo), c.upright("bound")})
	}
	c.height = c.legend(items, 8, bottom+34) + 2
	c.desc += " " + strings.Join(desc, "; ") + "."
	return c
}

// secondsTick writes an axis value without zeros behind the point.
func secondsTick(v float64) string {
	text := secondsText(v)
	number, unit, _ := strings.Cut(text, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number + " " + unit
}
