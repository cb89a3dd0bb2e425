package engine

import (
	"context"
	"slices"

	"tailor/kvcache"
	"tailor/model/sample"
)

// sequence is a request on its way. The step loop owns it from the moment it is received.
//
//   - kv is nil while the sequence waits, for the first time or preempted.
//   - tokens only grows: a preempted sequence resumes with what it had generated.
//   - While it runs, kv has room for all of tokens, but for the one just generated, which
//     gets its row in the step that runs it.
//
// Its tokens, and their rows in kv while it runs; the boundaries only move right:
//
//	tokens  |------------- prompt -------------|---- generated ----|
//	rows    |-- reused --|-- computed --|-- pending ---------------|
type sequence struct {
	id      string
	ctx     context.Context
	arrival uint64
	salt    string

	tokens    []int32
	prompt    int // how many of tokens were given
	maxTokens int
	stop      []int32
	sampler   *sample.Sampler
	observe   func(index int, logits []float32)
	events    chan Event

	kv         *kvcache.Sequence
	prefilling bool // tokens it was admitted or resumed with have yet to run
	finished   bool

	// admitted says that the request has been counted as admitted, with cached of its
	// tokens reused: resuming it must not count again.
	admitted bool
	cached   int
	// seen is how many tokens have ever had their rows computed or reused for this
	// sequence; computing below it is repeated work.
	seen  int
	times Times
}

func (s *sequence) generated() int { return len(s.tokens) - s.prompt }

// pending is how many tokens have to run before the next one can be sampled.
func (s *sequence) pending() int { return len(s.tokens) - s.kv.Computed() }

// phase is where the sequence stands, for counts and the log.
func (s *sequence) phase() string {
	switch {
	case s.kv == nil:
		return "waiting"
	case s.generated() == 0:
		return "prefill"
	default:
		return "decode"
	}
}

// byArrival orders sequences first come, first served.
func byArrival(a, b *sequence) int {
	switch {
	case a.arrival < b.arrival:
		return -1
	case a.arrival > b.arrival:
		return 1
	}
	return 0
}

// insertByArrival keeps list in order of arrival.
func insertByArrival(list []*sequence, s *sequence) []*sequence {
	i, _ := slices.BinarySearchFunc(list, s, byArrival)
	return slices.Insert(list, i, s)
}
