package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tailor/internal/openai"
	"tailor/model/sample"
	"tailor/model/tokenizer"
	"tailor/server/engine"
)

// A client that is gone is answered nothing, whichever sign of it comes first.
func TestNothingIsSaidToAClientThatIsGone(t *testing.T) {
	e := says(nil, 0)
	e.refuse = context.Canceled
	r := newRig(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/completions", strings.NewReader(request(""))))
	if w.Body.Len() != 0 || !strings.Contains(r.log.String(), `"status":499`) {
		t.Errorf("answered %q; log %s", w.Body, r.log)
	}
}

func TestClientGone(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			begun := make(chan bool, 1)
			e := &scriptedEngine{}
			id := spell(t, "a")[0]
			e.script = func(ctx context.Context, r engine.Request, out chan<- engine.Event) {
				out <- engine.Event{Token: id}
				begun <- true
				waitForAbort(ctx, r, out)
			}
			r := newRig(t, e)
			ctx, cancel := context.WithCancel(t.Context())
			body := strings.NewReader(request(fmt.Sprintf(`"stream":%v`, stream)))
			req, err := http.NewRequestWithContext(ctx, "POST", r.http.URL+"/v1/completions", body)
			if err != nil {
				t.Fatal(err)
			}
			left := make(chan error, 1)
			go func() {
				res, err := r.http.Client().Do(req)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
				left <- err
			}()
			<-begun
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			e.running.Wait() // the engine saw the abort, or this never ends
			r.http.Close()   // the handler has ended
			log := r.log.String()
			if !strings.Contains(log, `"status":499`) || !strings.Contains(log, `"finish":"abort"`) {
				t.Errorf("log: %s", log)
			}
			if metrics := scrape(t, r.Server); metrics[`vllm:request_success_total{finished_reason="abort"}`] != 1 {
				t.Errorf("the abort is not counted")
			}
		})
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		status int
		param  string
		says   string
		retry  bool
	}{
		{"empty", engine.ErrEmptyPrompt, 400, "prompt", "no tokens", false},
		{"token range", engine.ErrTokenRange{Index: 3, ID: 70000, Vocab: 4096}, 400, "prompt", "70000", false},
		{"prompt past the context", engine.ErrContext{Prompt: 1024, MaxTokens: 16, Context: 1024}, 400, "prompt", "1024 tokens and max_tokens is 16", false},
		{"answer past the context", engine.ErrContext{Prompt: 1000, MaxTokens: 25, Context: 1024}, 400, "max_tokens", "1000 tokens and max_tokens is 25", false},
		{"too large", engine.ErrTooLarge{Blocks: 9, Pool: 4}, 400, "prompt", "9 blocks", false},
		{"max_tokens", engine.ErrMaxTokens{MaxTokens: -4}, 400, "max_tokens", "-4", false},
		{"sampling", &sample.FieldError{Field: "top_k", Value: -7, Want: "more"}, 400, "top_k", "-7", false},
		{"no token", fmt.Errorf("%w 0x7A", tokenizer.ErrNoToken), 400, "prompt", "0x7A", false},
		{"queue full", fmt.Errorf("%w: 256 requests wait", engine.ErrQueueFull), 429, "", "256", true},
		{"draining", engine.ErrDraining, 503, "", "draining", true},
		{"stopped", engine.ErrStopped, 503, "", "stopped", true},
		{"a bug", errors.New("secret detail"), 500, "", "", false},
	}
	check := func(t *testing.T, a answer, status int, param, says string, retry bool) {
		t.Helper()
		e := a.mustRefuse(t, status, param)
		if !strings.Contains(e.Message, says) || strings.Contains(e.Message, "secret") {
			t.Errorf("message %q", e.Message)
		}
		if got := a.header.Get("Retry-After"); (got != "") != retry {
			t.Errorf("Retry-After %q", got)
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := says(nil, 0)
			e.refuse = tt.err
			r := newRig(t, e)
			check(t, r.do("POST", "/v1/completions", request("")), tt.status, tt.param, tt.says, tt.retry)
			check(t, r.do("POST", "/v1/completions", request(`"stream":true`)), tt.status, tt.param, tt.says, tt.retry)
			if log := r.log.String(); !strings.Contains(log, tt.err.Error()) {
				t.Errorf("the log does not say %q: %s", tt.err, log)
			}
		})
	}

	// The engine gives up before the first byte, and after it.
	giveUp := func(ids []int32, finish engine.FinishReason, err error) *scriptedEngine {
		return &scriptedEngine{script: func(_ context.Context, _ engine.Request, out chan<- engine.Event) {
			for _, id := range ids {
				out <- engine.Event{Token: id}
			}
			if finish != "" {
				out <- engine.Event{Token: -1, Finish: finish, Err: err}
			}
		}}
	}
	for name, tt := range map[string]struct {
		finish engine.FinishReason
		err    error
		status int
		retry  bool
	}{
		"stopped":        {engine.FinishAbort, engine.ErrStopped, 503, true},
		"error":          {engine.FinishError, engine.ErrNoLogits, 500, false},
		"without reason": {engine.FinishError, nil, 500, false},
		"closed":         {"", nil, 500, false},
	} {
		t.Run("midway: "+name, func(t *testing.T) {
			r := newRig(t, giveUp(nil, tt.finish, tt.err))
			check(t, r.do("POST", "/v1/completions", request("")), tt.status, "", "", tt.retry)
			check(t, r.do("POST", "/v1/completions", request(`"stream":true`)), tt.status, "", "", tt.retry)

			r = newRig(t, giveUp(spell(t, "ab"), tt.finish, tt.err))
			check(t, r.do("POST", "/v1/completions", request("")), tt.status, "", "", tt.retry)
			a := r.do("POST", "/v1/completions", request(`"stream":true`))
			if a.status != 200 || strings.Contains(a.body, "[DONE]") {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			events := openai.NewStreamReader(strings.NewReader(a.body))
			for _, want := range []string{"a", "b"} {
				if c, err := events.NextChunk(); err != nil || c.Choices[0].Text != want {
					t.Fatalf("got %+v, %v; want %q", c, err, want)
				}
			}
			if _, err := events.NextChunk(); err == nil {
				t.Error("no error in the stream")
			} else if _, ok := errors.AsType[*openai.Error](err); !ok {
				t.Errorf("the stream ends in %v", err)
			}
		})
	}
}
