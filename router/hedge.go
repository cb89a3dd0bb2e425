package router

import (
	"context"
	"time"
)

// race sends the request to the replica chosen. If hedging is asked for and no answer
// begins in time, it is sent to a second one as well; who answers first is taken, and the
// other attempt is given up. Failures are entered in the row and in w's replicas tried;
// the result is a failure only if nobody is being waited for any more.
//
// A request that is pinned, or that must not be repeated, is never sent twice.
func (x *exchange) race(first choice, w *wish) attempt {
	after := x.router.config.Hedge
	if after <= 0 || w.pin != "" || !x.route.retry {
		ctx, cancel := context.WithCancelCause(x.r.Context())
		a := x.send(ctx, cancel, first, func() { x.tell(first) })
		x.note(a, w)
		return a
	}
	results := make(chan attempt, 2)
	running := map[*booking]context.CancelCauseFunc{}
	start := func(c choice) {
		x.tell(c)
		ctx, cancel := context.WithCancelCause(x.r.Context())
		running[c.booking] = cancel
		x.router.stay()
		go func() {
			defer x.router.leave()
			a := x.send(ctx, cancel, c, nil)
			results <- a
		}()
	}
	start(first)
	timer := time.NewTimer(after)
	defer timer.Stop()
	hedged := ""
	for {
		select {
		case <-timer.C:
			second := *w
			second.tried = append(append([]string(nil), w.tried...), first.booking.id)
			if c, err := x.choose(second); err == nil {
				hedged = c.booking.id
				start(c)
			}
		case a := <-results:
			delete(running, a.choice.booking)
			x.note(a, w)
			if a.failed != nil && len(running) > 0 {
				continue
			}
			if a.failed == nil && hedged != "" {
				winner := "second"
				x.row.Hedged = first.booking.id
				if a.choice.booking == first.booking {
					winner, x.row.Hedged = "first", hedged
				}
				x.router.metrics.hedges.WithLabelValues(winner).Inc()
			}
			for _, cancel := range running { // at most one
				cancel(nil)
				x.router.stay()
				go func() {
					defer x.router.leave()
					if a := <-results; a.failed == nil {
						a.resp.Body.Close()
						a.choice.booking.end(false)
					}
				}()
			}
			return a
		}
	}
}

// note enters a failure.
func (x *exchange) note(a attempt, w *wish) {
	if a.failed == nil {
		return
	}
	w.tried = append(w.tried, a.failed.replica)
	x.row.Failures = append(x.row.Failures, Failure{Replica: a.failed.replica, Status: a.failed.status, Error: a.failed.message})
}
