package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"tailor/server/engine"
)

func TestRequestID(t *testing.T) {
	e := says(spell(t, "a"), 0)
	r := newRig(t, e)
	for sent, want := range map[string]string{
		"abc-1.2:3_X":                "abc-1.2:3_X",
		`a b"c<d>ü`:                  "abcd",
		strings.Repeat("x", 200):     strings.Repeat("x", 128),
		"../../etc; rm {}\\\t'${x}'": "....etcrmx",
	} {
		a := r.do("POST", "/v1/completions", request(""), "x-request-id", sent)
		if got := a.header.Get("X-Request-Id"); got != want {
			t.Errorf("%q: id %q, want %q", sent, got, want)
		}
		if !strings.Contains(a.body, `"id":"cmpl-`+want+`"`) {
			t.Errorf("%q: %s", sent, a.body)
		}
		requests := e.submitted()
		if got := requests[len(requests)-1].ID; got != want {
			t.Errorf("%q: the engine got id %q", sent, got)
		}
	}
	one, two := r.do("GET", "/health", "").header.Get("X-Request-Id"), r.do("GET", "/health", "", "x-request-id", "<>").header.Get("X-Request-Id")
	if len(one) < 20 || len(two) < 20 || one == two {
		t.Errorf("ids made: %q, %q", one, two)
	}
}

// logLines are the access log's lines but those of probes.
func logLines(t *testing.T, r *rig) []map[string]any {
	t.Helper()
	r.http.Close() // handlers have ended, and written their lines
	var lines []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var out map[string]any
		if err := json.Unmarshal([]byte(line), &out); err != nil {
			t.Fatal(err)
		}
		if out["msg"] == "request" {
			lines = append(lines, out)
		}
	}
	return lines
}

func TestAccessLog(t *testing.T) {
	r := newRig(t, says(spell(t, "abc"), 2))
	r.do("POST", "/v1/completions", `{"model":"tailor-4m","prompt":[1,2,3],"max_tokens":3}`, "x-request-id", "one")
	r.do("POST", "/v1/completions", `{"model":"tailor-4m","prompt":[1,2,3],"stream":true,"stop":"b"}`, "x-request-id", "two")
	r.do("POST", "/v1/completions", request(`"n":500`), "x-request-id", "three")
	r.do("GET", "/health", "", "x-request-id", "four")
	lines := logLines(t, r)
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4: %v", len(lines), lines)
	}
	for i, want := range []map[string]any{
		{"id": "one", "level": "INFO", "method": "POST", "path": "/v1/completions", "status": 200.0, "prompt_tokens": 3.0,
			"cached_tokens": 2.0, "generated_tokens": 3.0, "finish": "length", "queue": 0.0, "ttft": 0.0, "error": nil},
		{"id": "two", "level": "INFO", "status": 200.0, "generated_tokens": 2.0, "finish": "stop", "error": nil},
		{"id": "three", "level": "INFO", "status": 400.0, "finish": nil, "error": "n: 500 is not within 1 to 128"},
		{"id": "four", "level": "DEBUG", "status": 200.0, "finish": nil},
	} {
		for key, value := range want {
			if lines[i][key] != value {
				t.Errorf("line %d: %s is %v, want %v", i, key, lines[i][key], value)
			}
		}
		if _, ok := lines[i]["took"]; !ok {
			t.Errorf("line %d has no duration", i)
		}
	}
}

// A panic ends its own request: with 500 before the answer has begun, with a cut
// connection after; the engine's work on it ends too, and the server goes on.
func TestPanic(t *testing.T) {
	e := says(spell(t, "a"), 0)
	r := newRig(t, panicky{e})
	if a := r.do("POST", "/v1/completions", request(`"max_tokens":13`)); strings.Contains(a.body, "oh no") {
		t.Errorf("the answer tells the cause: %s", a.body)
	} else {
		a.mustRefuse(t, 500, "")
	}
	r.complete("")

	if !strings.Contains(r.log.String(), "goroutine") {
		t.Error("the log has no stack")
	}
}

type panicky struct{ *scriptedEngine }

func (p panicky) Submit(ctx context.Context, r engine.Request) (<-chan engine.Event, error) {
	if r.MaxTokens == 13 {
		panic("oh no")
	}
	return p.scriptedEngine.Submit(ctx, r)
}

func TestPanicAfterTheFirstByteCutsTheConnection(t *testing.T) {
	e := says(nil, 0)
	r := newRig(t, e)
	handler := r.identify(r.accessLog(r.recoverPanic(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half of an ans")
		_ = http.NewResponseController(w).Flush()
		panic("oh no")
	}))))
	r.http.Config.Handler = handler
	res, err := r.http.Client().Get(r.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if data, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the client took %q for the whole answer", data)
	}
}
