package engine

import (
	"fmt"
	"time"
)

// Config bounds an engine. A zero field takes its default.
type Config struct {
	// MaxBatchedTokens bounds the tokens of one step; 512.
	MaxBatchedTokens int
	// MaxSequences bounds the sequences that hold blocks at one time; 64.
	MaxSequences int
	// MaxWaiting bounds the choices in the queue: beyond it Submit returns ErrQueueFull;
	// 256. A queue that holds nothing takes any request.
	MaxWaiting int
	// MaxWaitingTokens bounds the tokens of the requests in the queue likewise; 0 does
	// not.
	MaxWaitingTokens int
	// Schedule is the order of admission among requests of equal priority; FCFS.
	Schedule Schedule
	// RequestTimeout aborts what has not finished so long after Submit, with ErrTimeout;
	// 0 never does.
	RequestTimeout time.Duration
	// Threads that one step computes with; 1.
	Threads int
	// Check verifies the whole KV cache each time the engine falls idle. Run ends with
	// what it finds.
	Check bool
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		name  string
		value *int
		by    int
	}{
		{"MaxBatchedTokens", &c.MaxBatchedTokens, 512},
		{"MaxSequences", &c.MaxSequences, 64},
		{"MaxWaiting", &c.MaxWaiting, 256},
		{"MaxWaitingTokens", &c.MaxWaitingTokens, 0},
		{"Threads", &c.Threads, 1},
	} {
		if *f.value < 0 {
			panic(fmt.Sprintf("engine: %s is %d", f.name, *f.value))
		}
		if *f.value == 0 {
			*f.value = f.by
		}
	}
	if c.RequestTimeout < 0 {
		panic(fmt.Sprintf("engine: RequestTimeout is %v", c.RequestTimeout))
	}
	schedule, err := ParseSchedule(string(c.Schedule))
	if err != nil {
		panic("engine: " + err.Error())
	}
	c.Schedule = schedule
	return c
}
