package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tailor/internal/openai"
	"tailor/server/engine"
)

func TestParseKeys(t *testing.T) {
	keys, err := ParseKeys("# ours\n\nalice: s3cret-1 \nplain-key\nbob:x:y\n")
	if want := "[{alice s3cret-1} {key4 plain-key} {bob x:y}]"; err != nil || fmt.Sprint(keys) != want {
		t.Errorf("got %v, %v; want %s", keys, err, want)
	}
	if keys, err := ParseKeys("\n#\n"); len(keys) != 0 || err != nil {
		t.Errorf("got %v, %v", keys, err)
	}
	for _, text := range []string{"a b", "x\nal ice:secret", ":secret", "name:", "name:se cret", "name:sécret", "näme:secret"} {
		if _, err := ParseKeys(text); !errors.Is(err, ErrKey) || strings.Contains(err.Error(), "ecret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAPIKeys(t *testing.T) {
	e := says(spell(t, "a"), 0)
	r := newRig(t, e, func(c *Config) { c.Keys = []Key{{"alice", "k1"}, {"bob", "a-much-longer-key"}} })
	for _, tt := range []struct {
		authorization string
		ok            bool
	}{
		{"Bearer k1", true}, {"bearer k1", true}, {"Bearer a-much-longer-key", true}, {"Bearer  k1 ", true},
		{"", false}, {"Bearer", false}, {"Bearer ", false}, {"Bearer k", false}, {"Bearer k11", false}, {"Bearer K1", false}, {"k1", false}, {"Basic k1", false},
	} {
		a := r.do("POST", "/v1/completions", request(""), "Authorization", tt.authorization)
		if tt.ok {
			if a.status != 200 {
				t.Errorf("%q: status %d", tt.authorization, a.status)
			}
			continue
		}
		got := a.mustRefuse(t, 401, "")
		if got.Code != "invalid_api_key" || a.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(a.body, "k11") {
			t.Errorf("%q: %s, header %v", tt.authorization, a.body, a.header)
		}
	}
	if n := len(e.submitted()); n != 4 {
		t.Errorf("%d requests reached the engine, want 4", n)
	}
	for _, path := range []string{"/health", "/version", "/metrics"} {
		if a := r.do("GET", path, ""); a.status != 200 {
			t.Errorf("%s without a key: status %d", path, a.status)
		}
	}
	for _, path := range []string{"/v1/models", "/v1/models/" + testModel, "/v1/cache", "/get_server_info", "/nothing", "//health", "/health/"} {
		if a := r.do("GET", path, ""); a.status != 401 {
			t.Errorf("%s without a key: status %d", path, a.status)
		}
	}
	for _, path := range []string{"/tokenize", "/detokenize", "/reset_prefix_cache", "/flush_cache", "/v1/chat/completions"} {
		r.do("POST", path, "{}").mustRefuse(t, 401, "")
	}
	lines := logLines(t, r)
	if lines[0]["tenant"] != "alice" || lines[2]["tenant"] != "bob" || lines[4]["tenant"] != nil {
		t.Errorf("log lines %v", lines[:5])
	}
	if log := r.log.String(); strings.Contains(log, "much-longer") || strings.Contains(log, "k11") {
		t.Error("a key is in the log")
	}
}

// Fault 14, as pairs: of keys, and of salts under one key. Nobody can choose his way in.
func TestFault14_KeysAreIsolated(t *testing.T) {
	r, e := realRig(t, 256, func(c *Config) {
		c.Keys, c.IsolateKeys = []Key{{"alice", "ka"}, {"bob", "kb"}, {Operator, "ko"}}, true
	})
	ask := func(key, salt string) (cached bool, header string) {
		t.Helper()
		if salt != "" {
			salt = fmt.Sprintf(`,"cache_salt":%q`, salt)
		}
		a := r.do("POST", "/v1/completions", request(table+`,"max_tokens":2`+salt), "Authorization", "Bearer "+key)
		if a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		return !strings.Contains(a.body, `"cached_tokens":0`), a.header.Get("x-tailor-cache")
	}
	for i, tt := range []struct {
		key, salt string
		hit       bool
	}{
		{"ka", "", false}, {"ka", "", true}, {"kb", "", false}, {"kb", "", true}, {"ka", "s", false}, {"ka", "s", true}, {"kb", "s", false},
		{"kb", openai.SaltOfKey("ka", ""), false}, {"kb", openai.SaltOfKey("ka", "s"), false}, {"ka", "", true},
	} {
		hit, header := ask(tt.key, tt.salt)
		if hit != tt.hit {
			t.Errorf("request %d, %s with salt %q: hit %v, want %v", i, tt.key, tt.salt, hit, tt.hit)
		}
		// That others have had the same computed is not told to the client.
		if strings.Contains(header, "salt") || !tt.hit && !strings.Contains(header, "reason=cold") {
			t.Errorf("request %d: header %q", i, header)
		}
	}
	mustBeIdle(t, e)
	for path, method := range map[string]string{"/v1/cache": "GET", "/reset_prefix_cache": "POST", "/flush_cache": "POST"} {
		r.do(method, path, "", "Authorization", "Bearer ka").mustRefuse(t, 403, "")
		if a := r.do(method, path, "", "Authorization", "Bearer ko"); a.status == 403 {
			t.Errorf("%s: the operator is kept out", path)
		}
	}
	if log := r.log.String(); !strings.Contains(log, `"miss":"salt"`) {
		t.Error("the operator's log does not say why bob missed")
	}
}

func TestRequestsPerMinute(t *testing.T) {
	e := says(spell(t, "a"), 0)
	r := newRig(t, e, func(c *Config) { c.Keys, c.RequestsPerMinute = []Key{{"alice", "ka"}, {"bob", "kb"}}, 3 })
	for i := range 5 {
		a := r.do("POST", "/v1/completions", request(""), "Authorization", "Bearer ka")
		if i < 3 && a.status == 200 {
			continue
		}
		got := a.mustRefuse(t, 429, "")
		if i < 3 || a.header.Get("Retry-After") == "" || got.Code != "rate_limit_exceeded" || !strings.Contains(got.Message, "3") {
			t.Errorf("request %d: %s, header %v", i, a.body, a.header)
		}
	}
	if a := r.do("POST", "/v1/completions", request(""), "Authorization", "Bearer kb"); a.status != 200 {
		t.Errorf("the other key: status %d", a.status)
	}
	if a := r.do("GET", "/v1/models", "", "Authorization", "Bearer ka"); a.status != 200 {
		t.Errorf("models: status %d", a.status)
	}
	// Without keys addresses are limited.
	open := newRig(t, e, func(c *Config) { c.RequestsPerMinute = 1 })
	for i, want := range []int{200, 429} {
		if a := open.do("POST", "/v1/completions", request("")); a.status != want {
			t.Errorf("request %d: status %d", i, a.status)
		}
	}
}

func TestOrigins(t *testing.T) {
	preflight := []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}
	shut := newRig(t, says(spell(t, "a"), 0))
	for _, a := range []answer{shut.do("OPTIONS", "/v1/completions", "", preflight...), shut.do("POST", "/v1/completions", request(""), preflight...)} {
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control") {
				t.Errorf("%s is set though nobody asked for it", name)
			}
		}
	}
	open := newRig(t, says(spell(t, "a"), 0), func(c *Config) { c.AllowedOrigins, c.Keys = []string{"https://a.example"}, []Key{{"k", "k"}} })
	a := open.do("OPTIONS", "/v1/completions", "", preflight...)
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != "https://a.example" || !strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: status %d, header %v", a.status, a.header)
	}
	a = open.do("POST", "/v1/completions", request(""), append(preflight, "Authorization", "Bearer k")...)
	if a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "https://a.example" || a.header.Get("Vary") != "Origin" {
		t.Errorf("status %d, header %v", a.status, a.header)
	}
	if a := open.do("POST", "/v1/completions", request(""), "Origin", "https://b.example", "Authorization", "Bearer k"); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: header %v", a.header)
	}
	if a := open.do("OPTIONS", "/v1/completions", "", "Origin", "https://b.example", "Access-Control-Request-Method", "POST"); a.status != 401 {
		t.Errorf("another origin's preflight: status %d", a.status)
	}
}

