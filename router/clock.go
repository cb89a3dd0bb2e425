package router

import "time"

// Clock tells the time and ticks.
type Clock interface {
	Now() time.Time
	// Tick returns a channel that delivers ticks until stop is called.
	Tick(every time.Duration) (ticks <-chan time.Time, stop func())
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) Tick(every time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(every)
	return t.C, t.Stop
}
