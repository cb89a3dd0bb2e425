package router

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSightings(t *testing.T) {
	health := Health{Fails: 3, Passes: 2}
	ok, alive, fail := sighting{kind: seenOK}, sighting{kind: seenAlive}, sighting{kind: seenFailure, err: "timeout"}
	broken := sighting{kind: seenBroken, err: "reset"}
	refused, unready, draining := sighting{kind: seenRefused, err: "refused"}, sighting{kind: seenUnready, err: "503"}, sighting{kind: seenDraining, err: "draining"}
	tests := []struct {
		name string
		seen []sighting
		want []State
	}{
		{"first good check", []sighting{ok}, []State{StateReady}},
		{"never well", []sighting{fail, fail, fail}, []State{StateUnready, StateUnready, StateDown}},
		{"two failures are forgiven", []sighting{ok, fail, fail, ok, fail, fail, ok},
			[]State{StateReady, StateReady, StateReady, StateReady, StateReady, StateReady, StateReady}},
		{"an answer excuses no failing check", []sighting{ok, fail, alive, fail, alive, fail},
			[]State{StateReady, StateReady, StateReady, StateReady, StateReady, StateDown}},
		{"an answer excuses broken requests", []sighting{ok, broken, broken, alive, broken, broken, ok, broken, broken, broken},
			[]State{StateReady, StateReady, StateReady, StateReady, StateReady, StateReady, StateReady, StateReady, StateReady, StateDown}},
		{"three failures", []sighting{ok, fail, fail, fail}, []State{StateReady, StateReady, StateReady, StateDown}},
		{"back after two", []sighting{ok, refused, ok, ok}, []State{StateReady, StateDown, StateDown, StateReady}},
		{"one, then a failure, is not two", []sighting{ok, refused, ok, fail, ok, ok},
			[]State{StateReady, StateDown, StateDown, StateDown, StateDown, StateReady}},
		{"an answer does not bring it back", []sighting{ok, refused, alive, alive}, []State{StateReady, StateDown, StateDown, StateDown}},
		{"refused at once", []sighting{ok, refused}, []State{StateReady, StateDown}},
		{"unready and back", []sighting{ok, unready, ok}, []State{StateReady, StateUnready, StateReady}},
		{"draining and gone", []sighting{ok, draining, draining, refused}, []State{StateReady, StateDraining, StateDraining, StateDown}},
		{"draining called off", []sighting{ok, draining, ok}, []State{StateReady, StateDraining, StateReady}},
	}
	for _, tt := range tests {
		r, now := &replica{state: StateUnready}, time.Unix(0, 0)
		for i, s := range tt.seen {
			now = now.Add(time.Second)
			before := r.state
			changed, forget := r.see(s, health, now)
			if r.state != tt.want[i] {
				t.Errorf("%s: %s after sighting %d, want %s", tt.name, r.state, i, tt.want[i])
			}
			if changed != (r.state != before) || (changed && r.since != now) {
				t.Errorf("%s: sighting %d: changed %v, since %v", tt.name, i, changed, r.since)
			}
			if forget != (changed && r.state == StateDown) {
				t.Errorf("%s: sighting %d: forget %v", tt.name, i, forget)
			}
			if s.err != "" && (r.lastError != s.err || r.lastErrorAt != now) {
				t.Errorf("%s: sighting %d: last error %q at %v", tt.name, i, r.lastError, r.lastErrorAt)
			}
		}
	}
}

