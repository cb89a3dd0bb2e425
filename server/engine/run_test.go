package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"tailor/model"
)

// start runs an engine for the time of the test.
func start(t *testing.T, e *Engine) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return stop
}

// Clients of all kinds at once: those that read on, those that leave, those that never
// read; beside them, readers of the stats and resets.
func TestRunServesManyClients(t *testing.T) {
	noLeaks(t)
	const clients, each = 8, 6
	m := tiny(t)
	rnd := rand.New(rand.NewPCG(4, 4))
	var requests []Request
	var answers [][]answer // [request][choice]
	for _, req := range newWorkload(rnd, 16).requests {
		requests = append(requests, req)
		answers = append(answers, loneChoices(t, m, req))
	}
	e := m.engine(t, 70, 4, Config{MaxBatchedTokens: 24, MaxSequences: 5, Threads: 2, Check: true})
	stop := start(t, e)

	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(9, uint64(client)))
			for i := range each {
				n := rnd.IntN(len(requests))
				leaveAfter := -1
				if rnd.IntN(3) == 0 {
					leaveAfter = rnd.IntN(4)
				}
				c := newCall(fmt.Sprintf("client %d, request %d", client, i), requests[n])
				serve(t, e, c, leaveAfter)
				for j, want := range answers[n] {
					c.choiceMustEqual(t, j, want)
				}
			}
		})
	}
	group.Go(func() {
		for range clients * each {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if _, err := e.Submit(ctx, requests[0]); err != nil { // and never read it
				t.Error(err)
				return
			}
			e.Stats()
			if err := e.Reset(ctx); err != nil && !errors.Is(err, ErrHeld) {
				t.Error(err)
			}
		}
	})
	group.Wait()
	if err := e.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	stats := e.Stats()
	if stats.Running+stats.Waiting != 0 || stats.KV.Held != stats.KV.Cached {
		t.Errorf("after the drain: %+v", stats)
	}
	if stats.RequestHits == 0 || stats.PrefillCPU <= 0 || stats.DecodeCPU <= 0 {
		t.Errorf("stats %+v", stats)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := e.kv.Check(); err != nil {
		t.Error(err)
	}
}

// serve submits and reads; after leaveAfter events, if not negative, the client leaves.
func serve(t *testing.T, e *Engine, c *call, leaveAfter int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := c.req
	req.ID = c.id
	req.observe = c.observe(t)
	events, err := e.Submit(ctx, req)
	if err != nil {
		t.Error(err)
		return
	}
	if leaveAfter == 0 {
		cancel()
	}
	n := 0
	for ev := range events {
		n++
		c.take(t, ev)
		if n == leaveAfter {
			cancel()
		}
	}
}

// The readers never come; the loop must not care.
func TestSlowReadersDoNotStallTheLoop(t *testing.T) {
	noLeaks(t)
	e := path.engine(t, 200, 4, Config{})
	stop := start(t, e)
	var unread []<-chan Event
	for i := range 20 {
		events, err := e.Submit(context.Background(), ask(seqFrom(i, 5), 30))
		if err != nil {
			t.Fatal(err)
		}
		unread = append(unread, events)
	}
	c := newCall("", ask(seqFrom(30, 5), 60))
	serve(t, e, c, -1)
	c.mustEqual(t, lone(t, path, c.req))
	if err := e.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for i, events := range unread {
		n := 0
		for range events {
			n++
		}
		if n != 30 {
			t.Errorf("request %d has %d events, want 30", i, n)
		}
	}
}

