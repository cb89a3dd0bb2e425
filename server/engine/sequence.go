package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tailor/kvcache"
	"tailor/model/sample"
)

// request is what the choices of one Request have in common. The step loop owns it from
// the moment it is received.
type request struct {
	id        string
	ctx       context.Context // ends all choices
	deadline  time.Time       // so does this; zero: none
	priority  int
	arrival   uint64
	salt      string
	prompt    int // tokens given
	maxTokens int
	minTokens int
	stop      []int32
	// logprobs and promptLogprobs are how many of the likeliest tokens to name; negative:
	// not even the token's own value.
	logprobs, promptLogprobs int
	observe                  func(choice, index int, logits []float32)

	events chan Event
	open   int // choices that have yet to have their last event

	// queued is the number of steps that had been run when the request was received, and
	// found is how many of its tokens were cached then.
	queued uint64
	found  int
	// admitted says that the request has been counted as admitted, as report says:
	// resuming it must not count again.
	admitted bool
	report   CacheReport
	times    Times // those of the request; a choice has the others
}

// choice is one answer to a request.
type choice struct {
	index   int
	ctx     context.Context // ends this one alone; nil: nothing does
	sampler *sample.Sampler
}

// sequence is a choice on its way; or, until the prompt has been computed, all choices of
// a request, as they have all their rows in common.
//
//   - kv is nil while the sequence waits, for the first time or preempted.
//   - tokens only grows: a preempted sequence resumes with what it had generated.
//   - While it runs, kv has room for all of tokens, but for the one just generated, which
//     gets its row in the step that runs it.
//   - others is empty once a token has been generated.
//
// Its tokens, and their rows in kv while it runs; the boundaries only move right:
//
//	tokens  |------------- prompt -------------|---- generated ----|
//	rows    |-- reused --|-- computed --|-- pending ---------------|
type sequence struct {
	*request
	choice
	others []choice // forked off when the first token is sampled

	tokens     []int32
	kv         *kvcache.Sequence
	prefilling bool // tokens it was admitted or resumed with have yet to run
	finished   bool
	// seen is how many tokens have ever had their rows computed or reused for this
	// sequence; computing below it is repeated work.
	seen int
	// scores are the prompt's log probabilities so far, the first one nil; nil if they
	// are not asked for, or already sent.
	scores     []*TokenLogprobs
	firstToken time.Time
}

func (s *sequence) generated() int { return len(s.tokens) - s.prompt }

// pending is how many tokens have to run before the next one can be sampled.
func (s *sequence) pending() int { return len(s.tokens) - s.kv.Computed() }

// isScoring says that the logits of prompt tokens are asked for and not all known.
func (s *sequence) isScoring() bool { return s.scores != nil && len(s.scores) < s.prompt }

// findable are the tokens that may be found in the cache, the last one apart, which is run
// in any case. Where the prompt is being scored these are the tokens that have a score:
// rows in the cache have no logits, so all others are run too.
func (s *sequence) findable() []int32 {
	if s.isScoring() {
		return s.tokens[:len(s.scores)]
	}
	return s.tokens
}

// choices is how many answers the sequence stands for.
func (s *sequence) choices() int { return 1 + len(s.others) }

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

// byRank orders sequences by who is served first: better priority, earlier arrival, lower
// choice. It is a strict order.
func byRank(a, b *sequence) int {
	return cmp.Or(
		cmp.Compare(a.priority, b.priority),
		cmp.Compare(a.arrival, b.arrival),
		cmp.Compare(a.index, b.index),
	)
}

// insertByRank keeps list in order.
func insertByRank(list []*sequence, s *sequence) []*sequence {
	i, _ := slices.BinarySearchFunc(list, s, byRank)
	return slices.Insert(list, i, s)
}
