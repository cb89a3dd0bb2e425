package router

import (
	"net/http"
	"strings"
	"testing"
)

// With keys, what they are for depends on whose they are; without, all is open but what
// changes replicas.
func TestWhoMaySeeWhat(t *testing.T) {
	one := []Key{{"a", "ka"}, {"a", "ka2"}}
	several := []Key{{"a", "ka"}, {"b", "kb"}, {Operator, "ko"}}
	const (
		use   = "POST /v1/completions"
		other = "POST /v1/embeddings"
		list  = "GET /v1/models"
		rows  = "GET /v1/ledger"
		fleet = "GET /v1/replicas"
		drain = "DELETE /v1/replicas/r00/drain"
		probe = "GET /health"
	)
	for _, tt := range []struct {
		name string
		keys []Key
		want map[string]map[string]int // by who asks, by what
	}{
		{"no keys", nil, map[string]map[string]int{
			"":    {use: 200, other: 200, list: 200, rows: 200, fleet: 200, drain: 401, probe: 200},
			"any": {use: 200, other: 200, list: 200, rows: 200, fleet: 200, drain: 401, probe: 200},
			"adm": {use: 200, rows: 200, drain: 200},
		}},
		{"one tenant", one, map[string]map[string]int{
			"":    {use: 401, other: 401, list: 401, rows: 401, fleet: 401, drain: 401, probe: 200},
			"ka":  {use: 200, other: 200, list: 200, rows: 200, fleet: 200, drain: 401},
			"ka2": {use: 200, rows: 200},
			"adm": {use: 401, rows: 200, fleet: 200, drain: 200},
		}},
		{"several", several, map[string]map[string]int{
			"":    {use: 401, other: 401, list: 401, rows: 401, fleet: 401, drain: 401, probe: 200},
			"no":  {use: 401, rows: 401},
			"ka":  {use: 200, other: 200, list: 200, rows: 403, fleet: 403, drain: 401, probe: 200},
			"ko":  {use: 200, rows: 200, fleet: 200, drain: 401},
			"adm": {use: 401, rows: 200, fleet: 200, drain: 200},
		}},
	} {
		rt := newTestRouter(t, 1, func(c *Config) { c.Keys, c.AdminToken = tt.keys, "adm" })
		rt.fakes[0].set(func(f *fakeReplica) { f.models = serving("m") })
		for who, wants := range tt.want {
			for what, want := range wants {
				method, path, _ := strings.Cut(what, " ")
				var headers []string
				if who != "" {
					headers = []string{"Authorization", "bearer " + who}
				}
				a := rt.do(method, path, `{"model":"m","prompt":"x"}`, headers...)
				if a.status != want {
					t.Errorf("%s: %q asks %s: %d, want %d: %s", tt.name, who, what, a.status, want, a.body)
				}
				if a.status == 401 || a.status == 403 {
					message, _, _, code := a.apiError(t)
					if who != "" && strings.Contains(message, who+" ") || code == "" {
						t.Errorf("%s: %s", tt.name, a.body)
					}
				}
				if what == probe && strings.Contains(a.body, `"replicas"`) != (tt.keys == nil) {
					t.Errorf("%s: %q reads of the replicas in %s", tt.name, who, a.body)
				}
			}
		}
		for _, seen := range rt.fakes[0].got() {
			if tt.keys != nil && !strings.HasPrefix(seen.header.Get("Authorization"), "bearer k") {
				t.Errorf("%s: the replica got Authorization %q", tt.name, seen.header.Get("Authorization"))
			}
		}
	}
}

func TestHead(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	for _, path := range []string{"/health", "/metrics", "/version", "/v1/replicas", "/v1/ledger"} {
		a, b := rt.do("HEAD", path, ""), rt.do("GET", path, "")
		if a.status != 200 || a.body != "" || b.body == "" || a.header.Get("Content-Type") != b.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %q", path, a.status, a.body)
		}
		if a.header.Get("X-Request-Id") == "" {
			t.Errorf("HEAD %s has no request id", path)
		}
	}
	// A router holds no cache, and does not give one replica's for its own.
	for _, path := range []string{"/v1/cache", "/v1/cache/events?from=0", "/v1/cache/snapshot"} {
		a := rt.do("GET", path, "")
		if _, _, _, code := a.apiError(t); a.status != 404 || code != "not_found" || len(rt.fakes[0].got()) != 0 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestOrigins(t *testing.T) {
	const mine, page = "https://mine.example", "Origin"
	rt := newTestRouter(t, 1, func(c *Config) { c.AllowedOrigins, c.Keys = []string{mine}, []Key{{"a", "ka"}} })
	rt.fakes[0].set(func(f *fakeReplica) {
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Vary", "Accept")
		}
	})
	a := rt.do("OPTIONS", "/v1/completions", "", page, mine, "Access-Control-Request-Method", "POST")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != mine || !strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("asked beforehand: %d %v", a.status, a.header)
	}
	a = rt.post(`{"model":"m","prompt":"x"}`, page, mine, "Authorization", "Bearer ka")
	if a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != mine || strings.Join(a.header["Vary"], " ") != "Origin Accept" {
		t.Errorf("%d %v", a.status, a.header)
	}
	a = rt.post(`{"model":"m","prompt":"x"}`, page, "https://other.example", "Authorization", "Bearer ka")
	if a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin is let in: %v", a.header)
	}
	if a := rt.do("OPTIONS", "/v1/completions", "", page, "https://other.example", "Access-Control-Request-Method", "POST"); a.status == 204 {
		t.Error("another origin may send what it likes")
	}
	// A refusal must be readable by the page as well.
	if a := rt.post(`{"model":"m","prompt":"x"}`, page, mine); a.status != 401 || a.header.Get("Access-Control-Allow-Origin") != mine {
		t.Errorf("%d %v", a.status, a.header)
	}
}

// Of a request's name only what belongs into logs is kept.
func TestRequestIDIsCleaned(t *testing.T) {
	for sent, want := range map[string]string{
		"abc-1_2.3:4": "abc-1_2.3:4", `a"b\c d<e>`: "abcde", "x\tü€": "x", strings.Repeat("k", 200): strings.Repeat("k", 128),
	} {
		if got := requestID(http.Header{headerRequest: {sent}}); got != want {
			t.Errorf("%q becomes %q, want %q", sent, got, want)
		}
	}
	for _, sent := range []string{"", "\"\"", "   "} {
		if got := requestID(http.Header{headerRequest: {sent}}); !strings.HasPrefix(got, "req-") || len(got) < 20 {
			t.Errorf("%q becomes %q", sent, got)
		}
	}
}