// A client that has seen its last event finds it counted and its blocks free. Many end in
// one step, so that there is time to look between the first and the last of them.
func TestTheLastEventComesAfterTheCounts(t *testing.T) {
	const many = 250
	for range 5 {
		e := path.engine(t, 600, 4, Config{MaxBatchedTokens: 600, MaxSequences: many})
		var streams []<-chan Event
		for i := range many {
			events, err := e.Submit(context.Background(), ask([]int32{int32(i % 48), int32(i / 48)}, 4))
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, events)
		}
		stop := start(t, e)
		var last Event
		for last.Finish == "" {
			select {
			case last = <-streams[0]:
			default: // not blocked: waking up takes longer than what is to be seen
			}
		}
		if stats := e.Stats(); stats.Running != 0 || stats.KV.Sequences != 0 || stats.Decoded != many*4 {
			t.Fatalf("the first has ended: %+v", stats)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestResetWakesAnIdleLoop(t *testing.T) {
	e := path.engine(t, 20, 4, Config{Check: true})
	idle := make(chan struct{}, 10)
	e.check = func() error { idle <- struct{}{}; return nil }
	start(t, e)
	<-idle
	if err := e.Reset(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	noLeaks(t)
	e := path.engine(t, 20, 4, Config{})
	stop := start(t, e)
	events, err := e.Submit(context.Background(), ask(seqFrom(1, 5), 60))
	if err != nil {
		t.Fatal(err)
	}
	<-events
	if err := stop(); err != nil {
		t.Error(err)
	}
	var last Event
	for ev := range events {
		last = ev
	}
	// The loop is fast enough to finish on rare occasions.
	if last.Finish != FinishLength && (last.Finish != FinishAbort || !errors.Is(last.Err, ErrStopped)) {
		t.Errorf("last event %+v", last)
	}
	if _, err := e.Submit(context.Background(), ask(seqFrom(1, 5), 6)); !errors.Is(err, ErrStopped) {
		t.Errorf("Submit after the end: %v", err)
	}
}

func TestRunReportsABrokenCache(t *testing.T) {
	noLeaks(t)
	e := path.engine(t, 20, 4, Config{Check: true})
	broken := errors.New("broken")
	e.check = func() error { return broken }
	if err := e.Run(context.Background()); !errors.Is(err, broken) {
		t.Errorf("Run returned %v", err)
	}
	if _, err := e.Submit(context.Background(), ask(seqFrom(1, 5), 6)); !errors.Is(err, ErrStopped) {
		t.Errorf("Submit after the end: %v", err)
	}
}

// The loop looks around once per wake-up and then sleeps: it checks the cache each time
// that it falls idle, which makes its rounds countable.
func TestIdleLoopSleeps(t *testing.T) {
	e := path.engine(t, 20, 4, Config{Check: true})
	idle := 0
	checked := make(chan struct{}, 1000)
	e.check = func() error { idle++; checked <- struct{}{}; return nil }
	stop := start(t, e)
	<-checked
	for i := range 10 {
		serve(t, e, newCall("", ask(seqFrom(i, 5), 3)), -1)
		<-checked
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	// A request that arrives between the last round and the sleep costs one round more.
	if idle < 11 || idle > 21 {
		t.Errorf("idle %d times around 10 requests", idle)
	}
}

type forwardFunc func([]model.Chunk) []float32

func (f forwardFunc) Forward(chunks []model.Chunk) []float32 { return f(chunks) }
func (forwardFunc) Close()                                   {}

func TestAPanicOfTheModelIsLoud(t *testing.T) {
	m := path
	m.open = func(Config) forwarder {
		return forwardFunc(func([]model.Chunk) []float32 { panic("the model is broken") })
	}
	e := m.engine(t, 20, 4, Config{})
	if _, err := e.Submit(context.Background(), ask(seqFrom(1, 5), 6)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if got := recover(); got != "the model is broken" {
			t.Errorf("Run let out %v", got)
		}
	}()
	t.Errorf("Run returned %v", e.Run(context.Background()))
}

func TestRunTwicePanics(t *testing.T) {
	e := path.engine(t, 20, 4, Config{})
	if err := start(t, e)(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = e.Run(context.Background())
}

// What other threads compute while a step waits is not the step's.
func TestCPUTimeIsTheThreads(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no CPU clock of threads here; wall time stands in for it")
	}
	const own, others = 10 * time.Millisecond, 60 * time.Millisecond
	burn := func(d time.Duration) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for from := cpuClock(); cpuClock()-from < d; {
		}
	}
	for _, threads := range []int{1, 3} {
		m := path
		m.open = func(cfg Config) forwarder {
			inner := openPath(cfg)
			return forwardFunc(func(chunks []model.Chunk) []float32 {
				burn(own)
				done := make(chan struct{})
				go func() {
					burn(others)
					close(done)
				}()
				<-done
				return inner.Forward(chunks)
			})
		}
		e := m.engine(t, 40, 4, Config{Threads: threads})
		start(t, e)
		c := newCall("", ask(seqFrom(1, 30), 3))
		serve(t, e, c, -1)
		stats := e.Stats()
		factor := time.Duration(threads)
		for name, got := range map[string]time.Duration{"prefill": stats.PrefillCPU, "decode": stats.DecodeCPU / 2} {
			if got < own*factor || got > (own+others/2)*factor {
				t.Errorf("%d threads, %s: %v a step, want somewhat above %v", threads, name, got, own*factor)
			}
		}
	}
}

// A step with both kinds divides its time by their tokens.
func TestCPUTimeIsSplitByTokens(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 16})
	r.submit(ask(seqFrom(1, 3), 4))
	r.turn()
	r.submit(ask(seqFrom(2, 40), 1))
	before := r.e.Stats()
	r.turn() // one decode, 15 of a prompt
	after := r.e.Stats()
	prefill, decode := after.PrefillCPU-before.PrefillCPU, after.DecodeCPU-before.DecodeCPU
	if diff := prefill - 15*decode; decode <= 0 || diff < -16 || diff > 16 {
		t.Errorf("15 prompt tokens took %v, one decode %v", prefill, decode)
	}
}
