package server

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tailor/internal/openai"
	"tailor/model/tokenizer"
	"tailor/server/engine"
)

const (
	testModel   = "tailor-4m"
	testContext = 1024
	testEOS     = 4095
)

// bundled is the bundled model's tokenizer: 256 byte tokens, merges, one special token.
var bundled = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	return tokenizer.Load(os.DirFS("../weights/bundled"))
})

func tokens(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := bundled()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// spell gives each byte of text a token of its own, so that characters are cut.
func spell(t testing.TB, text string) []int32 {
	t.Helper()
	tok := tokens(t)
	of := map[byte]int32{}
	for id := range int32(tok.VocabSize()) {
		if b, ok := tok.Bytes(id); ok && len(b) == 1 {
			of[b[0]] = id
		}
	}
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = of[text[i]]
	}
	return ids
}

// A scriptedEngine answers requests by a script, run on a goroutine per request.
type scriptedEngine struct {
	script func(ctx context.Context, r engine.Request, out chan<- engine.Event)
	refuse error
	stats  engine.Stats
	reset  error
	scriptedCache

	mu       sync.Mutex
	requests []engine.Request
	running  sync.WaitGroup
}

func (e *scriptedEngine) Submit(ctx context.Context, r engine.Request) (<-chan engine.Event, error) {
	e.mu.Lock()
	e.requests = append(e.requests, r)
	e.mu.Unlock()
	if e.refuse != nil {
		return nil, e.refuse
	}
	out := make(chan engine.Event, max(r.N, 1)*(r.MaxTokens+1))
	e.running.Go(func() {
		defer close(out)
		e.script(ctx, r, out)
	})
	return out, nil
}

func (e *scriptedEngine) Stats() engine.Stats { return e.stats }

func (e *scriptedEngine) Reset(context.Context) error {
	if e.reset == nil {
		e.BlockLog().Cleared()
	}
	return e.reset
}

func (e *scriptedEngine) submitted() []engine.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

// says makes an engine generate ids, up to the request's limit, for each choice. Where
// logprobs are asked for, token i has -i and the top are the tokens from 0 on.
func says(ids []int32, cached int) *scriptedEngine {
	return &scriptedEngine{script: func(_ context.Context, r engine.Request, out chan<- engine.Event) {
		now := time.Now()
		times := engine.Times{Arrived: now, Admitted: now}
		for choice := max(r.N, 1) - 1; choice >= 0; choice-- { // in an order that nobody may rely on
			first := engine.Event{Choice: choice, Cached: cached, Times: times, Cache: engine.CacheReport{Matched: cached, Missed: len(r.Tokens) - cached}}
			if choice == 0 && r.PromptLogprobs != nil {
				first.Prompt = make([]*engine.TokenLogprobs, len(r.Tokens))
				for i := 1; i < len(r.Tokens); i++ {
					first.Prompt[i] = scripted(r.Tokens[i], i, *r.PromptLogprobs)
				}
			}
			if r.MaxTokens == 0 || len(ids) == 0 {
				first.Token, first.Finish = -1, engine.FinishLength
				out <- first
				continue
			}
			for i, id := range ids {
				event := engine.Event{Choice: choice, Token: id, Cached: cached, Cache: first.Cache, Times: times}
				event.Times.FirstToken = now
				if i == 0 {
					event.Prompt = first.Prompt
				}
				if r.Logprobs != nil {
					event.Logprobs = scripted(id, i, *r.Logprobs)
				}
				switch {
				case id == testEOS && !r.IgnoreEOS, slices.Contains(r.StopTokens, id):
					event.Finish = engine.FinishStop
				case i == r.MaxTokens-1 || i == len(ids)-1:
					event.Finish = engine.FinishLength
				}
				out <- event
				if event.Finish != "" {
					break
				}
			}
		}
	}}
}

