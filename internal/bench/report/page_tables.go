package report

import (
	"html/template"
	"slices"

	"tailor/internal/bench"
)

// table is one table of the page.
type table struct {
	Title   string
	Columns []string
	Rows    []tableRow
	Key     string
	Plots   []template.HTML // shown after it
}

// tableRow is a group's cells, or where Capacity is set a heading over Span columns.
type tableRow struct {
	Capacity string
	Span     int
	Policy   string
	Chosen   bool
	Cells    []tableCell
}

type tableCell struct {
	Text, Range string
	Unknown     bool
}

// column is a table column: its heading and what it says of a group.
type column struct {
	heading string
	cell    func(*bench.Group) tableCell
}

func tablesOf(r *bench.Report) []table {
	if len(r.Groups) == 0 {
		return nil
	}
	tables := []table{tableOf(r, "Result", summaryColumns(r), "")}
	if slices.ContainsFunc(r.Groups, func(g bench.Group) bool {
		_, known := e2eFigures[0].spreadOf(g.Runs)
		return known
	}) {
		var columns []column
		for _, list := range [][]figure{ttftFigures, tpotFigures, e2eFigures} {
			for i := range list {
				columns = append(columns, figureColumn(&list[i], list[i].label))
			}
		}
		tables = append(tables, tableOf(r, "Times", columns, "TTFT: time to first token; TPOT: time per output token after the first; E2E: whole answer."))
	}
	median := ""
	if repeated(r) {
		median = "Of the run with the median number of computed tokens."
	}
	if columns := lostColumns(r); len(columns) > 0 {
		tables = append(tables, tableOf(r, "Computed prompt tokens by cause", columns, median))
	}
	if columns := costColumns(r); len(columns) > 0 {
		tables = append(tables, tableOf(r, "Expected cost of a request’s prefill", columns,
			"E = h·c_s + (1−h)·(c_p + c_s): h is the hit rate of requests, c_p and c_s the CPU time of a prefix and of a suffix. "+median))
	}
	return tables
}

// tableOf lays out one row a group, under a heading for each capacity where there are several.
func tableOf(r *bench.Report, title string, columns []column, key string) table {
	t := table{Title: title, Key: key, Columns: []string{"policy"}}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.heading)
	}
	sizes := capacities(r)
	for _, size := range sizes {
		if len(sizes) > 1 {
			t.Rows = append(t.Rows, tableRow{Capacity: capacityText(size), Span: len(columns) + 1})
		}
		for _, g := range atCapacity(r, size) {
			row := tableRow{Policy: g.Policy, Chosen: g.Policy == r.Verdict.Policy && (r.Verdict.KVBlocks == 0 || g.KVBlocks == r.Verdict.KVBlocks)}
			for _, c := range columns {
				row.Cells = append(row.Cells, c.cell(g))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func unknownCell() tableCell { return tableCell{Text: unknown, Unknown: true} }

func figureColumn(f *figure, heading string) column {
	return column{heading, func(g *bench.Group) tableCell {
		s, known := f.spreadOf(g.Runs)
		if !known {
			return unknownCell()
		}
		return tableCell{Text: f.text(s.Median), Range: betweenText(s, f.text)}
	}}
}

// summaryColumns are those of the first table. What was offered, goodput and failures have
// one only where they say something.
func summaryColumns(r *bench.Report) []column {
	columns := []column{
		figureColumn(&figComputed, "computed tokens"),
		figureColumn(&figTokenHitRate, "hit rate of tokens"),
	}
	if reach, known := reachable(r); known && reach > 0 && r.Reach.Unit == bench.Tokens {
		columns = append(columns, column{"of the reachable", func(g *bench.Group) tableCell {
			s, known := figTokenHitRate.spreadOf(g.Runs)
			if !known {
				return unknownCell()
			}
			return tableCell{Text: percentText(s.Median / reach)}
		}})
	}
	columns = append(columns,
		figureColumn(&figRequestHitRate, "hit rate of requests"),
		figureColumn(&figPrefillCPU, "prefill CPU"),
		figureColumn(&ttftFigures[0], "TTFT p50"),
	)
	if r.Arrival.Kind != bench.Closed {
		columns = append(columns, figureColumn(&figOffered, "due per second"))
	}
	columns = append(columns, figureColumn(&figRate, "answers per second"))
	if r.SLO.TTFT > 0 || r.SLO.TPOT > 0 {
		columns = append(columns, figureColumn(&figGoodput, "goodput per second"))
	}
	columns = append(columns,
		figureColumn(&figImbalance, "load max/mean"),
		figureColumn(&figEvicted, "blocks evicted"),
	)
	if slices.ContainsFunc(r.Groups, func(g bench.Group) bool {
		s, known := figFailed.spreadOf(g.Runs)
		return known && s.Max > 0
	}) {
		columns = append(columns, figureColumn(&figFailed, "requests failed"))
	}
	return columns
}

// lostColumns has one column for each cause that occurred.
func lostColumns(r *bench.Report) (columns []column) {
	var used []cause
	for i := range r.Groups {
		if run := typicalRun(&r.Groups[i]); run != nil {
			by, _ := lostBy(run)
			for _, l := range by {
				if !slices.Contains(used, l.cause) {
					used = append(used, l.cause)
				}
			}
		}
	}
	slices.SortStableFunc(used, func(a, b cause) int { return stackOrder(a) - stackOrder(b) })
	for _, c := range used {
		columns = append(columns, column{c.label, func(g *bench.Group) tableCell {
			run := typicalRun(g)
			if run == nil {
				return unknownCell()
			}
			by, ok := lostBy(run)
			if !ok {
				return unknownCell()
			}
			tokens := 0.0
			for _, l := range by {
				if l.cause == c {
					tokens = l.tokens
				}
			}
			return tableCell{Text: countText(tokens)}
		}})
	}
	return columns
}

func costColumns(r *bench.Report) []column {
	cost := func(g *bench.Group) *bench.Cost {
		if run := typicalRun(g); run != nil {
			return run.Cost
		}
		return nil
	}
	if !slices.ContainsFunc(r.Groups, func(g bench.Group) bool { return cost(&g) != nil }) {
		return nil
	}
	of := func(heading string, text func(*bench.Cost) string) column {
		return column{heading, func(g *bench.Group) tableCell {
			c := cost(g)
			if c == nil {
				return unknownCell()
			}
			return tableCell{Text: text(c)}
		}}
	}
	return []column{
		of("h", func(c *bench.Cost) string { return decimalText(c.HitRate, 3) }),
		of("c_p", func(c *bench.Cost) string { return secondsText(c.Prefix) }),
		of("c_s", func(c *bench.Cost) string { return secondsText(c.Suffix) }),
		of("E predicted", func(c *bench.Cost) string { return secondsText(c.Predicted) }),
		of("measured", func(c *bench.Cost) string { return secondsText(c.Measured) }),
		of("deviation", func(c *bench.Cost) string {
			if !(c.Measured > 0) {
				return unknown
			}
			return signedPercent(c.Predicted/c.Measured - 1)
		}),
	}
}

// signedPercent writes a change: +3.1 % or −12.0 %.
func signedPercent(change float64) string {
	if !isFinite(change) {
		return unknown
	}
	text := percentText(change)
	switch {
	case text[0] == '-' && text != "-0.0 %":
		return "−" + text[1:]
	case text == "0.0 %" || text == "-0.0 %":
		return "0.0 %"
	}
	return "+" + text
}