func TestHealthChecks(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	f := rt.fakes[0]
	steps := []struct {
		status int
		body   string
		want   State
	}{
		{200, "", StateReady},
		{503, `{"status":"draining"}`, StateDraining},
		{200, "", StateReady},
		{503, `{"error":{"message":"the replica is draining","type":"server_error","param":null,"code":"service_unavailable"}}`, StateDraining},
		{503, `{"status":"loading"}`, StateUnready},
		{503, `not JSON`, StateUnready},
		{204, "", StateReady},
		{500, "", StateReady},
		{404, "", StateReady},
		{500, "", StateDown},
		{200, "", StateDown},
		{200, "", StateReady},
	}
	for i, s := range steps {
		f.set(func(f *fakeReplica) { f.healthy = status(s.status, s.body) })
		rt.round()
		if got := rt.state("r00"); got != s.want {
			t.Fatalf("step %d, status %d: %s, want %s", i, s.status, got, s.want)
		}
		wantStatus := http.StatusServiceUnavailable
		if s.want == StateReady {
			wantStatus = 200
		}
		if a := rt.do("GET", "/health", ""); a.status != wantStatus {
			t.Fatalf("step %d: /health answers %d, want %d", i, a.status, wantStatus)
		}
		if a := rt.post(`{"model":"m","prompt":"x"}`); a.status != wantStatus {
			t.Fatalf("step %d: a completion is answered %d, want %d", i, a.status, wantStatus)
		}
	}
	f.server.Close()
	rt.round()
	if s := rt.replica("r00"); s.State != StateDown || !strings.Contains(s.LastError, "refused") {
		t.Errorf("nobody listens: %+v", s)
	}
}

// A replica that hangs fails by time and holds up nobody else.
func TestHangingCheck(t *testing.T) {
	rt := newTestRouter(t, 2, func(c *Config) { c.Health.Timeout = 100 * time.Millisecond })
	release := make(chan struct{})
	defer close(release)
	rt.fakes[0].set(func(f *fakeReplica) {
		f.healthy = func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	})
	for range 3 {
		rt.round()
	}
	if a, b := rt.replica("r00"), rt.replica("r01"); a.State != StateDown || a.FailedChecks != 3 || b.State != StateReady {
		t.Errorf("hanging: %s after %d failures; the other: %s", a.State, a.FailedChecks, b.State)
	}
}

// A replica that hangs gathers no checks.
func TestOneCheckAtATime(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	rt.fakes[0].set(func(f *fakeReplica) {
		f.healthy = func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-release }
	})
	var checks sync.WaitGroup
	for range 5 {
		rt.checkAll(t.Context(), &checks)
	}
	close(release)
	checks.Wait()
	if n := len(arrived); n != 1 {
		t.Errorf("%d checks at once", n)
	}
	rt.round()
	if n := len(arrived); n != 2 {
		t.Errorf("%d checks after another round, want 2", n)
	}
}

