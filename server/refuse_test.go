package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"tailor/internal/openai"
)

// badRequests are bodies of POST /v1/completions that must be refused, and how. Those with
// onlyEngine are refused by the engine, the others before it.
func badRequests() []badRequest {
	manyTokens := strings.TrimSuffix(strings.Repeat("7,", testContext+1), ",")
	longText := strings.Repeat("the cat ", testContext)
	bad := []badRequest{
		{"not JSON", `hello`, 400, "", "not JSON", false},
		{"empty body", ``, 400, "", "empty", false},
		{"array", `[]`, 400, "", "object", false},
		{"50 MB body", `{"model":"tailor-4m","prompt":"` + strings.Repeat("x", 50<<20) + `"}`, 413, "", "4194304 bytes", false},
		{"invalid UTF-8", request("\"user\":\"\xff\""), 400, "", "0xff", false},
		{"lone surrogate", request(`"prompt":"\ud800"`), 400, "prompt", `\ud800`, false},
		{"no model", `{"prompt":"x"}`, 400, "model", "missing", false},
		{"unknown model", `{"model":"gpt-9","prompt":"x"}`, 404, "model", "gpt-9", false},
		{"no prompt", `{"model":"tailor-4m"}`, 400, "prompt", "missing", false},
		{"empty prompt", request(`"prompt":""`), 400, "prompt", "empty", false},
		{"empty list", request(`"prompt":[]`), 400, "prompt", "[]", false},
		{"empty token list", request(`"prompt":[[]]`), 400, "prompt", "empty", false},
		{"65 prompts", request(`"prompt":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 65), ",") + `]`), 400, "prompt", "65", false},
		{"megabytes of text", request(`"prompt":"` + strings.Repeat("x", 3<<20) + `"`), 400, "prompt", "3145728 bytes", false},
		{"stop with 9 entries", request(`"stop":["1","2","3","4","5","6","7","8","9"]`), 400, "stop", "9", false},
		{"stream_options without stream", request(`"stream_options":{"include_usage":true}`), 400, "stream_options", "stream", false},
		{"max_tokens negative", request(`"max_tokens":-1`), 400, "max_tokens", "-1", false},
		{"temperature 9", request(`"temperature":9`), 400, "temperature", "9", false},
		{"suffix", request(`"suffix":"x"`), 400, "suffix", "fill in", false},
		{"best_of below n", request(`"n":3,"best_of":2`), 400, "best_of", "2", false},
		{"best_of streamed", request(`"best_of":3,"stream":true`), 400, "best_of", "streamed", false},
		{"prompt_logprobs streamed", request(`"prompt_logprobs":3,"stream":true`), 400, "prompt_logprobs", "stream", false},
		{"min_tokens above max_tokens", request(`"max_tokens":3,"min_tokens":4`), 400, "min_tokens", "4", false},
		{"stop token past the vocabulary", request(`"stop_token_ids":[1,4096]`), 400, "stop_token_ids", "4096", false},

		{"bias past the vocabulary", request(`"logit_bias":{"4096":1,"3":2}`), 400, "logit_bias", "4096", true},
		{"allowed past the vocabulary", request(`"allowed_token_ids":[4096]`), 400, "allowed_token_ids", "4096", true},
		{"token id negative", request(`"prompt":[1,-1]`), 400, "prompt", "-1", true},
		{"token id past the vocabulary", request(`"prompt":[1,2,4096]`), 400, "prompt", "4096", true},
		{"prompt longer than the context", request(`"prompt":[` + manyTokens + `]`), 400, "prompt", "1025 tokens and max_tokens is 16", true},
		{"text longer than the context", request(`"prompt":"` + longText + `"`), 400, "prompt", "more than the model's context of 1024", true},
		{"answer past the context", request(`"prompt":[1,2,3],"max_tokens":1022`), 400, "max_tokens", "3 tokens and max_tokens is 1022", true},
		{"max_tokens huge", request(`"prompt":[1,2,3],"max_tokens":2147483647`), 400, "max_tokens", "2147483647", true},
	}
	for _, g := range generatedCases(openai.CompletionParameters()) {
		if g.refused {
			bad = append(bad, badRequest{g.name, request(g.field), 400, g.param, "", false})
		}
	}
	return bad
}

type badRequest struct {
	name, body string
	status     int
	param      string
	says       string
	onlyEngine bool
}

func (b badRequest) check(t *testing.T, r *rig) {
	t.Helper()
	e := r.do("POST", "/v1/completions", b.body).mustRefuse(t, b.status, b.param)
	if !strings.Contains(e.Message, b.says) {
		t.Errorf("message %q does not say %q", e.Message, b.says)
	}
	if b.status == http.StatusNotFound && e.Code != "model_not_found" {
		t.Errorf("code %q", e.Code)
	}
}

func TestBadRequestsNeverReachTheEngine(t *testing.T) {
	e := says(nil, 0)
	r := newRig(t, e)
	for _, bad := range badRequests() {
		if !bad.onlyEngine {
			t.Run(bad.name, func(t *testing.T) { bad.check(t, r) })
		}
	}
	if n := len(e.submitted()); n != 0 {
		t.Errorf("%d requests reached the engine", n)
	}
}

// A body that is announced as too long is refused before it is sent, one of unknown length
// when it gets too long.
func TestBodyLimitWithoutLength(t *testing.T) {
	r := newRig(t, says(nil, 0), func(c *Config) { c.MaxBody = 100 })
	body := io.MultiReader(strings.NewReader(request("")), bytes.NewReader(bytes.Repeat([]byte(" "), 100)))
	req, err := http.NewRequest("POST", r.http.URL+"/v1/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestUnknownPaths(t *testing.T) {
	r := newRig(t, says(nil, 0))
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""},
		{"POST", "/v1/embeddings", 404, ""},
		{"GET", "/v1/completions", 405, "POST"},
		{"DELETE", "/v1/models", 405, "GET"},
		{"PUT", "/health", 405, "GET"},
	} {
		a := r.do(tt.method, tt.path, "")
		e := a.mustRefuse(t, tt.status, "")
		if a.header.Get("Allow") != tt.allow || !strings.Contains(e.Message, tt.path) {
			t.Errorf("%s %s: Allow %q, message %q", tt.method, tt.path, a.header.Get("Allow"), e.Message)
		}
	}
}

func TestDraining(t *testing.T) {
	e := says(spell(t, "a"), 0)
	r := newRig(t, e)
	r.complete("")
	r.SetDraining(true)
	for _, a := range []answer{r.do("POST", "/v1/completions", request("")), r.do("GET", "/health", "")} {
		a.mustRefuse(t, 503, "")
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if n := len(e.submitted()); n != 1 {
		t.Errorf("%d requests reached the engine, want 1", n)
	}
	if a := r.do("GET", "/v1/models", ""); a.status != 200 {
		t.Errorf("models: status %d", a.status)
	}
	r.SetDraining(false)
	r.complete("")
}