func scripted(id int32, i, top int) *engine.TokenLogprobs {
	l := &engine.TokenLogprobs{Token: id, Logprob: float32(-i)}
	for t := range top {
		l.Top = append(l.Top, engine.TokenLogprob{ID: int32(t), Logprob: float32(-t) / 8})
	}
	return l
}

// A rig is a server with its log, under net/http.
type rig struct {
	*Server
	t    testing.TB
	http *httptest.Server
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t testing.TB, e Engine, change ...func(*Config)) *rig {
	t.Helper()
	log := new(lockedBuffer)
	cfg := Config{
		Engine: e, Tokenizer: tokens(t), ModelName: testModel, Context: testContext, BlockSize: 16, Replica: "r7", Version: "v-test",
		Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg)
	}
	s := New(cfg)
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewHTTPServer(s.Handler(), cfg.Log)
	server.Start()
	r := &rig{Server: s, t: t, http: server, log: log}
	t.Cleanup(server.Close) // waits for handlers
	return r
}

// An answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   string
}

// do, and what is made of it, may be called from any goroutine: failures are errors of the
// test and do not end it.
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return answer{}
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Error(err)
		return answer{}
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Error(err)
	}
	return answer{res.StatusCode, res.Header, string(data)}
}

// complete posts a completion for "hi" with these fields added, and wants success.
func (r *rig) complete(fields string) openai.CompletionResponse {
	r.t.Helper()
	a := r.do("POST", "/v1/completions", request(fields))
	var out openai.CompletionResponse
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != http.StatusOK {
		r.t.Errorf("%s: status %d, %v: %s", fields, a.status, err, a.body)
		return openai.CompletionResponse{Choices: []openai.Choice{{FinishReason: new("")}}, Usage: openai.NewUsage(0, 0, 0)}
	}
	return out
}

func request(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return fmt.Sprintf(`{"model":%q,"prompt":"hi"%s}`, testModel, fields)
}

// chunks posts a streamed completion and returns its chunks, one at least, and the raw
// bytes.
func (r *rig) chunks(fields string) ([]*openai.Chunk, string) {
	r.t.Helper()
	a := r.do("POST", "/v1/completions", request(`"stream":true`+fields))
	reader := openai.NewStreamReader(strings.NewReader(a.body))
	var chunks []*openai.Chunk
	for {
		c, err := reader.NextChunk()
		if err == nil {
			chunks = append(chunks, c)
			continue
		}
		if err != io.EOF || a.status != http.StatusOK || len(chunks) == 0 {
			r.t.Errorf("%s: status %d, %v: %s", fields, a.status, err, a.body)
			chunks = append(chunks, &openai.Chunk{Choices: []openai.Choice{{FinishReason: new("")}}})
		}
		return chunks, a.body
	}
}

// joined is the text of choice i.
func joined(chunks []*openai.Chunk, i int) string {
	var text strings.Builder
	for _, c := range chunks {
		for _, choice := range c.Choices {
			if choice.Index == i {
				text.WriteString(choice.Text)
			}
		}
	}
	return text.String()
}

// mustRefuse checks status, param and the four keys of an error.
func (a answer) mustRefuse(t testing.TB, status int, param string) openai.Error {
	t.Helper()
	var out map[string]map[string]any
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("status %d, body %q: %v", a.status, a.body, err)
	}
	inner := out["error"]
	if len(out) != 1 || len(inner) != 4 {
		t.Fatalf("status %d, body %s: want an error with four keys", a.status, a.body)
	}
	for _, key := range []string{"message", "type", "param", "code"} {
		value, ok := inner[key]
		if text, isText := value.(string); !ok || value != nil && (!isText || text == "") {
			t.Errorf("body %s: %q is %v; want text or null", a.body, key, value)
		}
	}
	var got openai.ErrorResponse
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	if a.status != status || got.Error.Param != param || got.Error.Message == "" || got.Error.Type == "" {
		t.Errorf("status %d, body %s; want %d and param %q", a.status, a.body, status, param)
	}
	if kind := a.header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("content type %q", kind)
	}
	return *got.Error
}
