package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// report is what a request's last event says of the cache.
func (r *rig) report(req Request) CacheReport {
	r.t.Helper()
	c := r.submit(req)
	r.finishAll()
	got := c.last.Cache
	if got.EvictedAgo < 0 || got.EvictedAgo > time.Minute {
		r.t.Errorf("%v ago", got.EvictedAgo)
	}
	got.EvictedAgo = 0 // the clock's affair
	return got
}

func TestCacheReportSaysWhy(t *testing.T) {
	r := newRig(t, path, 20, 4, Config{})
	prompt := seqFrom(1, 30)
	salted := ask(prompt, 1)
	salted.Salt = "b"
	steps := []struct {
		name string
		do   func()
		req  Request
		want CacheReport
	}{
		{"never seen", nil, ask(prompt, 1), CacheReport{Missed: 30, Reason: MissCold}},
		{"all there but what fills no block", nil, ask(prompt, 1), CacheReport{Matched: 28, Missed: 2}},
		{"a part", nil, ask(join(prompt[:13], seqFrom(7, 9)), 1), CacheReport{Matched: 13, Missed: 9, Reason: MissCold}},
		{"another salt's", nil, salted, CacheReport{Missed: 30, Reason: MissSalt}},
		{"its own salt's", nil, salted, CacheReport{Matched: 28, Missed: 2}},
		{"reset", r.resetNow, ask(prompt, 1), CacheReport{Missed: 30, Reason: MissReset}},
		{"evicted", func() { r.report(ask(seqFrom(9, 80), 1)) }, ask(prompt, 1), CacheReport{Missed: 30, Reason: MissEvicted}},
		{"whole blocks, of which the last token runs anyway", nil, ask(prompt[:28], 1), CacheReport{Matched: 27, Missed: 1}},
	}
	for _, s := range steps {
		if s.do != nil {
			s.do()
		}
		if got := r.report(s.req); got != s.want {
			t.Errorf("%s: %+v, want %+v", s.name, got, s.want)
		}
	}
	r.mustAllEqualLone(path)
}

// What another is computing at the time is neither cold nor found.
func TestCacheReportSaysInFlight(t *testing.T) {
	r := newRig(t, path, 60, 8, Config{})
	stem := seqFrom(1, 40)
	r.submit(ask(stem[:38], 9)) // 4 blocks full, and 6 rows of a fifth
	late := r.submit(ask(stem, 2))
	r.turn()
	r.turn()
	if got, want := late.last.Cache, (CacheReport{Matched: 32, InFlight: 32, Missed: 8, Reason: MissInFlight}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

// All choices of a request say the same, and a preemption changes nothing of it.
func TestCacheReportIsOfTheFirstAdmission(t *testing.T) {
	r := newRig(t, path, 8, 4, Config{})
	first := ask(seqFrom(1, 9), 1)
	r.submit(first)
	r.finishAll()
	r.submit(ask(seqFrom(2, 9), 14))
	c := r.submit(several(3, ask(join(first.Tokens, seqFrom(3, 3)), 14)))
	r.finishAll()
	if r.e.Stats().Preemptions == 0 {
		t.Error("no preemption")
	}
	for i := range 3 {
		if got, want := c.choice(i).last.Cache, (CacheReport{Matched: 8, Missed: 4, Reason: MissCold}); got != want {
			t.Errorf("choice %d: %+v, want %+v", i, got, want)
		}
	}
	r.mustAllEqualLone(path)
}

// The pool keeps room for those that run: one that would have to give its blocks back is
// not admitted in the first place.
func TestAdmissionLeavesRoomToGrow(t *testing.T) {
	r := newRig(t, path, 6, 4, Config{})
	long := r.submit(ask(seqFrom(1, 13), 12))
	short := r.submit(ask(seqFrom(2, 5), 2))
	r.finishAll()
	if n := r.e.Stats().Preemptions; n != 0 {
		t.Errorf("%d preemptions", n)
	}
	if short.last.Times.Admitted.Before(long.last.Times.Finished) {
		t.Error("admitted into blocks that the other needed")
	}
	r.mustAllEqualLone(path)
}

func TestViewIsTakenOnTheLoop(t *testing.T) {
	e := path.engine(t, 20, 4, Config{})
	stop := start(t, e)
	c := newCall("", ask(seqFrom(1, 10), 2))
	serve(t, e, c, -1)
	view, err := e.View(context.Background(), 5)
	if err != nil || len(view.Nodes) == 0 || view.Totals.Tokens != 8 || view.BlockSize != 4 {
		t.Errorf("got %+v, %v", view, err)
	}
	if view, err := e.View(context.Background(), 0); err != nil || len(view.Nodes) != 0 || !view.Truncated {
		t.Errorf("got %+v, %v", view, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := e.View(context.Background(), 5); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v", err)
	}
}

// Who does not wait for the answer gets none, and the loop does not care.
func TestViewEndsWithItsContext(t *testing.T) {
	r := newRig(t, path, 20, 4, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.e.View(ctx, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.turn()
}