// The time that a client gives an answer ends the engine's work and is told, in the status
// or in the stream.
func TestRequestTimeout(t *testing.T) {
	id := spell(t, "a")[0]
	e := &scriptedEngine{}
	e.script = func(ctx context.Context, r engine.Request, out chan<- engine.Event) {
		if r.MaxTokens == 1 {
			out <- engine.Event{Token: id}
		}
		waitForAbort(ctx, r, out)
	}
	r := newRig(t, e)
	a := r.do("POST", "/v1/completions", request(`"max_tokens":2`), "x-request-timeout", "0.05")
	if got := a.mustRefuse(t, 504, ""); got.Code != "request_timeout" || a.header.Get("x-should-retry") != "false" || !strings.Contains(got.Message, "50ms") {
		t.Errorf("%s, header %v", a.body, a.header)
	}
	a = r.do("POST", "/v1/completions", request(`"max_tokens":1,"stream":true`), "x-request-timeout", "0.05")
	if a.status != 200 || !strings.Contains(a.body, "request_timeout") || strings.Contains(a.body, "[DONE]") {
		t.Errorf("streamed %d %s", a.status, a.body)
	}
	e.running.Wait()
	for _, bad := range []string{"0", "-1", "soon", "NaN", "Inf", "1e9", "5s"} {
		r.do("POST", "/v1/completions", request(""), "x-request-timeout", bad).mustRefuse(t, 400, "x-request-timeout")
	}
	// The engine's own limit is told alike.
	e.refuse = fmt.Errorf("%w: more than 1s", engine.ErrTimeout)
	r.do("POST", "/v1/completions", request("")).mustRefuse(t, 504, "")
}

func TestCacheHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		report engine.CacheReport
		want   string
	}{
		"all":     {engine.CacheReport{Matched: 31, Missed: 1}, "matched=31, missed=1"},
		"cold":    {engine.CacheReport{Missed: 32, Reason: engine.MissCold}, "matched=0, missed=32, reason=cold"},
		"salt":    {engine.CacheReport{Missed: 32, Reason: engine.MissSalt}, "matched=0, missed=32, reason=cold"},
		"evicted": {engine.CacheReport{Matched: 8, Missed: 24, Reason: engine.MissEvicted, EvictedAgo: 12340 * time.Millisecond}, "matched=8, missed=24, reason=evicted, evicted_ago=12.3"},
	} {
		e := &scriptedEngine{}
		e.script = func(_ context.Context, _ engine.Request, out chan<- engine.Event) {
			out <- engine.Event{Token: 7, Cache: tt.report, Finish: engine.FinishLength}
		}
		r := newRig(t, e)
		for _, fields := range []string{"", `"stream":true`} {
			if got := r.do("POST", "/v1/completions", request(fields)).header.Get("x-tailor-cache"); got != tt.want {
				t.Errorf("%s, %s: %q, want %q", name, fields, got, tt.want)
			}
		}
		reason := string(tt.report.Reason)
		if line := logLines(t, r)[0]; reason != "" && line["miss"] != reason {
			t.Errorf("%s: the log says %v", name, line["miss"])
		}
	}
	r, e := realRig(t, 256)
	first := r.do("POST", "/v1/completions", request(table))
	second := r.do("POST", "/v1/completions", request(table))
	if got := first.header.Get("x-tailor-cache"); !strings.HasPrefix(got, "matched=0, missed=") || !strings.HasSuffix(got, "reason=cold") {
		t.Errorf("first: %q", got)
	}
	if got := second.header.Get("x-tailor-cache"); !strings.HasSuffix(got, ", missed=1") {
		t.Errorf("second: %q", got)
	}
	mustBeIdle(t, e)
}

func TestServerInfoAndCache(t *testing.T) {
	limits := []int{}
	r := newRig(t, says(nil, 0), func(c *Config) {
		c.Settings = map[string]any{"threads": 2}
		c.Keys = []Key{{"a", "secret-key"}}
		c.View = func(_ context.Context, limit int) (any, error) {
			limits = append(limits, limit)
			return map[string]int{"nodes": limit}, nil
		}
	})
	key := []string{"Authorization", "Bearer secret-key"}
	a := r.do("GET", "/get_server_info", "", key...)
	for _, want := range []string{`"version":"v-test"`, `"threads":2`, `"max_model_len":1024`, `"isolate_keys":false`, `"kv_blocks":{`} {
		if a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("status %d, %s lacks %s", a.status, a.body, want)
		}
	}
	if strings.Contains(a.body, "secret") {
		t.Errorf("a key is in %s", a.body)
	}
	for query, want := range map[string]string{"": `{"nodes":100}`, "?limit=0": `{"nodes":0}`, "?limit=1000": `{"nodes":1000}`} {
		if a := r.do("GET", "/v1/cache"+query, "", key...); a.body != want {
			t.Errorf("%s: %s", query, a.body)
		}
	}
	for _, query := range []string{"?limit=-1", "?limit=1001", "?limit=x"} {
		r.do("GET", "/v1/cache"+query, "", key...).mustRefuse(t, 400, "limit")
	}
	if len(limits) != 3 {
		t.Errorf("asked for %v", limits)
	}
	w := httptest.NewRecorder()
	newRig(t, says(nil, 0)).Handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/cache", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a view: status %d", w.Code)
	}
}
