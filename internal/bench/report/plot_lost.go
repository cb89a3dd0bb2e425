package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tailor/internal/bench"
)

// cause is why a prompt token was computed and not reused.
type cause struct {
	name  string // in the router's ledger
	label string
	class string // of its area
}

// causes are those that the router's ledger knows, in the order in which they are stacked:
// first what no cache could have helped.
var causes = []cause{
	{"cold", "new, or in no full block", "quiet"},
	{"elsewhere", "cached on another replica", "f1"},
	{"evicted", "evicted everywhere", "f0"},
	{"evicted_after_prediction", "evicted on the way", "f5"},
	{"in_flight", "being computed just then", "f4"},
	{"salt", "cached under another salt", "f3"},
	{"stale_index", "the index was wrong", "f2"},
}

// unexplained is what was computed and is in no ledger row.
var unexplained = cause{"", "not in the ledger", "hollow"}

// lostBy are the computed tokens of a run by cause, with those that nobody explained last;
// ok is false where there is no ledger.
func lostBy(r *bench.Run) (by []lostShare, ok bool) {
	if !r.Known("lost") || len(r.Lost) == 0 {
		return nil, false
	}
	known := map[string]bool{}
	sum := 0.0
	add := func(c cause, tokens int64) {
		known[c.name] = true
		if tokens > 0 {
			by = append(by, lostShare{c, float64(tokens)})
			sum += float64(tokens)
		}
	}
	for _, c := range causes {
		add(c, r.Lost[c.name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Lost)) {
		if !known[name] {
			add(cause{name, name, fillClass(6)}, r.Lost[name])
		}
	}
	if rest := float64(r.Computed) - sum; rest >= 1 {
		by = append(by, lostShare{unexplained, rest})
	}
	return by, true
}

type lostShare struct {
	cause
	tokens float64
}

// lostChart stacks each policy's computed prompt tokens by the cause why they were not reused.
func lostChart(r *bench.Report) *chart {
	type row struct {
		group *bench.Group
		by    []lostShare
		sum   float64
	}
	var rows []row
	var used []cause
	high := 0.0
	sizes := capacities(r)
	for _, size := range sizes {
		for _, g := range atCapacity(r, size) {
			run := typicalRun(g)
			if run == nil {
				continue
			}
			by, ok := lostBy(run)
			if !ok {
				continue
			}
			sum := 0.0
			for _, l := range by {
				sum += l.tokens
				if !slices.Contains(used, l.cause) {
					used = append(used, l.cause)
				}
			}
			rows = append(rows, row{g, by, sum})
			high = max(high, sum)
		}
	}
	if len(rows) == 0 || high == 0 {
		return nil
	}
	c := &chart{name: "lost-reuse", title: "Prompt tokens computed, by cause"}
	c.desc = "Stacked bars: computed prompt tokens by the cause why they were not reused, from the router's ledger."
	below := "prompt tokens, from the router's ledger"
	if repeated(r) {
		below += "; of the median run"
	}
	top := c.heading(below)

	const valueRoom, rowHeight = 86.0, 22.0
	left := labelWidth(policies(r))
	x := linear(high, left, chartWidth-valueRoom, 4, true)
	mark := c.marks.Len()
	var desc []string
	var axis [][2]float64 // from and to, interrupted by headings
	y, size := top+2, -1
	for _, row := range rows {
		g := row.group
		if len(sizes) > 1 && g.KVBlocks != size {
			if size >= 0 {
				y += 6
			}
			size = g.KVBlocks
			c.text(8, y+13, "strong", capacityText(size))
			y += 20
		}
		axis = append(axis, [2]float64{y, y + rowHeight})
		c.text(left-8, y+15, "end", shortened(g.Policy, labelRunes))
		var parts []string
		sum := 0.0
		for _, l := range row.by {
			note := fmt.Sprintf("%s: %s", l.label, countText(l.tokens))
			parts = append(parts, note)
			from, to := x.at(sum), x.at(sum+l.tokens)
			sum += l.tokens
			c.titled(g.Policy+", "+note, func() { c.rect(from, y+4, max(to-from-.7, .3), 14, l.class) })
		}
		c.text(chartWidth-8, y+15, "end", countText(row.sum))
		desc = append(desc, fmt.Sprintf("%s, %s: %s", g.Policy, capacityText(g.KVBlocks), strings.Join(parts, ", ")))
		y += rowHeight
	}
	bottom := y + 4
	c.under(mark, func() {
		c.xAxis(x, top, bottom, shortCount)
		for _, part := range axis {
			c.line(left, part[0], left, part[1], "axis")
		}
	})
	slices.SortStableFunc(used, func(a, b cause) int { return stackOrder(a) - stackOrder(b) })
	var items []legendItem
	for _, cause := range used {
		items = append(items, legendItem{cause.label, c.patch(cause.class)})
	}
	c.height = c.legend(items, 8, bottom+34) + 2
	c.desc += " " + strings.Join(desc, "; ") + "."
	return c
}

// stackOrder is the place of a cause in a bar.
func stackOrder(c cause) int {
	if i := slices.Index(causes, c); i >= 0 {
		return i
	}
	if c == unexplained {
		return len(causes) + 1
	}
	return len(causes)
}

// shortCount writes a number for an axis: 20k, 1.5M.
func shortCount(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= 10*unit.size || v >= unit.size && v/unit.size == float64(int(v/unit.size)) {
			return decimalText(v/unit.size, 0) + unit.name
		}
		if v >= unit.size {
			return decimalText(v/unit.size, 1) + unit.name
		}
	}
	return countText(v)
}
