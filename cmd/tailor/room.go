package main

import (
	"os"
	"runtime"
)

// makeRoom lets so many threads of engines compute without keeping the rest of the process
// waiting, until the function that it returns is called. An engine that has work never sleeps:
// with no more of Go's processors than cores, engines would hold them all, and a token would
// reach its client when the scheduler next takes one away, ten milliseconds later and
// together with others. With one more for each thread it is the operating system that shares
// out the cores, and it lets who has just become ready go first. A GOMAXPROCS of the user's own stands.
func makeRoom(engineThreads int) (restore func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + engineThreads)
	return func() { runtime.GOMAXPROCS(before) }
}
