package router

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tailor/router/policy"
)

// routersInARing are routers each of which has the next for a replica called "next,a", the
// last the first, and others beside it.
func routersInARing(t *testing.T, n int, others ...Replica) []*testRouter {
	t.Helper()
	servers := make([]*httptest.Server, n)
	ring := make([]*testRouter, n)
	for i := range n {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ring[i].ServeHTTP(w, r) }))
	}
	clock := newFakeClock()
	for i := range n {
		transport := newTransport()
		t.Cleanup(transport.CloseIdleConnections)
		rt, err := New(Config{
			Replicas: append([]Replica{{ID: "next,a", URL: servers[(i+1)%n].URL}}, others...),
			Clock:    clock, Transport: transport, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ring[i] = &testRouter{Router: rt, t: t, clock: clock, server: servers[i]}
	}
	t.Cleanup(func() {
		for _, s := range servers {
			s.Close()
		}
	})
	return ring
}

func TestRouterThatIsItsOwnReplica(t *testing.T) {
	f := newFakeReplica(t, "r")
	rt := routersInARing(t, 1, Replica{ID: "r", URL: f.server.URL})[0]
	rt.round()
	if s := rt.replica("next,a"); s.State != StateUnready || !strings.Contains(s.LastError, "this router itself") {
		t.Errorf("its own replica is %s: %q", s.State, s.LastError)
	}
	if a := rt.post(`{"model":"m","prompt":"x"}`); a.status != 200 || len(f.got()) != 1 {
		t.Errorf("status %d, the other replica got %d requests", a.status, len(f.got()))
	}
	// Before the first check shows it, the first request does.
	rt.registry.saw(rt.registry.replicas[0], sighting{kind: seenOK})
	a := rt.post(`{"model":"m","prompt":"x"}`, headerReplica, "next,a")
	message, kind, _, code := a.apiError(t)
	if a.status != http.StatusLoopDetected || kind != "server_error" || code != "loop_detected" ||
		!strings.Contains(message, `"next,a"`) || a.header.Get("X-Should-Retry") != "false" {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if n := counted64(rt.metrics.loops.WithLabelValues("next,a")); n != 1 {
		t.Errorf("%v requests came round, want 1", n)
	}
}

func TestRoutersInARing(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "with a replica": 1} {
		f := newFakeReplica(t, "z")
		var replicas []Replica
		if others > 0 {
			replicas = append(replicas, Replica{ID: "z", URL: f.server.URL})
		}
		ring := routersInARing(t, 3, replicas...)
		for _, rt := range ring {
			for _, r := range rt.registry.replicas {
				rt.registry.saw(r, sighting{kind: seenOK})
			}
		}
		first := ring[0]
		for _, rt := range ring {
			rt.config.Policy = firstReady{} // always the ring, as long as it may
		}
		a := first.post(`{"model":"m","prompt":"x"}`)
		if want := map[int]int{0: http.StatusLoopDetected, 1: 200}[others]; a.status != want {
			t.Fatalf("%s: status %d: %s", name, a.status, a.body)
		}
		if others > 0 {
			continue // whoever was next to the end has found the way out, and nobody saw a ring
		}
		if s := first.replica("next,a"); s.State != StateUnready || !strings.Contains(s.LastError, "leads back") {
			t.Errorf("%s: the way round is %s: %q", name, s.State, s.LastError)
		}
		for _, rt := range ring[1:] { // to whom a request came that says it came through others
			if s := rt.replica("next,a"); s.State != StateReady {
				t.Errorf("%s: %s blamed on what others say: %q", name, s.State, s.LastError)
			}
		}
		// Checks do not show it, so that they do not excuse it at once.
		first.registry.saw(first.registry.replicas[0], sighting{kind: seenOK})
		if s := first.replica("next,a"); s.State != StateUnready {
			t.Errorf("%s: a check made it %s", name, s.State)
		}
		first.clock.advance(loopWait)
		first.registry.saw(first.registry.replicas[0], sighting{kind: seenOK})
		if s := first.replica("next,a"); s.State != StateReady {
			t.Errorf("%s: %s after the wait", name, s.State)
		}
	}
}

// firstReady chooses the first that is ready.
type firstReady struct{}

func (firstReady) Name() string { return "first" }

func (firstReady) Choose(_ policy.Request, replicas []policy.Replica) (policy.Decision, error) {
	for _, r := range replicas {
		if r.Ready {
			return policy.Decision{Replica: r.ID}, nil
		}
	}
	return policy.Decision{}, policy.ErrNoReplica
}

func TestVia(t *testing.T) {
	rt := newTestRouter(t, 1, func(c *Config) { c.Name = "me" })
	send := func(via ...string) answer {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, rt.server.URL+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header[headerVia] = via
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return answer{status: resp.StatusCode}
	}
	for want, list := range map[int][][]string{
		200: {nil, {"you;replica=a"}, {"you;replica=me", "menot;replica=b"}, {"x,x,x", "x,x,x,x"}},
		508: {{"me;replica=r00"}, {"you;replica=a, me"}, {"you", " me;replica=%zz"}, {"x,x,x", "x,x,x,x,x"}},
	} {
		for _, via := range list {
			if a := send(via...); a.status != want {
				t.Errorf("%q: status %d, want %d", via, a.status, want)
			}
		}
	}
	got := rt.fakes[0].got()
	if h := strings.Join(got[2].header[headerVia], ","); h != "you;replica=me,menot;replica=b,me;replica=r00" {
		t.Errorf("sent on: %s", h)
	}
	// What others have in their headers makes no metrics of its own.
	send("me;replica=nobody")
	if n := counted64(rt.metrics.loops.WithLabelValues("")); n < 1 {
		t.Errorf("%v requests of unknown replicas", n)
	}
	// Loops are not what a replica of another kind says.
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(508, `{"error":{"message":"WebDAV","code":"other"}}`) })
	if a := rt.post(`{"model":"m","prompt":"x"}`); a.status != 508 || rt.state("r00") != StateReady {
		t.Errorf("status %d, replica %s", a.status, rt.state("r00"))
	}
}

// Whatever the header, it is refused if this router's name is in it, or too many are.
func FuzzVia(f *testing.F) {
	rt, err := New(Config{Name: "me", Replicas: []Replica{{"r0", "http://h:1"}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("you;replica=a", "me;replica=%zz")
	f.Add("", ",,,,,,,,")
	f.Add("me", "menot,notme; me")
	f.Fuzz(func(t *testing.T, first, second string) {
		names, mine := strings.Split(first+","+second, ","), false
		for _, n := range names {
			n = strings.TrimSpace(n)
			mine = mine || n == "me" || strings.HasPrefix(n, "me;")
		}
		e := rt.cameRound(http.Header{headerVia: {first, second}})
		if want := mine || len(names) >= maxHops; (e != nil) != want {
			t.Fatalf("%q, %q: %v", first, second, e)
		}
		if e != nil && (e.Status != http.StatusLoopDetected || e.Code != codeLoop) {
			t.Fatalf("%q, %q: %+v", first, second, e)
		}
	})
}
