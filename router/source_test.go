package router

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func (rt *testRouter) ids() []string {
	var out []string
	for _, s := range rt.registry.status() {
		out = append(out, s.ID+"="+s.URL)
	}
	return out
}

func TestParseReplica(t *testing.T) {
	for text, want := range map[string]Replica{
		"http://h:1":        {ID: "h:1", URL: "http://h:1"},
		"a=http://h:1":      {ID: "a", URL: "http://h:1"},
		" a=http://h:1/b ":  {ID: "a", URL: "http://h:1/b"},
		"https://h/x":       {ID: "h", URL: "https://h/x"},
		"a=http://h:1/?x=y": {},
		"":                  {},
		"h:1":               {},
		"a b=http://h:1":    {},
	} {
		r, err := ParseReplica(text)
		if want.ID == "" {
			if !errors.Is(err, ErrReplica) {
				t.Errorf("%q: %+v, %v", text, r, err)
			}
		} else if err != nil || r != want {
			t.Errorf("%q: %+v, %v; want %+v", text, r, err, want)
		}
	}
}

func TestFileSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replicas")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# the fleet\n\na=http://h:1\r\n  http://h:2\n")
	got, err := FileSource{path}.Replicas(t.Context())
	if want := []Replica{{"a", "http://h:1"}, {"h:2", "http://h:2"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	write("a=http://h:1\nnonsense\n")
	if _, err := (FileSource{path}).Replicas(t.Context()); !errors.Is(err, ErrReplica) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a bad line: %v", err)
	}
}

// fakeResolver answers as told.
type fakeResolver struct {
	hosts []string
	srv   []*net.SRV
	err   error
	asked string
}

func (r *fakeResolver) LookupHost(_ context.Context, host string) ([]string, error) {
	r.asked = host
	return r.hosts, r.err
}

func (r *fakeResolver) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	r.asked = service + "|" + proto + "|" + name
	return "", r.srv, r.err
}

func TestDNSSource(t *testing.T) {
	r := &fakeResolver{hosts: []string{"10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"}}
	got, err := DNSSource{r, "tailor-replicas:8081"}.Replicas(t.Context())
	want := []Replica{
		{"10.0.0.1:8081", "http://10.0.0.1:8081"}, {"10.0.0.2:8081", "http://10.0.0.2:8081"}, {"[fd00::1]:8081", "http://[fd00::1]:8081"},
	}
	if err != nil || !slices.Equal(got, want) || r.asked != "tailor-replicas" {
		t.Errorf("%+v, %v, asked for %q", got, err, r.asked)
	}
	r = &fakeResolver{srv: []*net.SRV{{Target: "b.svc.", Port: 8081}, {Target: "a.svc.", Port: 9000}}}
	got, err = DNSSource{r, "_http._tcp.tailor-replicas"}.Replicas(t.Context())
	want = []Replica{{"a.svc:9000", "http://a.svc:9000"}, {"b.svc:8081", "http://b.svc:8081"}}
	if err != nil || !slices.Equal(got, want) || r.asked != "||_http._tcp.tailor-replicas" {
		t.Errorf("%+v, %v, asked for %q", got, err, r.asked)
	}
	for _, w := range want {
		if _, err := w.parse(); err != nil {
			t.Error(err)
		}
	}
	for _, target := range []string{"", "host", "host:", ":80", "host:0", "host:http", "_http.name", "_http._tcp", "_http.tcp.name"} {
		if err := (DNSSource{r, target}).Validate(); !errors.Is(err, ErrReplica) {
			t.Errorf("%q: %v", target, err)
		}
	}
	if _, err := (DNSSource{&fakeResolver{}, "h:1"}).Replicas(t.Context()); err == nil {
		t.Error("no address is no error")
	}
}

func TestReconcile(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	keep := rt.ids()[0]
	g := rt.registry
	check := func(what string, err error, bad bool, want ...string) {
		t.Helper()
		if (err != nil) != bad {
			t.Errorf("%s: %v", what, err)
		}
		if got := rt.ids(); !slices.Equal(got, append(want, keep)) {
			t.Errorf("%s: %v", what, got)
		}
	}
	a, b := Replica{"a", "http://h:1"}, Replica{"b", "http://h:2"}
	check("two come", g.reconcile("s", []Replica{a, b}), false, "a=http://h:1", "b=http://h:2")
	first := g.replicas[0]
	check("nothing changes", g.reconcile("s", []Replica{b, a}), false, "a=http://h:1", "b=http://h:2")
	if g.replicas[0] != first {
		t.Error("a replica that stayed was replaced")
	}
	check("one goes", g.reconcile("s", []Replica{a}), false, "a=http://h:1")
	check("one moves", g.reconcile("s", []Replica{{"a", "http://h:9"}}), false, "a=http://h:9")
	check("another source's", g.reconcile("s2", []Replica{b}), false, "a=http://h:9", "b=http://h:2")
	check("an ID that is taken", g.reconcile("s", []Replica{{"a", "http://h:9"}, {"b", "http://h:3"}}), true, "a=http://h:9", "b=http://h:2")
	check("a bad one", g.reconcile("s", []Replica{{"a", "http://h:9"}, {"x", "nonsense"}}), true, "a=http://h:9", "b=http://h:2")
	check("all go", g.reconcile("s", nil), false, "b=http://h:2")
	check("and the others'", g.reconcile("s2", nil), false)
}

