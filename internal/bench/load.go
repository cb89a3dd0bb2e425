package bench

import (
	"math"
	"slices"
	"time"
)

// loadSteps is how many times a run's load is looked at.
const loadSteps = 200

// measureLoad derives how many requests each replica had at any time from when they were
// sent and answered, and says who served how many.
func (r *Run) measureLoad(samples []Sample, replicas map[string]counters) {
	series := map[string]*LoadSeries{}
	for id := range replicas {
		series[id] = &LoadSeries{Replica: id}
	}
	step := time.Duration(math.Ceil(r.Wall * 1e9 / loadSteps))
	for i := range samples {
		s := &samples[i]
		if s.Replica == "" {
			continue
		}
		l := series[s.Replica]
		if l == nil {
			l = &LoadSeries{Replica: s.Replica}
			series[s.Replica] = l
		}
		if s.Error == "" {
			l.Requests++
		}
		if step <= 0 {
			continue
		}
		if l.InFlight == nil {
			l.InFlight = make([]int, loadSteps+1)
		}
		// In flight at the moments from Sent on and before its end.
		end := s.Due + s.E2E
		for at := (s.Sent + step - 1) / step; at <= loadSteps && at*step < end; at++ {
			l.InFlight[at]++
		}
	}
	if len(series) == 0 {
		r.unknown("load", "load_max_requests", "load_mean_requests")
		return
	}
	total := int64(0)
	for id, l := range series {
		l.Step = step.Seconds()
		if l.InFlight == nil {
			l.InFlight = make([]int, loadSteps+1)
		}
		if c, counted := replicas[id]; counted {
			l.Requests = int64(c.admitted)
		}
		r.LoadMax = max(r.LoadMax, l.Requests)
		total += l.Requests
		r.Load = append(r.Load, *l)
	}
	r.LoadMean = float64(total) / float64(len(series))
	slices.SortFunc(r.Load, func(a, b LoadSeries) int { return compareIDs(a.Replica, b.Replica) })
}

// compareIDs orders r2 before r10.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
