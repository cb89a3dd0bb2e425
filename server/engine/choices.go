package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tailor/kvcache"
)

// alone is one of the sequence's choices as a sequence of its own, which holds no blocks
// yet. The tokens are shared until either appends to them.
func (s *sequence) alone(c choice) *sequence {
	return &sequence{request: s.request, choice: c, tokens: slices.Clip(s.tokens), seen: s.seen}
}

// fork samples the first token of a choice from the prompt's logits. If it goes on, it
// shares the prompt's blocks; where there is no room for it beside the others, it waits.
func (s *scheduler) fork(seq *sequence, c choice, now time.Time, logits []float32) {
	own := seq.alone(c)
	if !s.next(own, now, logits) {
		return
	}
	if len(s.running) < s.cfg.MaxSequences {
		kv, err := s.kv.Fork(seq.kv)
		if err == nil {
			own.kv = kv
			s.running = insertByRank(s.running, own)
			s.stats.Forks++
			return
		}
		if !errors.Is(err, kvcache.ErrNoFreeBlocks) {
			panic(fmt.Sprintf("engine: fork of choice %d of %q at %d tokens: %v", c.index, seq.id, len(seq.tokens), err))
		}
	}
	s.waiting = insertByRank(s.waiting, own)
	s.stats.Deferred++
}

// abortCancelled ends what nobody waits for any more, and what has taken too long.
func (s *scheduler) abortCancelled() {
	now := time.Now()
	s.abort(now, func(r *request) error {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if !r.deadline.IsZero() && now.After(r.deadline) {
			return fmt.Errorf("%w: more than %v", ErrTimeout, s.cfg.RequestTimeout)
		}
		return nil
	})
}

func (s *scheduler) abortAll(cause error) {
	s.abort(time.Now(), func(*request) error { return cause })
}

// abort ends the requests for which there is a cause, and of the others those choices
// whose own contexts have ended.
func (s *scheduler) abort(now time.Time, causeOf func(*request) error) {
	hasEnded := func(seq *sequence) bool {
		all := causeOf(seq.request)
		causeOf := func(c choice) error {
			if all == nil && c.ctx != nil && c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			return all
		}
		seq.others = slices.DeleteFunc(seq.others, func(c choice) bool {
			cause := causeOf(c)
			if cause != nil {
				s.abortOne(seq.alone(c), seq.phase(), now, cause)
			}
			return cause != nil
		})
		cause := causeOf(seq.choice)
		switch {
		case cause == nil:
			return false
		case len(seq.others) == 0:
			s.abortOne(seq, seq.phase(), now, cause)
			return true
		}
		// Others still want the prompt computed.
		s.abortOne(seq.alone(seq.choice), seq.phase(), now, cause)
		seq.choice, seq.others = seq.others[0], seq.others[1:]
		return false
	}
	s.waiting = slices.DeleteFunc(s.waiting, hasEnded)
	s.running = slices.DeleteFunc(s.running, hasEnded)
}

func (s *scheduler) abortOne(seq *sequence, phase string, now time.Time, cause error) {
	s.stats.Aborts.count(phase)
	s.log.Info("aborted", "request", seq.id, "choice", seq.index, "phase", phase, "cause", cause,
		"prompt_tokens", seq.prompt, "generated_tokens", seq.generated())
	s.finish(seq, now, Event{Token: noToken, Finish: FinishAbort, Err: cause})
}
