package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A replica whose queue is full is passed by; if all are, the client hears it from the last.
func TestFullQueuesSpill(t *testing.T) {
	rt := newTestRouter(t, 3, withPolicy("round_robin"))
	full := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		status(429, "full")(w, r)
	}
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = full })
	if a := rt.post(tokenBody(1, 64, 0, 10, "")); a.status != 200 || a.header.Get(headerReplica) != "r01" {
		t.Errorf("one is full: status %d from %s", a.status, a.header.Get(headerReplica))
	}
	if s := rt.replica("r00"); s.State != StateReady || s.FailedChecks != 0 {
		t.Errorf("a full queue was held against the replica: %+v", s)
	}
	for _, f := range rt.fakes {
		f.set(func(f *fakeReplica) { f.answer = full })
	}
	a := rt.post(tokenBody(1, 64, 1, 10, ""))
	if a.status != 429 || a.body != "full" || a.header.Get("Retry-After") != "7" {
		t.Errorf("all are full: %d %q, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
	}
	row := rt.rows(2)[1]
	if row.Outcome != OutcomeRejected || len(row.Failures) != 3 {
		t.Errorf("ledger row %+v", row)
	}
	rt.idle()
}

// A replica that hangs is put down by its health checks, and those that wait for it are
// sent elsewhere.
func TestWhoWaitsForADeadReplicaIsMoved(t *testing.T) {
	rt := newTestRouter(t, 2, withPolicy("round_robin"))
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	rt.fakes[0].set(func(f *fakeReplica) {
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		f.healthy = status(500, "")
	})
	done := make(chan answer)
	go func() { done <- rt.post(tokenBody(1, 64, 0, 10, "")) }()
	<-arrived
	for range 3 {
		rt.round()
	}
	if s := rt.state("r00"); s != StateDown {
		t.Fatalf("the hanging replica is %s", s)
	}
	if a := <-done; a.status != 200 || a.header.Get(headerReplica) != "r01" {
		t.Errorf("status %d from %s", a.status, a.header.Get(headerReplica))
	}
	if row := rt.rows(1)[0]; row.Retries != 1 || row.Failures[0].Error != errReplicaDown.Error() {
		t.Errorf("ledger row %+v", row)
	}
	rt.idle()
}

// A replica that is well by its health checks but fails what it is asked is left alone
// for a while, then tried with a few requests.
func TestBreaker(t *testing.T) {
	rt := newTestRouter(t, 2, func(c *Config) {
		withPolicy("round_robin")(c)
		c.Breaker = Breaker{Failures: 4, Successes: 2, Open: time.Hour}
	})
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(500, "") })
	failed := 0
	for i := range 20 {
		if a := rt.post(tokenBody(1, 64, i, 10, "")); a.status == 500 {
			failed++
		}
		rt.round() // well, as far as health goes
	}
	if s := rt.replica("r00"); failed != 4 || s.Breaker != "open" || s.State != StateReady {
		t.Errorf("%d requests failed, then: %+v", failed, s)
	}
	if a := rt.post(tokenBody(1, 64, 0, 10, ""), headerReplica, "r00"); a.status != 503 {
		t.Errorf("asked for by name: status %d", a.status)
	}
}

