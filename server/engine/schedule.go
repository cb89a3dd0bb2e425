package engine

import (
	"cmp"
	"fmt"
	"slices"
)

// Schedule is an order of admission among requests of equal priority.
type Schedule string

const (
	// FCFS admits first come, first served.
	FCFS Schedule = "fcfs"
	// LongestPrefix admits first who finds most of its prompt cached, so that a prefix is
	// used before it is evicted. Nobody is passed for more than Patience steps.
	LongestPrefix Schedule = "longest_prefix"
)

// Patience is how many steps a request waits, at most, while others that came later are
// admitted before it because they find more cached. After them it has its turn by arrival:
// it then waits for blocks and a place among the running, as all do, but for no newcomer
// of its priority.
const Patience = 32

// rankedMost bounds how many of the queue are compared in a step, oldest first: each costs
// a walk through the prefix tree. The rest keep their order behind them.
const rankedMost = 128

// ParseSchedule reads a schedule by its name; "" is FCFS.
func ParseSchedule(name string) (Schedule, error) {
	switch s := Schedule(name); s {
	case "":
		return FCFS, nil
	case FCFS, LongestPrefix:
		return s, nil
	}
	return "", fmt.Errorf("%q: must be %s or %s", name, FCFS, LongestPrefix)
}

// candidate is a waiting sequence, and what counts for its turn.
type candidate struct {
	seq     *sequence
	overdue bool
	matched int // tokens cached
}

// admissionOrder is the queue as the schedule has it. The result is valid until the next
// call.
func (s *scheduler) admissionOrder() []candidate {
	s.order = s.order[:0]
	for _, seq := range s.waiting {
		s.order = append(s.order, candidate{seq: seq})
	}
	if s.cfg.Schedule == LongestPrefix {
		ranked := s.order[:min(len(s.order), rankedMost)]
		for i := range ranked {
			s.appraise(&ranked[i])
		}
		slices.SortFunc(ranked, byTurn)
	}
	return s.order
}

func (s *scheduler) appraise(c *candidate) {
	c.overdue = s.stats.Steps-c.seq.queued >= Patience
	if !c.overdue {
		c.matched = s.kv.Match(c.seq.salt, c.seq.findable())
	}
}

// byTurn orders candidates: better priority, then those that waited long enough, then who
// has most cached; among equals the older.
func byTurn(a, b candidate) int {
	late := func(c candidate) int {
		if c.overdue {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(a.seq.priority, b.seq.priority),
		cmp.Compare(late(a), late(b)),
		cmp.Compare(b.matched, a.matched),
		byRank(a.seq, b.seq),
	)
}
