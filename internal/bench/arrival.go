package bench

import (
	"math/rand/v2"
	"time"

	"tailor/internal/bench/workload"
)

// The kinds of arrival.
const (
	Closed  = "closed"  // a number of clients, each sends its next request when it has its answer
	Poisson = "poisson" // at random times of a given mean rate, whatever the answers take
	Trace   = "trace"   // at the workload's own times
)

// arrivals are the times at which an open loop sends the requests; all 0 for a closed one.
// A request that waits for an answer is sent no earlier than that allows.
func arrivals(w *workload.Workload, a Arrival) []time.Duration {
	times := make([]time.Duration, len(w.Requests))
	switch a.Kind {
	case Poisson:
		// The stream is one of its own, so that the times do not depend on how the
		// workload's prompts were drawn.
		draw := rand.New(rand.NewPCG(w.Seed, 0x706f6973736f6e))
		at := 0.0
		for i := range times {
			at += draw.ExpFloat64() / a.Rate
			times[i] = time.Duration(at * float64(time.Second))
		}
	case Trace:
		for i := range times {
			times[i] = time.Duration(float64(w.Requests[i].At) / a.Speed)
		}
	}
	return times
}

// readyRequest is one that waits for nothing but its time.
type readyRequest struct {
	index int
	due   time.Duration
}

// readyQueue is a heap of them.
type readyQueue struct {
	list    []readyRequest
	inOrder bool // of the workload; else by due
}

func (q *readyQueue) Len() int { return len(q.list) }

func (q *readyQueue) Less(i, j int) bool {
	a, b := q.list[i], q.list[j]
	if q.inOrder || a.due == b.due {
		return a.index < b.index
	}
	return a.due < b.due
}

func (q *readyQueue) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *readyQueue) Push(x any)    { q.list = append(q.list, x.(readyRequest)) }

func (q *readyQueue) Pop() any {
	last := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return last
}
