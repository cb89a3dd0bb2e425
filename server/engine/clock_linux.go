package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock is the CPU time that the calling thread has used; it compares only with other
// readings on the same thread. Unlike wall time it does not count what other processes
// took from us, so that savings can be told on a busy machine.
func cpuClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("engine: the thread's CPU clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}
