package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"tailor/internal/openai"
	"tailor/kvcache"
	"tailor/model"
	"tailor/model/sample"
	"tailor/server/engine"
	"tailor/weights"
)

// The tests of this file run the bundled model under the whole server.

var bundledModel = sync.OnceValues(func() (*model.Model, error) {
	folder := weights.Bundled()
	config, err := fs.ReadFile(folder.FS(), "config.json")
	if err != nil {
		return nil, err
	}
	cfg, err := model.ParseConfig(config)
	if err != nil {
		return nil, err
	}
	tensors, err := folder.Tensors()
	if err != nil {
		return nil, err
	}
	return model.New(cfg, tensors)
})

// realRig serves the bundled model. The engine proves its cache's books at every idle
// moment, and the test fails on what it finds.
func realRig(t testing.TB, blocks int, change ...func(*Config)) (*rig, *engine.Engine) {
	t.Helper()
	m, err := bundledModel()
	if err != nil {
		t.Fatal(err)
	}
	const blockSize = 16
	cfg := m.Config()
	kv, err := kvcache.New(kvcache.Config{
		Blocks: blocks, BlockSize: blockSize, Layers: cfg.Layers, Heads: cfg.Heads, HeadDim: cfg.HeadDim(),
	})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(m, kv, engine.Config{Check: true}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() { // after the rig's own, which waits for the handlers
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return newRig(t, e, change...), e
}

// mustBeIdle checks that no request holds anything, once the engine has looked up.
func mustBeIdle(t *testing.T, e *engine.Engine) engine.Stats {
	t.Helper()
	// Drain cannot be undone, so a request serves as the mark: by its last event all
	// aborts before it have been seen.
	events, err := e.Submit(t.Context(), engine.Request{Tokens: []int32{1}, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for range events {
	}
	s := e.Stats()
	if s.Running != 0 || s.Waiting != 0 || s.KV.Sequences != 0 || s.KV.Held != s.KV.Evictable || s.KV.Free+s.KV.Held != s.KV.Total {
		t.Errorf("not idle: %+v", s)
	}
	return s
}

func TestEngineIsUntouchedByBadRequests(t *testing.T) {
	r, e := realRig(t, 80)
	r.complete(`"prompt":"the cat sat on the mat","max_tokens":20`)
	before := mustBeIdle(t, e)
	for _, bad := range badRequests() {
		t.Run(bad.name, func(t *testing.T) { bad.check(t, r) })
	}
	if after := e.Stats(); !reflect.DeepEqual(after, before) {
		t.Errorf("stats before %+v, after %+v", before, after)
	}
	// The pool holds less than the context: refused at once, not queued for ever.
	small, e := realRig(t, 4)
	small.do("POST", "/v1/completions", request(`"prompt":[1,2,3],"max_tokens":100`)).mustRefuse(t, 400, "prompt")
	small.complete(`"prompt":[1,2,3],"max_tokens":50`)
	mustBeIdle(t, e)
}

// The greedy texts are PyTorch's.
func TestGoldenTexts(t *testing.T) {
	data, err := os.ReadFile("../weights/bundled/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text       string  `json:"text"`
		IDs        []int32 `json:"ids"`
		GreedyIDs  []int32 `json:"greedy_ids"`
		GreedyText string  `json:"greedy_text"`
		Margin     float64 `json:"smallest_top2_margin"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		cases = cases[:2]
	}
	r, e := realRig(t, 256)
	compared, hits := 0, 0
	for _, c := range cases {
		if c.Margin < 0.01 {
			continue // the two best are so close that rounding decides
		}
		compared++
		fields := fmt.Sprintf(`"prompt":%s,"max_tokens":%d,"temperature":0,"ignore_eos":true,"skip_special_tokens":false`,
			mustJSON(c.Text), len(c.GreedyIDs))
		want := tokens(t).Decode(c.GreedyIDs)
		cold := r.complete(fields)
		hot := r.complete(fields)
		streamed, _ := r.chunks("," + fields)
		for how, text := range map[string]string{"cold": cold.Choices[0].Text, "hot": hot.Choices[0].Text, "streamed": joined(streamed, 0)} {
			if text != want {
				t.Errorf("%q, %s:\ngot  %q\nwant %q", c.Text, how, text, want)
			}
		}
		if got := cold.Usage.PromptTokens; got != len(c.IDs) {
			t.Errorf("%q: %d prompt tokens, want %d", c.Text, got, len(c.IDs))
		}
		// All but the last token, which gives the logits, where full blocks hold them:
		// the last token generated was never run.
		rows := len(c.IDs) + cold.Usage.CompletionTokens - 1
		cached, _ := hot.Usage.Cached()
		hits += cached
		if rows/16*16 >= len(c.IDs) && cached != len(c.IDs)-1 {
			t.Errorf("%q: %d tokens cached, want %d", c.Text, cached, len(c.IDs)-1)
		}
	}
	if compared == 0 || hits == 0 {
		t.Errorf("%d golden texts compared, %d hits: the test tests nothing", compared, hits)
	}
	mustBeIdle(t, e)
}

func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Fault 14, as a pair. Neither the hit nor the miss changes the text.
func TestFault14_SameSaltHitsOtherSaltMisses(t *testing.T) {
	r, e := realRig(t, 256)
	ask := func(salt string) (string, int) {
		out := r.complete(`"prompt":"I would like to book a table for two people in San Jose.","seed":5,"max_tokens":4` + salt)
		cached, reported := out.Usage.Cached()
		if !reported {
			t.Error("cached_tokens is not reported")
		}
		return out.Choices[0].Text, cached
	}
	text, cached := ask(`,"cache_salt":"a"`)
	if cached != 0 {
		t.Errorf("%d tokens cached at first", cached)
	}
	for _, tt := range []struct {
		salt string
		hit  bool
	}{{`,"cache_salt":"a"`, true}, {`,"cache_salt":"b"`, false}, {``, false}, {`,"cache_salt":null`, true}, {`,"cache_salt":"a"`, true}} {
		again, cached := ask(tt.salt)
		if again != text || (cached > 0) != tt.hit {
			t.Errorf("%s: %d cached, text %q; want hit %v, %q", tt.salt, cached, again, tt.hit, text)
		}
	}
	mustBeIdle(t, e)
	if a := r.do("POST", "/reset_prefix_cache", ""); a.status != 200 {
		t.Fatalf("reset: %d %s", a.status, a.body)
	}
	if again, cached := ask(`,"cache_salt":"a"`); again != text || cached != 0 {
		t.Errorf("after the reset: %d cached, %q", cached, again)
	}
}

// Fault 12. A client may leave at any moment: before its request is admitted, in prefill, between two
// chunks. Nothing stays behind.
func TestFault12_ClientsLeaveNothingBehind(t *testing.T) {
	r, e := realRig(t, 70)
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		prompt := strings.Repeat(fmt.Sprintf("client %d wants a table. ", i), 1+i*3)
		body := request(fmt.Sprintf(`"prompt":%q,"max_tokens":400,"ignore_eos":true,"stream":true`, prompt))
		req, err := http.NewRequestWithContext(ctx, "POST", r.http.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			cancel() // perhaps before, perhaps while it is sent
		}
		res, err := r.http.Client().Do(req)
		if err == nil {
			lines := bufio.NewReader(res.Body)
			for range i % 5 {
				_, _ = lines.ReadString('\n')
			}
			cancel()
			_ = res.Body.Close()
		}
		cancel()
	}
	// A request that needs nearly the whole pool is served: the others hold nothing.
	out := r.complete(fmt.Sprintf(`"prompt":%q,"max_tokens":16,"ignore_eos":true`, strings.Repeat("the table ", 300)))
	if out.Usage.CompletionTokens != 16 {
		t.Errorf("usage %+v", out.Usage)
	}
	r.http.Close() // all handlers have ended, so all contexts have
	mustBeIdle(t, e)
}

// Concurrent clients, streamed and not, with stop strings: each gets what it gets alone.
func TestConcurrentClients(t *testing.T) {
	r, e := realRig(t, 256)
	n := 12
	if testing.Short() {
		n = 5
	}
	fields := func(i int) string {
		return fmt.Sprintf(`"prompt":"User %d: I want a table in San Jose.\nAssistant:","seed":%d,"max_tokens":24,"stop":["\n","%c"]`, i%3, i, 'a'+i)
	}
	alone := make([]openai.CompletionResponse, n)
	for i := range n {
		alone[i] = r.complete(fields(i))
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			want := alone[i].Choices[0]
			if got := r.complete(fields(i)); got.Choices[0].Text != want.Text || got.Usage.CompletionTokens != alone[i].Usage.CompletionTokens {
				t.Errorf("client %d: %+v, alone %+v", i, got.Choices[0], want)
			}
		})
		all.Go(func() {
			chunks, _ := r.chunks("," + fields(i))
			want := alone[i].Choices[0]
			last := chunks[len(chunks)-1].Choices[0]
			if joined(chunks, 0) != want.Text || *last.FinishReason != *want.FinishReason || last.StopReason != want.StopReason {
				t.Errorf("client %d: streamed %q, alone %+v", i, joined(chunks, 0), want)
			}
		})
	}
	all.Wait()
	mustBeIdle(t, e)
}
