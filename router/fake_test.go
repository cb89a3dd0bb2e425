package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tailor/router/policy"
)

// TestMain checks that no goroutine of this package outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	deadline := time.Now().Add(5 * time.Second)
	for code == 0 {
		leaked := goroutines("tailor/router.")
		if len(leaked) == 0 {
			break
		}
		if time.Now().After(deadline) {
			fmt.Printf("%d goroutines leaked, the first:\n%s\n", len(leaked), leaked[0])
			code = 1
		}
		runtime.Gosched()
	}
	os.Exit(code)
}

// goroutines returns the stacks of all other goroutines that run through code of that name.
func goroutines(name string) []string {
	buffer := make([]byte, 4<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	var found []string
	for i, stack := range strings.Split(string(buffer), "\n\n") {
		if i > 0 && strings.Contains(stack, name) { // the first is the caller's own
			found = append(found, stack)
		}
	}
	return found
}

// fakeClock stands still unless told otherwise, and ticks when told.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Time
	ticks chan time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ticks: make(chan time.Time)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *fakeClock) Tick(time.Duration) (<-chan time.Time, func()) { return c.ticks, func() {} }

// seen is a request as it reached a replica.
type seen struct {
	method, uri, body string
	header            http.Header
}

// fakeReplica records what it is asked and answers as the test says.
type fakeReplica struct {
	id     string
	server *httptest.Server

	mu       sync.Mutex
	requests []seen
	healthy  http.HandlerFunc
	models   http.HandlerFunc
	answer   http.HandlerFunc
}

const wholeAnswer = `{"id":"cmpl-1","object":"text_completion","choices":[]}`

func newFakeReplica(t testing.TB, id string) *fakeReplica {
	f := &fakeReplica{
		id:      id,
		healthy: func(w http.ResponseWriter, r *http.Request) {},
		models:  http.NotFound,
		answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, wholeAnswer)
		},
	}
	f.server = httptest.NewUnstartedServer(f)
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.server.Start()
	t.Cleanup(f.server.Close)
	return f
}

func (f *fakeReplica) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		f.mu.Lock()
		healthy := f.healthy
		f.mu.Unlock()
		healthy(w, r)
		return
	}
	if r.URL.Path == "/v1/models" {
		f.mu.Lock()
		models := f.models
		f.mu.Unlock()
		models(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, seen{r.Method, r.RequestURI, string(body), r.Header})
	answer := f.answer
	f.mu.Unlock()
	answer(w, r)
}

func (f *fakeReplica) set(change func(*fakeReplica)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// got returns the requests that reached the replica.
func (f *fakeReplica) got() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen(nil), f.requests...)
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// testRouter is a router with fake replicas behind it and a server in front.
type testRouter struct {
	*Router
	t      testing.TB
	clock  *fakeClock
	server *httptest.Server
	fakes  []*fakeReplica
}

// newTestRouter starts n fake replicas and a router that has found them well.
func newTestRouter(t testing.TB, n int, change func(*Config)) *testRouter {
	t.Helper()
	rt := &testRouter{t: t, clock: newFakeClock()}
	transport := newTransport()
	config := Config{Clock: rt.clock, Transport: transport, Log: slog.New(slog.DiscardHandler)}
	for i := range n {
		f := newFakeReplica(t, fmt.Sprintf("r%02d", i))
		rt.fakes = append(rt.fakes, f)
		config.Replicas = append(config.Replicas, Replica{ID: f.id, URL: f.server.URL})
	}
	if change != nil {
		change(&config)
	}
	var err error
	if rt.Router, err = New(config); err != nil {
		t.Fatal(err)
	}
	rt.server = httptest.NewUnstartedServer(rt.Router)
	rt.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	rt.server.Start()
	t.Cleanup(transport.CloseIdleConnections) // last: replicas wait for their connections
	t.Cleanup(rt.server.Close)
	rt.round()
	return rt
}

// round checks every replica once.
func (rt *testRouter) round() {
	var checks sync.WaitGroup
	rt.checkAll(rt.t.Context(), &checks)
	checks.Wait()
}

func (rt *testRouter) state(id string) State { return rt.replica(id).State }

func (rt *testRouter) replica(id string) ReplicaStatus {
	for _, s := range rt.registry.status() {
		if s.ID == id {
			return s
		}
	}
	rt.t.Fatalf("no replica %q", id)
	return ReplicaStatus{}
}

// answer is a whole answer of the router.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (rt *testRouter) post(body string, headers ...string) answer {
	return rt.do(http.MethodPost, "/v1/completions", body, headers...)
}

func (rt *testRouter) do(method, path, body string, headers ...string) answer {
	rt.t.Helper()
	resp := rt.open(rt.t.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(data), err}
}

// open sends a request and returns when the head of the answer is there.
func (rt *testRouter) open(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	rt.t.Helper()
	resp, err := rt.request(ctx, method, path, body, headers...)
	if err != nil {
		rt.t.Fatal(err)
	}
	return resp
}

func (rt *testRouter) request(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, rt.server.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return rt.server.Client().Do(req)
}

// rows returns the ledger, oldest first, once it holds want rows: that of a stream that
// broke off, or whose client has gone, may come after the client knows.
func (rt *testRouter) rows(want int) []Row {
	rt.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		rows, written := rt.ledger.last(1 << 20)
		if int(written) >= want {
			if int(written) > want {
				rt.t.Fatalf("%d ledger rows, want %d", written, want)
			}
			for i, j := 0, len(rows)-1; i < j; i, j = i+1, j-1 {
				rows[i], rows[j] = rows[j], rows[i]
			}
			return rows
		}
		if time.Now().After(deadline) {
			rt.t.Fatalf("%d ledger rows, want %d", written, want)
		}
		runtime.Gosched()
	}
}

// idle fails the test if any load is still booked.
func (rt *testRouter) idle() {
	rt.t.Helper()
	for _, s := range rt.registry.status() {
		if s.InFlight != 0 || s.InFlightTokens != 0 {
			rt.t.Errorf("%s: %d requests, %d tokens left in flight", s.ID, s.InFlight, s.InFlightTokens)
		}
	}
}

// apiError reads an error in OpenAI's shape, and fails unless all four keys are there.
func (a answer) apiError(t testing.TB) (message, kind, param, code string) {
	t.Helper()
	var body struct{ Error map[string]*string }
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatalf("status %d: not an error in OpenAI's shape: %q: %v", a.status, a.body, err)
	}
	values := make([]string, 4)
	for i, key := range []string{"message", "type", "param", "code"} {
		v, ok := body.Error[key]
		if !ok {
			t.Fatalf("status %d: the error has no key %q: %s", a.status, key, a.body)
		}
		if v != nil {
			values[i] = *v
		}
	}
	return values[0], values[1], values[2], values[3]
}

// tokenBody is a request whose first prefixTokens tokens depend on prefix alone.
func tokenBody(prefix, prefixTokens, suffix, suffixTokens int, more string) string {
	var b bytes.Buffer
	b.WriteString(`{"model":"m","prompt":[`)
	for i := range prefixTokens + suffixTokens {
		if i > 0 {
			b.WriteByte(',')
		}
		if i < prefixTokens {
			fmt.Fprint(&b, (prefix*7919+i*31)%4096)
		} else {
			fmt.Fprint(&b, (prefix*7919+suffix*104729+i*17)%4096)
		}
	}
	b.WriteString("]" + more + "}")
	return b.String()
}

func withPolicy(name string) func(*Config) {
	return func(c *Config) {
		p, err := policy.New(name, policy.DefaultOptions())
		if err != nil {
			panic(err)
		}
		c.Policy = p
	}
}
