package report

import (
	"fmt"
	"math"
	"strings"

	"tailor/internal/bench"
)

const (
	// loadBins is how many stretches of time a load line has at most, each the mean of its
	// samples: finer than that, lines that jump by whole requests hide each other.
	loadBins = 80
	// loadColours is how many replicas are told apart by colour; with more of them only the
	// busiest is.
	loadColours = 7
)

// loadLine is one replica's mean requests in flight over stretches of equal length.
type loadLine struct {
	replica  string
	requests int64
	seconds  float64 // the whole time
	mean     []float64
}

func loadLineOf(s *bench.LoadSeries) (loadLine, bool) {
	n := len(s.InFlight)
	if n == 0 || !isFinite(s.Step) || s.Step <= 0 {
		return loadLine{}, false
	}
	l := loadLine{replica: s.Replica, requests: s.Requests, seconds: min(s.Step*float64(n), 1e12)}
	bins := min(n, loadBins)
	for i := range bins {
		from, to := i*n/bins, (i+1)*n/bins
		sum := 0.0
		for _, v := range s.InFlight[from:to] {
			sum += float64(max(0, v))
		}
		l.mean = append(l.mean, sum/float64(to-from))
	}
	return l, true
}

// loadChart draws, for one capacity, each policy's requests in flight on every replica over time.
func loadChart(r *bench.Report) *chart {
	type panel struct {
		policy string
		run    *bench.Run
		lines  []loadLine
	}
	var panels []panel
	seconds, high, most := 0.0, 0.0, 0
	size := shownCapacity(r)
	for _, g := range atCapacity(r, size) {
		run := typicalRun(g)
		if run == nil || !run.Known("load") {
			continue
		}
		p := panel{policy: g.Policy, run: run}
		for i := range run.Load {
			l, ok := loadLineOf(&run.Load[i])
			if !ok {
				continue
			}
			p.lines = append(p.lines, l)
			seconds = max(seconds, l.seconds)
			for _, v := range l.mean {
				high = max(high, v)
			}
		}
		if len(p.lines) > 0 {
			panels = append(panels, p)
			most = max(most, len(p.lines))
		}
	}
	if len(panels) == 0 {
		return nil
	}
	c := &chart{name: "load", title: "Requests in flight on each replica"}
	c.desc = "One panel a policy, one line a replica: requests in flight over the time of the run."
	below := "over the run's time; ×: the busiest served, against the mean"
	if len(capacities(r)) > 1 {
		below = capacityText(size) + "; ×: the busiest served, against the mean"
	}
	top := c.heading(below)

	const (
		columns     = 2
		left, gap   = 40.0, 14.0
		panelHeight = 74.0
		pitch       = panelHeight + 54
	)
	width := (chartWidth - left - 10 - gap) / columns
	var desc []string
	for i, p := range panels {
		x0 := left + float64(i%columns)*(width+gap)
		y0 := top + 26 + float64(i/columns)*pitch
		x := linear(seconds, x0, x0+width, 4, false)
		// A time axis ends where the run does, not at the tick after it.
		x.high = seconds
		for len(x.ticks) > 2 && x.ticks[len(x.ticks)-1] > seconds {
			x.ticks = x.ticks[:len(x.ticks)-1]
		}
		y := linear(high, y0+panelHeight, y0, 3, true)
		for _, v := range x.ticks {
			c.line(x.at(v), y0, x.at(v), y0+panelHeight, "grid")
		}
		c.text(x.at(x.ticks[0]), y0+panelHeight+15, "soft", "0")
		c.text(x.at(x.ticks[len(x.ticks)-1]), y0+panelHeight+15, "end soft", secondsTick(x.ticks[len(x.ticks)-1]))
		for _, v := range y.ticks {
			c.line(x0, y.at(v), x0+width, y.at(v), "grid")
			if i%columns == 0 {
				c.text(x0-5, y.at(v)+4, "end soft", shortCount(v))
			}
		}
		note := balanceText(p.run)
		desc = append(desc, p.policy+": "+note)
		c.text(x0, y0-8, "strong", shortened(p.policy, labelRunes))
		c.text(x0+width, y0-8, "end soft", imbalanceText(p.run))
		busiest := 0
		for j, l := range p.lines {
			if l.requests > p.lines[busiest].requests {
				busiest = j
			}
		}
		draw := func(j int, class string) {
			l := &p.lines[j]
			points := make([]point, 0, len(l.mean))
			for k, v := range l.mean {
				at := l.seconds * (float64(k) + .5) / float64(len(l.mean))
				points = append(points, point{x.at(at), y.at(v)})
			}
			if len(points) == 1 { // one sample holds for the whole time
				points = []point{{x.at(0), points[0].y}, {x.at(l.seconds), points[0].y}}
			}
			c.titled(fmt.Sprintf("%s, replica %s: %s requests", p.policy, l.replica, countText(float64(l.requests))),
				func() { c.path(points, class, false) })
		}
		if most <= loadColours {
			for j := range p.lines {
				draw(j, seriesClass(j))
			}
			continue
		}
		for j := range p.lines {
			if j != busiest {
				draw(j, "faint")
			}
		}
		draw(busiest, seriesClass(0))
	}
	rows := math.Ceil(float64(len(panels)) / columns)
	y := top + rows*pitch + 8
	var items []legendItem
	if most <= loadColours {
		longest := panels[0]
		for _, p := range panels {
			if len(p.lines) > len(longest.lines) {
				longest = p
			}
		}
		for j, l := range longest.lines {
			items = append(items, legendItem{shortened(l.replica, labelRunes), c.across(seriesClass(j))})
		}
	} else {
		items = []legendItem{{"the replica that served most", c.across(seriesClass(0))}, {"the others", c.across("faint")}}
	}
	c.height = c.legend(items, 8, y) + 2
	c.desc += " " + strings.Join(desc, "; ") + "."
	return c
}

// imbalanceText is how many times the mean the busiest replica served.
func imbalanceText(r *bench.Run) string {
	v, known := figImbalance.of(r)
	if !known {
		return ""
	}
	return "× " + threeDigits(v)
}

func balanceText(r *bench.Run) string {
	if _, known := figImbalance.of(r); known {
		return fmt.Sprintf("the busiest replica served %s requests, the mean is %s", countText(float64(r.LoadMax)), decimalText(r.LoadMean, 1))
	}
	return "requests of each replica " + unknown
}
