package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// admitted are the calls by the order of their admission.
func (r *rig) admitted() []string {
	calls := slices.Clone(r.calls)
	slices.SortStableFunc(calls, func(a, b *call) int { return a.last.Times.Admitted.Compare(b.last.Times.Admitted) })
	var ids []string
	for _, c := range calls {
		ids = append(ids, c.id)
	}
	return ids
}

func TestScheduleOrdersAdmission(t *testing.T) {
	stem := seqFrom(1, 40)
	// Submitted in this order, while call 0 has the only place.
	waiting := []Request{
		ask(seqFrom(9, 40), 2),                 // call 1: cold
		ask(join(stem[:10], seqFrom(4, 3)), 2), // call 2: 10 tokens cached
		ask(join(stem[:30], seqFrom(5, 3)), 2), // call 3: 30
		ask(join(stem[:30], seqFrom(6, 3)), 2), // call 4: 30, later
		ask(seqFrom(8, 5), 2),                  // call 5: cold
	}
	for schedule, want := range map[Schedule][]string{
		FCFS:          {"call 0", "call 1", "call 2", "call 3", "call 4", "call 5"},
		LongestPrefix: {"call 0", "call 3", "call 4", "call 2", "call 1", "call 5"},
	} {
		r := newRig(t, path, 100, 4, Config{MaxSequences: 1, Schedule: schedule})
		r.submit(ask(stem, 3))
		r.turn()
		for _, req := range waiting {
			r.submit(req)
		}
		r.finishAll()
		if got := r.admitted(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", schedule, got, want)
		}
		r.mustAllEqualLone(path)
	}
}

