package kvcache

import (
	"math"
	"time"
)

// tickLength is what a clock counts. In 32 bits that is 13 years; a time.Time would take
// six times the memory, for every node and every block remembered.
const tickLength = 100 * time.Millisecond

// clock counts ticks since the cache was made. It never goes back, whatever the clock does
// that it reads.
type clock struct {
	now   func() time.Time
	start time.Time
	last  uint32
}

func newClock(now func() time.Time) *clock { return &clock{now: now, start: now()} }

func (c *clock) tick() uint32 {
	ticks := c.now().Sub(c.start) / tickLength
	c.last = max(c.last, uint32(min(max(ticks, 0), math.MaxUint32)))
	return c.last
}

// time returns when a tick began.
func (c *clock) time(tick uint32) time.Time { return c.start.Add(time.Duration(tick) * tickLength) }