// scripted is a source that answers in turn.
type scripted struct{ answers chan any }

func (scripted) Name() string { return "scripted" }

func (s scripted) Replicas(ctx context.Context) ([]Replica, error) {
	switch a := (<-s.answers).(type) {
	case []Replica:
		return a, nil
	case error:
		return nil, a
	}
	panic("no answer")
}

// A source that fails takes nobody with it.
func TestFailingSourceKeepsReplicas(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	s := scripted{make(chan any)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); rt.watchSource(ctx, s) }()
	s.answers <- []Replica{{"a", "http://h:1"}}
	rt.clock.ticks <- time.Time{}
	s.answers <- errors.New("the name server is away")
	rt.clock.ticks <- time.Time{}
	if ids := rt.ids(); len(ids) != 2 {
		t.Errorf("after a failure: %v", ids)
	}
	s.answers <- []Replica{}
	rt.clock.ticks <- time.Time{}
	if ids := rt.ids(); len(ids) != 1 {
		t.Errorf("after all have gone: %v", ids)
	}
	stop()
	s.answers <- []Replica{}
	<-done
}

func TestAdmin(t *testing.T) {
	rt := newTestRouter(t, 2, func(c *Config) { c.AdminToken = "secret" })
	key := []string{"Authorization", "Bearer secret"}
	extra := newFakeReplica(t, "extra")
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		status             int
	}{
		{"POST", "/v1/replicas", `{"id":"x","url":"http://h:1"}`, nil, 401},
		{"POST", "/v1/replicas", `{"id":"x","url":"http://h:1"}`, []string{"Authorization", "Bearer secre"}, 401},
		{"DELETE", "/v1/replicas/r00", ``, nil, 401},
		{"POST", "/v1/replicas", `{"id":"x","url":"nonsense"}`, key, 400},
		{"POST", "/v1/replicas", `{`, key, 400},
		{"POST", "/v1/replicas", `{"id":"r00","url":"http://h:1"}`, key, 400},
		{"DELETE", "/v1/replicas/nobody", ``, key, 404},
		{"POST", "/v1/replicas/nobody/drain", ``, key, 404},
		{"POST", "/v1/replicas", `{"id":"extra","url":"` + extra.server.URL + `"}`, key, 201},
		{"POST", "/v1/replicas/r00/drain", ``, key, 200},
		{"DELETE", "/v1/replicas/r01", ``, key, 200},
		{"DELETE", "/v1/replicas/r01", ``, key, 404},
	} {
		if a := rt.do(tt.method, tt.path, tt.body, tt.headers...); a.status != tt.status {
			t.Errorf("%s %s %s: status %d, want %d: %s", tt.method, tt.path, tt.body, a.status, tt.status, a.body)
		}
	}
	rt.round()
	for range 10 {
		if a := rt.post(`{"model":"m","prompt":"x"}`); a.header.Get(headerReplica) != "extra" {
			t.Fatalf("served by %q with r00 drained and r01 removed", a.header.Get(headerReplica))
		}
	}
	if s := rt.replica("r00"); !s.Held || s.State != StateReady {
		t.Errorf("drained: %+v", s)
	}
	if a := rt.do("DELETE", "/v1/replicas/r00/drain", "", key...); a.status != 200 {
		t.Fatal(a.status)
	}
	if a := rt.post(`{"model":"m","prompt":"x"}`, headerReplica, "r00"); a.status != http.StatusOK {
		t.Errorf("after the drain was lifted: status %d", a.status)
	}
	none := newTestRouter(t, 1, nil)
	if a := none.do("POST", "/v1/replicas", `{"id":"x","url":"http://h:1"}`, "Authorization", "Bearer "); a.status != 403 {
		t.Errorf("without a token: status %d", a.status)
	}
}