// Run checks at once and with every tick, and ends with its context.
func TestRun(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	checks := make(chan struct{})
	rt.fakes[0].set(func(f *fakeReplica) {
		f.healthy = func(w http.ResponseWriter, r *http.Request) {
			select {
			case checks <- struct{}{}:
			case <-r.Context().Done():
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { rt.Run(ctx); close(ended) }()
	<-checks
	for range 3 {
		rt.tickUntilChecked(checks)
	}
	cancel()
	<-ended
	if s := rt.replica("r00"); s.State != StateReady || s.FailedChecks != 0 {
		t.Errorf("the end of Run was taken for the replica's: %+v", s)
	}
}

// tickUntilChecked ticks until the replica is checked again: a tick during a check starts
// no other.
func (rt *testRouter) tickUntilChecked(checks chan struct{}) {
	for {
		select {
		case rt.clock.ticks <- rt.clock.Now():
		case <-checks:
			return
		}
	}
}

func TestHealthAnswer(t *testing.T) {
	rt := newTestRouter(t, 3, nil)
	ask := func() (int, healthAnswer) {
		a := rt.do("GET", "/health", "")
		var h healthAnswer
		if err := json.Unmarshal([]byte(a.body), &h); err != nil {
			t.Fatal(err)
		}
		return a.status, h
	}
	code, h := ask()
	if code != 200 || h.Status != "ok" || len(h.Replicas) != 3 || h.Policy != "prefix_affinity" {
		t.Errorf("%d %+v", code, h)
	}
	rt.fakes[1].server.Close()
	rt.round()
	code, h = ask()
	if code != 200 || h.Status != "degraded" || h.Replicas[1].State != StateDown || h.Replicas[1].LastError == "" || h.Replicas[1].LastErrorAt == nil {
		t.Errorf("%d %+v", code, h)
	}
	rt.fakes[0].server.Close()
	rt.fakes[2].server.Close()
	rt.round()
	if code, h = ask(); code != 503 || h.Status != "unavailable" {
		t.Errorf("%d %+v", code, h)
	}
}

func TestUncheckedReplicaIsNotReady(t *testing.T) {
	rt := newTestRouter(t, 0, nil)
	if a := rt.post(`{"model":"m","prompt":"x"}`); a.status != 503 {
		t.Errorf("without replicas: status %d", a.status)
	}
	f := newFakeReplica(t, "late")
	if err := rt.Add(Replica{ID: "late", URL: f.server.URL}); err != nil {
		t.Fatal(err)
	}
	if a := rt.post(`{"model":"m","prompt":"x"}`); a.status != 503 || rt.state("late") != StateUnready {
		t.Errorf("not checked: status %d, %s", a.status, rt.state("late"))
	}
	rt.round()
	if a := rt.post(`{"model":"m","prompt":"x"}`); a.status != 200 {
		t.Errorf("checked: status %d", a.status)
	}
}

// What was known of a replica's cache is forgotten when it goes down, when its epoch
// changes and when it is removed.
func TestForgetting(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	f := rt.fakes[0]
	epoch := func(e string) {
		f.set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Tailor-Epoch", e)
				_, _ = w.Write([]byte("{}"))
			}
			f.healthy = func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Tailor-Epoch", e) }
		})
	}
	predicted := func() int {
		t.Helper()
		if a := rt.post(tokenBody(1, 160, 0, 10, "")); a.status != 200 {
			t.Fatalf("status %d", a.status)
		}
		rows, _ := rt.ledger.last(1)
		return rows[0].PredictedCached
	}
	epoch("1")
	if a, b := predicted(), predicted(); a != 0 || b != 160 {
		t.Errorf("at first %d, then %d tokens predicted", a, b)
	}
	rt.round()
	if n := predicted(); n != 160 {
		t.Errorf("the same epoch: %d tokens predicted", n)
	}
	epoch("2")
	rt.round()
	if a, b := predicted(), predicted(); a != 0 || b != 160 {
		t.Errorf("a new epoch in a check: %d, then %d tokens predicted", a, b)
	}
	epoch("3")
	if n := predicted(); n != 160 { // the answer brings the news
		t.Errorf("%d tokens predicted", n)
	}
	if a, b := predicted(), predicted(); a != 0 || b != 160 {
		t.Errorf("a new epoch in an answer: %d, then %d tokens predicted", a, b)
	}

	f.set(func(f *fakeReplica) { f.healthy = status(500, "") })
	rt.round()
	rt.round()
	f.set(func(f *fakeReplica) { f.healthy = status(200, "") })
	rt.round()
	if n := predicted(); n != 160 {
		t.Errorf("two failures: %d tokens predicted", n)
	}
	f.set(func(f *fakeReplica) { f.healthy = status(500, "") })
	for range 3 {
		rt.round()
	}
	f.set(func(f *fakeReplica) { f.healthy = status(200, "") })
	rt.round()
	rt.round()
	if a, b := predicted(), predicted(); a != 0 || b != 160 {
		t.Errorf("down and back: %d, then %d tokens predicted", a, b)
	}

	if err := rt.Remove("r00"); err != nil {
		t.Fatal(err)
	}
	if a := rt.post(tokenBody(1, 160, 0, 10, "")); a.status != 503 {
		t.Errorf("removed: status %d", a.status)
	}
	if err := rt.Add(Replica{ID: "r00", URL: f.server.URL}); err != nil {
		t.Fatal(err)
	}
	rt.round()
	if n := predicted(); n != 0 {
		t.Errorf("removed and added: %d tokens predicted", n)
	}
}
