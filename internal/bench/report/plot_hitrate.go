package report

import (
	"fmt"
	"strings"

	"tailor/internal/bench"
)

// hitRateChart draws each policy's hit rate of tokens as a bar, by capacity, against what one
// cache without end would reach and, for the capacity, what one cache can.
func hitRateChart(r *bench.Report) *chart {
	if len(r.Groups) == 0 {
		return nil
	}
	c := &chart{name: "hit-rate", title: "Prompt tokens reused, by policy"}
	c.desc = "Bars: share of all prompt tokens whose keys and values came from a cache."
	below := "share of all prompt tokens"
	if repeated(r) {
		below += "; thin lines span the repeated runs"
	}
	top := c.heading(below)

	reach, reachKnown := reachable(r)
	high := reach
	sizes := capacities(r)
	for _, size := range sizes {
		best, _, _ := boundFor(r, size)
		high = max(high, best)
	}
	for i := range r.Groups {
		if s, known := figTokenHitRate.spreadOf(r.Groups[i].Runs); known {
			high = max(high, s.Max)
		}
	}
	const valueRoom, rowHeight = 62.0, 22.0
	left := labelWidth(policies(r))
	x := linear(min(high, 1), left, chartWidth-valueRoom, 5, false)
	colour := policyIndex(r)
	ticksFrom := c.marks.Len() // the grid is put here once its height is known

	var desc []string
	y := top + 2
	anyBound := false
	var axis [][2]float64 // from and to, interrupted by headings
	for _, size := range sizes {
		if len(sizes) > 1 {
			c.text(8, y+13, "strong", capacityText(size))
			y += 20
		}
		begin := y
		for _, g := range atCapacity(r, size) {
			s, known := figTokenHitRate.spreadOf(g.Runs)
			label := unknown
			if known {
				label = rangeText(s, percentText)
			}
			desc = append(desc, fmt.Sprintf("%s, %s: %s", g.Policy, capacityText(size), label))
			c.titled(desc[len(desc)-1], func() {
				c.text(left-8, y+15, "end", shortened(g.Policy, labelRunes))
				if !known {
					c.text(left+6, y+15, "soft", unknown)
					return
				}
				c.rect(left, y+4, x.at(s.Median)-left, 14, "bar "+fillClass(colour[g.Policy]))
				c.whisker(x.at(s.Min), x.at(s.Max), y+11)
				c.text(chartWidth-8, y+15, "end", percentText(s.Median))
			})
			y += rowHeight
		}
		axis = append(axis, [2]float64{begin, y})
		if best, lru, known := boundFor(r, size); known {
			anyBound = true
			note := fmt.Sprintf("%s together: at best %s, one LRU cache %s", capacityText(size), percentText(best), percentText(lru))
			desc = append(desc, note)
			c.titled(note, func() {
				c.line(x.at(lru), begin, x.at(lru), y, "lru")
				c.line(x.at(best), begin, x.at(best), y, "bound")
			})
		}
		y += 6
	}
	bottom := y
	if reachKnown {
		note := "reachable with one cache that never evicts: " + percentText(reach)
		desc = append(desc, note)
		c.titled(note, func() { c.line(x.at(reach), top, x.at(reach), bottom, "reach") })
	}
	c.under(ticksFrom, func() {
		c.xAxis(x, top, bottom, axisPercent)
		for _, part := range axis {
			c.line(left, part[0], left, part[1], "axis")
		}
	})
	y = bottom + 34
	if reachKnown {
		items := []legendItem{{"reachable, one cache that never evicts: " + percentText(reach), c.upright("reach")}}
		if anyBound {
			items = append(items,
				legendItem{"upper bound for the same blocks in one cache", c.upright("bound")},
				legendItem{"one LRU cache of the same blocks", c.upright("lru")})
		}
		y = c.legend(items, 8, y)
	}
	c.height = y + 2
	c.desc += " " + strings.Join(desc, "; ") + "."
	return c
}

// upright is a legend's mark for a vertical line.
func (c *chart) upright(class string) func(x, y float64) {
	return func(x, y float64) { c.line(x+9, y-7, x+9, y+7, class) }
}

// across is a legend's mark for a line.
func (c *chart) across(class string) func(x, y float64) {
	return func(x, y float64) { c.path([]point{{x, y}, {x + 18, y}}, class, false) }
}

// patch is a legend's mark for an area.
func (c *chart) patch(class string) func(x, y float64) {
	return func(x, y float64) { c.rect(x+2, y-6, 14, 12, class) }
}

// under puts what draw draws below everything that was drawn since the mark, a length of
// c.marks: a grid can only be drawn when the drawing's size is known.
func (c *chart) under(mark int, draw func()) {
	above := append([]byte(nil), c.marks.Bytes()[mark:]...)
	c.marks.Truncate(mark)
	draw()
	c.marks.Write(above)
}