// The breaker's own clock is simulated here.
func TestBreakerHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, err := New(Config{
			Replicas: []Replica{{"a", "http://h:1"}, {"b", "http://h:2"}}, Breaker: Breaker{Failures: 3, Successes: 2, Open: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		g := rt.registry
		g.replicas[0].state, g.replicas[1].state = StateReady, StateReady
		try := func() (*booking, error) {
			b, _, err := g.choose(wish{prompt: &prompt{}, policy: rt.config.Policy, pin: "a"})
			return b, err
		}
		end := func(b *booking, fault error) { b.fault = fault; b.end(true) }
		must := func() *booking {
			t.Helper()
			b, err := try()
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		refused := func(what string) {
			t.Helper()
			if _, err := try(); err == nil {
				t.Fatalf("%s: a request is sent", what)
			}
		}
		for range 5 { // says nothing about the replica
			end(must(), errUnknown)
		}
		end(must(), errFault)
		end(must(), errFault)
		end(must(), nil) // not in a row
		for range 3 {
			end(must(), errFault)
		}
		refused("open")
		g.replicas[1].state = StateDown
		if b, err := try(); err != nil {
			t.Errorf("open, and nobody else is there: %v", err)
		} else {
			end(b, nil)
		}
		g.replicas[1].state = StateReady
		time.Sleep(time.Minute - 1)
		refused("still open")
		time.Sleep(2 * time.Nanosecond)
		a, b := must(), must()
		refused("half open, and as many tried as may be")
		end(a, errFault)
		refused("failed again")
		end(b, nil)
		time.Sleep(time.Minute + 1)
		end(must(), nil)
		end(must(), nil)
		for range 10 {
			defer end(must(), nil)
		}
		if s := g.status()[0].Breaker; s != "closed" {
			t.Errorf("after two successes it is %s", s)
		}
	})
}

// Whoever answers first is taken; the other is cancelled and leaves nothing behind.
func TestHedging(t *testing.T) {
	for _, tt := range []struct{ slow, winner string }{{"r00", "r01"}, {"r01", "r00"}} {
		rt := newTestRouter(t, 2, func(c *Config) {
			withPolicy("round_robin")(c)
			c.Hedge = time.Millisecond
		})
		cancelled, both := make(chan struct{}), make(chan struct{}, 2)
		for _, f := range rt.fakes {
			f.set(func(f *fakeReplica) {
				f.answer = func(w http.ResponseWriter, r *http.Request) {
					both <- struct{}{}
					if f.id == tt.slow {
						<-r.Context().Done()
						close(cancelled)
						return
					}
					for len(both) < 2 { // not before the other was asked too
						time.Sleep(time.Millisecond)
					}
					_, _ = io.WriteString(w, wholeAnswer)
				}
			})
		}
		a := rt.post(tokenBody(1, 64, 0, 10, ""))
		if a.status != 200 || a.header.Get(headerReplica) != tt.winner {
			t.Errorf("status %d from %s, want %s", a.status, a.header.Get(headerReplica), tt.winner)
		}
		<-cancelled
		row := rt.rows(1)[0]
		if row.Replica != tt.winner || row.Hedged != tt.slow || row.Outcome != OutcomeOK {
			t.Errorf("ledger row %+v", row)
		}
		if err := rt.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		rt.idle()
	}
	// A first one that fails at once is retried as ever.
	rt := newTestRouter(t, 2, func(c *Config) { withPolicy("round_robin")(c); c.Hedge = time.Hour })
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(502, "") })
	if a := rt.post(tokenBody(1, 64, 0, 10, "")); a.status != 200 || a.header.Get(headerReplica) != "r01" {
		t.Errorf("status %d from %s", a.status, a.header.Get(headerReplica))
	}
}

// Whatever is sent at one time, and sent again, each replica gets its own request's bytes.
func TestBodiesDoNotMix(t *testing.T) {
	rt := newTestRouter(t, 2, withPolicy("round_robin"))
	for i := range rt.fakes {
		rt.fakes[i].set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				if i == 0 {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				_, _ = io.WriteString(w, "{}")
			}
		})
	}
	want := map[string]bool{}
	done := make(chan struct{})
	const clients, each = 8, 30
	for c := range clients {
		for i := range each {
			want[tokenBody(c, 20+c, i, 10+i*20, "")] = true
		}
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range each {
				rt.post(tokenBody(c, 20+c, i, 10+i*20, ""))
			}
		}()
	}
	for range clients {
		<-done
	}
	n := 0
	for _, got := range rt.fakes[1].got() {
		if !want[got.body] {
			t.Fatalf("a replica got bytes that nobody sent: %.80s...", got.body)
		}
		n++
	}
	if n != clients*each {
		t.Errorf("%d requests arrived, want %d", n, clients*each)
	}
}

// What a router that stops has to cut ends with a word on why, whether it has begun or not.
func TestCutAnswersSaySo(t *testing.T) {
	for _, stream := range []bool{true, false} {
		rt := newTestRouter(t, 1, nil)
		begun := make(chan struct{})
		rt.fakes[0].set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				if stream {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {}\n\n")
					_ = http.NewResponseController(w).Flush()
				}
				close(begun)
				<-r.Context().Done()
			}
		})
		ctx, cut := context.WithCancelCause(t.Context())
		body := tokenBody(1, 64, 0, 10, fmt.Sprintf(`,"stream":%v`, stream))
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(body))
		answer, done := &signallingRecorder{httptest.NewRecorder(), make(chan struct{}, 16)}, make(chan struct{})
		go func() {
			defer close(done)
			rt.ServeHTTP(answer, req)
		}()
		if <-begun; stream {
			<-answer.wrote // its first event has gone out
		}
		cut(errors.New("closing time"))
		<-done
		if got := answer.Body.String(); !strings.Contains(got, "closing time") || !strings.Contains(got, `"error"`) {
			t.Errorf("stream %v: %d %q", stream, answer.Code, got)
		}
		if stream && !strings.HasPrefix(answer.Body.String(), "data: {}\n\ndata: ") {
			t.Errorf("the stream did not go on from its first event: %q", answer.Body)
		}
		if !stream && answer.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503", answer.Code)
		}
		if row := rt.rows(1)[0]; row.Outcome != OutcomeCut || row.Error != "closing time" {
			t.Errorf("stream %v: ledger row %+v", stream, row)
		}
		rt.idle()
	}
}

// signallingRecorder tells of each write.
type signallingRecorder struct {
	*httptest.ResponseRecorder
	wrote chan struct{}
}

func (r *signallingRecorder) Write(p []byte) (int, error) {
	defer func() { r.wrote <- struct{}{} }()
	return r.ResponseRecorder.Write(p)
}
