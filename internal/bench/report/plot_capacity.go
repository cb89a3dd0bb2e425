package report

import (
	"fmt"
	"strings"

	"tailor/internal/bench"
)

// capacityChart draws the share of prompt tokens that each policy reuses against the size of
// the caches; only where more than one size ran.
func capacityChart(r *bench.Report) *chart {
	var sizes []float64
	for _, size := range capacities(r) {
		if size > 0 {
			sizes = append(sizes, float64(size))
		}
	}
	if len(sizes) < 2 {
		return nil
	}
	reach, reachKnown := reachable(r)
	high := reach
	type dot struct {
		size float64
		s    bench.Spread
	}
	lines := map[string][]dot{}
	for _, size := range sizes {
		for _, g := range atCapacity(r, int(size)) {
			if s, known := figTokenHitRate.spreadOf(g.Runs); known {
				lines[g.Policy] = append(lines[g.Policy], dot{size, s})
				high = max(high, s.Max)
			}
		}
	}
	var best, lru []dot
	for _, size := range sizes {
		if b, l, known := boundFor(r, int(size)); known {
			best = append(best, dot{size, bench.Spread{Median: b}})
			lru = append(lru, dot{size, bench.Spread{Median: l}})
			high = max(high, b)
		}
	}
	if len(lines) == 0 {
		return nil
	}

	c := &chart{name: "capacity", title: "Prompt tokens reused, by capacity"}
	c.desc = "Lines: share of all prompt tokens reused against the KV blocks of each replica, on a logarithmic axis."
	top := c.heading("share of all prompt tokens, against KV blocks of each replica (log scale)")
	const left, plotHeight = 48.0, 230.0
	bottom := top + 6 + plotHeight
	x := logarithmic(sizes[0]*.93, sizes[len(sizes)-1]*1.07, left, chartWidth-16, 8)
	x.ticks = sizes
	y := linear(min(high, 1), bottom, top+6, 5, false)
	c.xAxis(x, top+6, bottom, func(v float64) string { return countText(v) })
	c.yAxis(y, left, chartWidth-16, axisPercent)

	place := func(dots []dot) (points []point) {
		for _, d := range dots {
			points = append(points, point{x.at(d.size), y.at(d.s.Median)})
		}
		return points
	}
	var items []legendItem
	var desc []string
	if reachKnown {
		note := "reachable, one cache that never evicts: " + percentText(reach)
		desc = append(desc, note)
		c.titled(note, func() { c.line(left, y.at(reach), chartWidth-16, y.at(reach), "reach") })
		items = append(items, legendItem{note, c.across("reach")})
	}
	if len(best) > 0 {
		c.titled("upper bound for the same blocks in one cache", func() { c.path(place(best), "bound", false) })
		c.titled("one LRU cache of the same blocks", func() { c.path(place(lru), "lru", false) })
		items = append(items,
			legendItem{"upper bound for the same blocks in one cache", c.across("bound")},
			legendItem{"one LRU cache of the same blocks", c.across("lru")})
	}
	colour := policyIndex(r)
	for _, policy := range policies(r) {
		i := colour[policy]
		dots := lines[policy]
		if len(dots) == 0 {
			continue
		}
		class := seriesClass(i)
		if policy == r.Verdict.Policy {
			class += " chosen"
		}
		var parts []string
		for _, d := range dots {
			parts = append(parts, fmt.Sprintf("%s at %s blocks", rangeText(d.s, percentText), countText(d.size)))
		}
		note := policy + ": " + strings.Join(parts, ", ")
		desc = append(desc, note)
		c.titled(note, func() {
			for _, d := range dots {
				c.upWhisker(x.at(d.size), y.at(d.s.Min), y.at(d.s.Max))
			}
			points := place(dots)
			c.path(points, class, false)
			for _, p := range points {
				c.marker(p, i, fillClass(i))
			}
		})
		items = append(items, legendItem{shortened(policy, labelRunes), func(x, y float64) {
			c.across(class)(x, y)
			c.marker(point{x + 9, y}, i, fillClass(i))
		}})
	}
	c.height = c.legend(items, 8, bottom+36) + 2
	c.desc += " " + strings.Join(desc, "; ") + "."
	return c
}

// upWhisker draws an error bar along y at x.
func (c *chart) upWhisker(x, y1, y2 float64) {
	if y1-y2 < 1 {
		return
	}
	c.line(x, y1, x, y2, "whisker")
	c.line(x-3, y1, x+3, y1, "whisker")
	c.line(x-3, y2, x+3, y2, "whisker")
}
