//go:build !linux

package engine

import "time"

var clockStart = time.Now()

// cpuClock is wall time, which stands in for CPU time where a thread's is not at hand.
func cpuClock() time.Duration { return time.Since(clockStart) }