func TestParseSchedule(t *testing.T) {
	for name, want := range map[string]Schedule{"": FCFS, "fcfs": FCFS, "longest_prefix": LongestPrefix} {
		if got, err := ParseSchedule(name); got != want || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	if _, err := ParseSchedule("lifo"); err == nil || !strings.Contains(err.Error(), "lifo") {
		t.Errorf("got %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	path.engine(t, 10, 4, Config{Schedule: "lifo"})
}

// flood submits requests with a warm prefix so that two of them wait at any time, and a
// cold one among them. It returns the step in which the cold one was admitted, counted
// from its arrival, and how many that came later were admitted before it.
func flood(t *testing.T, cfg Config, steps int) (step, passed int) {
	t.Helper()
	cfg.MaxSequences = 1
	r := newRig(t, path, 100, 4, cfg)
	hot := func(i int) Request { return ask(join(seqFrom(1, 20), []int32{int32(i % 48), int32(i / 48)}), 1) }
	for i := range 3 {
		r.submit(hot(i))
	}
	r.turn()
	cold := r.submit(ask(seqFrom(40, 30), 1))
	for i := 3; len(cold.tokens) == 0; i++ {
		if step == steps {
			t.Fatalf("the cold request starves for %d steps, while %d later ones passed", steps, i)
		}
		r.submit(hot(i))
		r.turn()
		step++
	}
	for _, c := range r.calls[4:] {
		if len(c.tokens) > 0 && c.last.Times.Admitted.Before(cold.last.Times.Admitted) {
			passed++
		}
	}
	r.finishAll()
	r.mustAllEqualLone(path)
	return step, passed
}

// 20: under longest prefix first, a flood of hits kept a cold request waiting for ever.
func TestFault20PatienceIsBounded(t *testing.T) {
	// Each request takes one step. Two are ahead of the cold one by arrival.
	step, passed := flood(t, Config{Schedule: FCFS}, 10)
	if step != 3 || passed != 0 {
		t.Errorf("first come, first served: admitted in step %d, passed by %d", step, passed)
	}
	step, passed = flood(t, Config{Schedule: LongestPrefix}, 10*Patience)
	if step != Patience+1 || passed != Patience-2 {
		t.Errorf("longest prefix: admitted in step %d, passed by %d, want %d and %d", step, passed, Patience+1, Patience-2)
	}
}

// Once its patience has run out a request that needs many blocks waits for them at the
// head: small ones with a warm prefix would fit, and would keep it waiting for ever.
func TestFault20ALargeColdRequestGetsItsBlocks(t *testing.T) {
	r := newRig(t, path, 16, 4, Config{Schedule: LongestPrefix})
	hot := func(i int) Request { return ask(join(seqFrom(1, 12), []int32{int32(i % 48), 3}), 8) }
	r.submit(hot(0))
	r.turn()
	large := r.submit(ask(seqFrom(40, 60), 1))
	steps := 0
	for ; len(large.tokens) == 0; steps++ {
		if steps > 200 {
			t.Fatal("the large request starves")
		}
		r.submit(hot(steps))
		r.turn()
	}
	// After its patience, those that run take 8 steps at most.
	if steps < Patience || steps > Patience+8+1 {
		t.Errorf("admitted after %d steps, want %d to %d", steps, Patience, Patience+9)
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

// In a long queue only the oldest are compared; the rest are served all the same.
func TestRankingIsBounded(t *testing.T) {
	r := newRig(t, path, 400, 4, Config{Schedule: LongestPrefix, MaxSequences: 1})
	stem := seqFrom(1, 20)
	r.submit(ask(stem, 1))
	r.turn()
	for i := range rankedMost {
		r.submit(ask([]int32{int32(i % 48), int32(i / 48)}, 1))
	}
	first := r.submit(ask(join(stem, seqFrom(5, 2)), 1))
	second := r.submit(ask(join(stem, seqFrom(6, 2)), 1))
	r.turn() // the first moves up into the window
	r.turn()
	if first.finish == "" || second.finish != "" {
		t.Errorf("after two steps: %+v and %+v", first.last, second.last)
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

func TestPriorityComesBeforeArrival(t *testing.T) {
	for _, schedule := range []Schedule{FCFS, LongestPrefix} {
		r := newRig(t, path, 100, 4, Config{MaxSequences: 1, Schedule: schedule})
		for _, priority := range []int{0, 2, 1, -3, 1, 0} {
			req := ask(seqFrom(10+len(r.calls), 5), 3)
			req.Priority = priority
			r.submit(req)
		}
		r.finishAll()
		want := []string{"call 3", "call 0", "call 5", "call 2", "call 4", "call 1"}
		if got := r.admitted(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", schedule, got, want)
		}
		if r.e.Stats().Preemptions != 0 {
			t.Errorf("%s: %d preemptions", schedule, r.e.Stats().Preemptions)
		}
		r.mustAllEqualLone(path)
	}
}

// A better priority takes the place, or the blocks, of a worse one; the same does not.
func TestPriorityPreempts(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		blocks int
	}{
		{"place", Config{MaxSequences: 2}, 100},
		{"blocks", Config{}, 14},
		{"blocks in small steps", Config{MaxBatchedTokens: 4}, 14},
	} {
		for _, priority := range []int{-1, 0} {
			t.Run(fmt.Sprintf("%s, %d", c.name, priority), func(t *testing.T) {
				r := newRig(t, path, c.blocks, 4, c.cfg)
				r.submit(ask(seqFrom(1, 20), 9))
				b := r.submit(ask(seqFrom(2, 20), 3))
				for len(b.tokens) == 0 {
					r.turn()
				}
				req := ask(seqFrom(3, 20), 2)
				req.Priority = priority
				urgent := r.submit(req)
				r.finishAll()
				first := urgent.last.Times.FirstToken.Before(b.last.Times.Finished)
				if first != (priority < 0) || (r.e.Stats().Preemptions > 0) != (priority < 0) {
					t.Errorf("before the other: %v, %d preemptions", first, r.e.Stats().Preemptions)
				}
				r.mustAllEqualLone(path)
			})
		}
	}
}

// What is planned for a step and then preempted in it is not run.
func TestPreemptedFromAPlanIsNotRun(t *testing.T) {
	r := newRig(t, path, 100, 4, Config{MaxSequences: 2, MaxBatchedTokens: 30})
	scored := ask(seqFrom(3, 50), 2)
	scored.PromptLogprobs = count(0)
	scored.Priority = 2
	r.submit(ask(seqFrom(1, 5), 9))
	r.submit(scored)
	r.turn()
	for i := range 2 {
		req := ask(seqFrom(5+i, 5), 2)
		req.Priority = 1 + i
		r.submit(req)
	}
	r.finishAll()
	if r.e.Stats().Preemptions == 0 {
		t.Error("no preemption")
	}
	r.mustAllEqualLone(path)
}

func TestQueueIsBoundedByTokens(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxWaitingTokens: 20, MaxSequences: 1})
	r.submit(ask(seqFrom(1, 50), 3)) // an empty queue takes it
	refused := func(tokens int, says string) {
		t.Helper()
		if _, err := r.trySubmit(ask(seqFrom(3, tokens), 3)); !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want the queue full: %s", err, says)
		}
	}
	refused(1, "50 tokens wait and the request has 1, more than 20 together")
	r.turn()
	r.submit(ask(seqFrom(2, 12), 3))
	refused(9, "12 tokens wait and the request has 9, more than 20 together")
	r.submit(ask(seqFrom(4, 8), 3))
	if got := r.e.Stats().WaitingTokens; got != 20 {
		t.Errorf("%d tokens wait, want 20", got)
	}
	refused(1, "20 tokens wait")
	r.finishAll()
	if got := r.e.Stats().WaitingTokens; got != 0 {
		t.Errorf("%d tokens wait after all", got)
	}
	r.mustAllEqualLone(path)
}

func TestRequestTimeout(t *testing.T) {
	const long = time.Hour
	r := newRig(t, path, 60, 4, Config{RequestTimeout: long, MaxSequences: 1})
	running, waiting := r.submit(several(2, ask(seqFrom(1, 5), 50))), r.submit(ask(seqFrom(2, 5), 50))
	r.turn()
	r.turn()
	if running.finish != "" {
		t.Fatalf("ended early: %+v", running.last)
	}
	for _, seq := range slices.Concat(r.s.running, r.s.waiting) {
		if d := seq.deadline.Sub(seq.times.Arrived); d != long {
			t.Fatalf("%v from arrival to deadline", d)
		}
	}
	for _, seq := range slices.Concat(r.s.running, r.s.waiting) {
		seq.deadline = time.Now()
	}
	other := r.submit(ask(seqFrom(3, 5), 3))
	r.turn()
	for _, c := range []*call{running, waiting} {
		c.mustBeAborted(t, ErrTimeout)
		if !strings.Contains(c.last.Err.Error(), "1h0m0s") {
			t.Errorf("%v", c.last.Err)
		}
	}
	if running.others[0].finish != FinishAbort {
		t.Error("the second choice goes on")
	}
	r.finishAll()
	r.mustAllEqualLone(path)
	if other.finish != FinishLength {
		t.Errorf("%+v", other.last)
	}
}
