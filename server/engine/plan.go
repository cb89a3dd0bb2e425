package engine

import (
	"errors"
	"fmt"
	"slices"

	"tailor/kvcache"
)

// run is a part of a step: some next tokens of one sequence.
type run struct {
	seq    *sequence
	tokens int
	logits int  // of so many of the last of them
	decode bool // the token was generated, not given
}

// plan spends the token budget: decodes, running prefills, admissions.
func (s *scheduler) plan() {
	s.runs = s.runs[:0]
	s.budget = s.cfg.MaxBatchedTokens
	s.scoring = maxScoring
	s.planDecodes()
	s.planPrefills()
	s.admit()
	if len(s.runs) == 0 && !s.idle() {
		panic(fmt.Sprintf("engine: nothing to run with %d sequences running and %d waiting",
			len(s.running), len(s.waiting)))
	}
}

// planDecodes goes from the first in rank on, while preemption takes from the other end,
// so what is planned already is never preempted.
func (s *scheduler) planDecodes() {
	for i := 0; i < len(s.running) && s.budget > 0; i++ {
		if seq := s.running[i]; !seq.prefilling && s.makeRoom(seq) {
			s.add(run{seq: seq, tokens: 1, logits: 1, decode: true})
		}
	}
}

func (s *scheduler) planPrefills() {
	for _, seq := range s.running {
		if s.budget == 0 {
			return
		}
		if seq.prefilling {
			s.planPrefill(seq)
		}
	}
}

// planPrefill takes what the budget has left for as much of a prompt.
func (s *scheduler) planPrefill(seq *sequence) {
	r := run{seq: seq, tokens: min(seq.pending(), s.budget)}
	if r.tokens == seq.pending() && seq.maxTokens > 0 {
		r.logits = 1
	}
	if seq.isScoring() {
		r = s.limitScoring(r)
	}
	if r.tokens > 0 {
		s.add(r)
	}
}

func (s *scheduler) add(r run) {
	s.runs = append(s.runs, r)
	s.budget -= r.tokens
}

// makeRoom gives the sequence a row for its newest token. Where the pool is empty it
// preempts from the last in rank on; false means that this was the sequence itself.
func (s *scheduler) makeRoom(seq *sequence) bool {
	for {
		err := s.kv.Append(seq.kv, seq.tokens[len(seq.tokens)-1])
		if err == nil {
			return true
		}
		if !errors.Is(err, kvcache.ErrNoFreeBlocks) || len(s.running) == 1 {
			panic(fmt.Sprintf("engine: no room for token %d of %q, alone of %d running: %v",
				len(seq.tokens)-1, seq.id, len(s.running), err))
		}
		victim := s.running[len(s.running)-1]
		s.preemptLast()
		if victim == seq {
			return false
		}
	}
}

// preemptLast sends the last of the running back to its place in the queue. Its blocks go
// to the prefix tree, where it will mostly find them again.
func (s *scheduler) preemptLast() {
	last := len(s.running) - 1
	seq := s.running[last]
	s.log.Debug("preempted", "request", seq.id, "choice", seq.index, "tokens", len(seq.tokens), "phase", seq.phase())
	s.release(seq)
	s.running = slices.Delete(s.running, last, last+1)
	s.waiting = insertByRank(s.waiting, seq)
	s.stats.Preemptions++
}
