package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tailor/kvcache"
)

// run is a part of a step: some next tokens of one sequence.
type run struct {
	seq    *sequence
	tokens int
	decode bool // the token was generated, not given
}

// plan spends the token budget: decodes, running prefills, admissions.
func (s *scheduler) plan() {
	s.runs = s.runs[:0]
	s.budget = s.cfg.MaxBatchedTokens
	s.planDecodes()
	s.planPrefills()
	s.admit()
	if len(s.runs) == 0 && !s.idle() {
		panic(fmt.Sprintf("engine: nothing to run with %d sequences running and %d waiting",
			len(s.running), len(s.waiting)))
	}
}

// planDecodes goes from the oldest on, while preemption takes from the other end, so what
// is planned already is never preempted.
func (s *scheduler) planDecodes() {
	for i := 0; i < len(s.running) && s.budget > 0; i++ {
		if seq := s.running[i]; !seq.prefilling && s.makeRoom(seq) {
			s.add(run{seq: seq, tokens: 1, decode: true})
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

func (s *scheduler) planPrefill(seq *sequence) {
	s.add(run{seq: seq, tokens: min(seq.pending(), s.budget)})
}

func (s *scheduler) add(r run) {
	s.runs = append(s.runs, r)
	s.budget -= r.tokens
}

// makeRoom gives the sequence a row for its newest token. Where the pool is empty it
// preempts from the latest arrival on; false means that this was the sequence itself.
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
		s.preempt(victim)
		if victim == seq {
			return false
		}
	}
}

// preempt sends the last of the running back to its place in the queue. Its blocks go to
// the prefix tree, where it will mostly find them again.
func (s *scheduler) preempt(seq *sequence) {
	s.log.Debug("preempted", "request", seq.id, "tokens", len(seq.tokens), "phase", seq.phase())
	s.release(seq)
	s.running = slices.Delete(s.running, len(s.running)-1, len(s.running))
	s.waiting = insertByArrival(s.waiting, seq)
	s.stats.Preemptions++
}

// admit takes from the queue in order of arrival. The first that finds no blocks ends it:
// a smaller one behind must not pass, or the large one might never find room.
func (s *scheduler) admit() {
	for i := 0; i < len(s.waiting) && s.budget > 0 && len(s.running) < s.cfg.MaxSequences; {
		seq := s.waiting[i]
		if s.prefixUnderway(seq) {
			i++
			continue
		}
		kv, err := s.kv.Allocate(seq.salt, seq.tokens)
		if errors.Is(err, kvcache.ErrNoFreeBlocks) && len(s.running) > 0 {
			return
		}
		if err != nil {
			panic(fmt.Sprintf("engine: no blocks for the %d tokens of %q with %d running: %v",
				len(seq.tokens), seq.id, len(s.running), err))
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.start(seq, kv)
		s.planPrefill(seq)
	}
}

// prefixUnderway says that this step computes at least a block's worth of tokens that seq
// could reuse in the next.
//
// Only older sequences are waited for, so nobody waits for more steps than there are older
// sequences, however many newcomers pass. And only what this step computes counts: if the
// sequence that computes it is cancelled afterwards, what it did is in the tree, and seq
// goes on from there in the next step.
func (s *scheduler) prefixUnderway(seq *sequence) bool {
	block := s.blockSize
	soon := 0
	for _, r := range s.runs {
		if r.decode || r.seq.arrival > seq.arrival || r.seq.salt != seq.salt {
			continue
		}
		end := r.seq.kv.Computed() + r.tokens
		end -= end % block // only full blocks can be reused
		// Of its own tokens a sequence reuses all but the last at most.
		soon = max(soon, commonPrefix(r.seq.tokens[:end], seq.tokens[:len(seq.tokens)-1]))
	}
	return soon >= block && soon >= s.kv.Match(seq.salt, seq.tokens)+block
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// start makes the sequence one of the running. Only the first time counts as an admission
// and as a hit: coming back to its own blocks after a preemption is no saving.
func (s *scheduler) start(seq *sequence, kv *kvcache.Sequence) {
	seq.kv = kv
	seq.prefilling = true
	s.running = insertByArrival(s.running, seq)
	reused := kv.Cached()
	if seq.admitted {
		s.stats.ResumeReused += uint64(reused)
	} else {
		seq.admitted = true
		seq.cached = reused
		seq.times.Admitted = time.Now()
		s.stats.Requests++
		s.stats.PromptReused += uint64(reused)
		if reused > 0 {
			s.stats.RequestHits++
		}
	}
}
