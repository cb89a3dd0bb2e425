package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tailor/internal/openai"
	"tailor/model/sample"
	"tailor/server/engine"
)

func TestCompletion(t *testing.T) {
	e := says(spell(t, "ab"), 0)
	r := newRig(t, e)
	a := r.do("POST", "/v1/completions", request(`"max_tokens":2`), "x-request-id", "req-1")
	a.body = regexp.MustCompile(`"created":\d+`).ReplaceAllString(a.body, `"created":1`)
	const want = `{"id":"cmpl-req-1","object":"text_completion","created":1,"model":"tailor-4m",` +
		`"choices":[{"index":0,"text":"ab","logprobs":null,"finish_reason":"length","stop_reason":null}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`
	prompt, err := tokens(t).Encode("hi", false)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(strings.Replace(want, `prompt_tokens":1`, fmt.Sprintf(`prompt_tokens":%d`, len(prompt)), 1),
		`total_tokens":3`, fmt.Sprintf(`total_tokens":%d`, len(prompt)+2), 1); a.status != 200 || a.body != want {
		t.Errorf("status %d, got\n%s\nwant\n%s", a.status, a.body, want)
	}
	if a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Tailor-Replica") != "r7" || a.header.Get("X-Request-Id") != "req-1" {
		t.Errorf("header %v", a.header)
	}
	sent := e.submitted()[0]
	if !slices.Equal(sent.Tokens, prompt) {
		t.Errorf("the engine got %v, want %v", sent.Tokens, prompt)
	}
}

func TestStreamBytes(t *testing.T) {
	r := newRig(t, says(spell(t, "aé"), 3))
	for name, tt := range map[string]struct{ options, usage, last string }{
		"without usage": {"", "", ""},
		"usage false":   {`,"stream_options":{"include_usage":false}`, "", ""},
		"with usage": {
			`,"stream_options":{"include_usage":true}`, `,"usage":null`,
			`data: {"id":"cmpl-x","object":"text_completion","created":1,"model":"tailor-4m","choices":[],"usage":` +
				`{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}}` + "\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.do("POST", "/v1/completions", `{"model":"tailor-4m","prompt":[5,6],"stream":true`+tt.options+`}`, "x-request-id", "x")
			got := regexp.MustCompile(`"created":\d+`).ReplaceAllString(a.body, `"created":1`)
			// é has two bytes, a token each: the first one alone gives no chunk.
			chunk := `data: {"id":"cmpl-x","object":"text_completion","created":1,"model":"tailor-4m",` +
				`"choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null}]%s}` + "\n\n"
			want := fmt.Sprintf(chunk, "a", "null", tt.usage) + fmt.Sprintf(chunk, "é", `"length"`, tt.usage) + tt.last + "data: [DONE]\n\n"
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
				t.Errorf("content type %q", kind)
			}
		})
	}
}

func TestRequestReachesTheEngine(t *testing.T) {
	e := says(spell(t, "a"), 0)
	r := newRig(t, e)
	r.complete("")
	r.complete(`"max_tokens":3,"temperature":0,"top_p":0.5,"top_k":7,"seed":-9,"cache_salt":"s","ignore_eos":true,"user":"u"`)
	r.complete(`"max_tokens":null,"temperature":null,"top_p":null,"seed":null,"cache_salt":null,"logprobs":null`)
	plain := engine.Request{N: 1, MaxTokens: 16, Sampling: sample.Params{Temperature: 1, TopP: 1}}
	full := engine.Request{
		N: 1, MaxTokens: 3, Sampling: sample.Params{Temperature: 0, TopP: 0.5, TopK: 7, Seed: new(int64(-9))}, Salt: "s", IgnoreEOS: true,
	}
	for i, want := range []engine.Request{plain, full, plain} {
		got := e.submitted()[i]
		got.ID, got.Tokens, got.ChoiceContexts = "", nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
}

func TestEndOfTextIsCountedAndNoText(t *testing.T) {
	ids := append(spell(t, "ab"), testEOS)
	r := newRig(t, says(ids, 0))
	out := r.complete(``)
	if c := out.Choices[0]; c.Text != "ab" || *c.FinishReason != "stop" || c.StopReason != nil || out.Usage.CompletionTokens != 3 {
		t.Errorf("got %+v, usage %+v", c, out.Usage)
	}
	chunks, body := r.chunks("")
	last := chunks[len(chunks)-1].Choices[0]
	if joined(chunks, 0) != "ab" || *last.FinishReason != "stop" || last.Text != "" {
		t.Errorf("streamed %s", body)
	}
}

func TestSpecialTokens(t *testing.T) {
	ids := slices.Concat(spell(t, "a"), []int32{testEOS}, spell(t, "b"))
	r := newRig(t, says(ids, 0))
	for fields, want := range map[string]string{
		`"ignore_eos":true`:                              "ab",
		`"ignore_eos":true,"skip_special_tokens":true`:   "ab",
		`"ignore_eos":true,"skip_special_tokens":false`:  "a<|endoftext|>b",
		`"ignore_eos":false,"skip_special_tokens":false`: "a",
	} {
		if got := r.complete(fields).Choices[0].Text; got != want {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
}

func TestZeroMaxTokens(t *testing.T) {
	r := newRig(t, says(nil, 1))
	out := r.complete(`"max_tokens":0`)
	if c := out.Choices[0]; c.Text != "" || *c.FinishReason != "length" || out.Usage.CompletionTokens != 0 {
		t.Errorf("got %+v, usage %+v", c, out.Usage)
	}
	if chunks, body := r.chunks(`,"max_tokens":0`); len(chunks) != 1 || *chunks[0].Choices[0].FinishReason != "length" {
		t.Errorf("streamed %s", body)
	}
}

func TestSeveralPrompts(t *testing.T) {
	e := &scriptedEngine{script: func(_ context.Context, r engine.Request, out chan<- engine.Event) {
		for i, id := range r.Tokens { // says its prompt, and that a token less was cached
			event := engine.Event{Token: id, Cached: len(r.Tokens) - 1}
			if i == len(r.Tokens)-1 {
				event.Finish = engine.FinishLength
			}
			out <- event
		}
	}}
	r := newRig(t, e)
	a, b := spell(t, "abc"), spell(t, "zy")
	prompt := strings.ReplaceAll(fmt.Sprintf(`"prompt":[%v,%v]`, a, b), " ", ",")
	out := r.complete(prompt) // the later of two equal keys counts
	if len(out.Choices) != 2 || out.Choices[0].Text != "abc" || out.Choices[1].Text != "zy" || out.Choices[0].Index != 0 || out.Choices[1].Index != 1 {
		t.Errorf("got %+v", out.Choices)
	}
	if want := openai.NewUsage(5, 5, 3); !reflect.DeepEqual(out.Usage, want) {
		t.Errorf("usage %+v", out.Usage)
	}
	chunks, body := r.chunks(`,"stream_options":{"include_usage":true},` + prompt)
	if joined(chunks, 0) != "abc" || joined(chunks, 1) != "zy" || strings.Count(body, `"finish_reason":"length"`) != 2 {
		t.Errorf("streamed %s", body)
	}
	if want := openai.NewUsage(5, 5, 3); !reflect.DeepEqual(chunks[len(chunks)-1].Usage, want) {
		t.Errorf("streamed usage %+v", chunks[len(chunks)-1].Usage)
	}
	e.refuse = engine.ErrTokenRange{Index: 1, ID: 9999, Vocab: 4096}
	got := r.do("POST", "/v1/completions", request(prompt)).mustRefuse(t, 400, "prompt")
	if !strings.Contains(got.Message, "prompt 0 of 2") || !strings.Contains(got.Message, "9999") {
		t.Errorf("message %q", got.Message)
	}
}

// Of several prompts one that is refused ends those before it.
func TestPromptRefusedEndsTheOthers(t *testing.T) {
	e := &scriptedEngine{script: waitForAbort}
	refuseLong := refuseSecond{e}
	r := newRig(t, refuseLong)
	r.do("POST", "/v1/completions", request(`"prompt":[[1],[1,2]]`)).mustRefuse(t, 429, "")
	e.running.Wait()
}

type refuseSecond struct{ *scriptedEngine }

func (e refuseSecond) Submit(ctx context.Context, r engine.Request) (<-chan engine.Event, error) {
	if len(r.Tokens) == 2 {
		return nil, engine.ErrQueueFull
	}
	return e.scriptedEngine.Submit(ctx, r)
}

// waitForAbort is an engine at work until its request is cancelled.
func waitForAbort(ctx context.Context, _ engine.Request, out chan<- engine.Event) {
	<-ctx.Done()
	out <- engine.Event{Token: -1, Finish: engine.FinishAbort, Err: ctx.Err()}
}

// Fault 19: text cut in the middle of a character, stop strings over token borders. The
// joined stream, the unstreamed text and what Decode makes of all tokens are the same.
func TestFault19_JoinedStreamEqualsUnstreamedText(t *testing.T) {
	tok := tokens(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	words := []string{"größer", " 😀😀", "é", "…", "the cat", "\n\n", "日本語", " a"}
	stopped := 0
	for range rounds {
		// Ids of three kinds: whole words, words cut into bytes, and any token, which
		// leaves bytes that make no character.
		var ids []int32
		for range 1 + random.IntN(8) {
			word := words[random.IntN(len(words))]
			switch random.IntN(3) {
			case 0:
				more, err := tok.Encode(word, false)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, more...)
			case 1:
				ids = append(ids, spell(t, word)...)
			default:
				ids = append(ids, random.Int32N(testEOS))
			}
		}
		whole := tok.Decode(ids)
		var stops []string
		for runes := []rune(whole); len(stops) < random.IntN(4); {
			from := random.IntN(len(runes))
			stops = append(stops, string(runes[from:min(len(runes), from+1+random.IntN(3))]))
		}
		wantText, wantStop := naiveStop(whole, stops)

		r := newRig(t, says(ids, 0))
		fields := fmt.Sprintf(`"max_tokens":%d,"stop":%s`, len(ids), quote(stops))
		got := r.complete(fields)
		chunks, body := r.chunks("," + fields)
		last := chunks[len(chunks)-1].Choices[0]
		wantFinish := "length"
		if wantStop != "" {
			wantFinish = "stop"
			stopped++
		}
		if c := got.Choices[0]; c.Text != wantText || *c.FinishReason != wantFinish {
			t.Fatalf("%q, stops %q: unstreamed %q, %s; want %q, %s", whole, stops, c.Text, *c.FinishReason, wantText, wantFinish)
		}
		if joined(chunks, 0) != wantText || *last.FinishReason != wantFinish {
			t.Fatalf("%q, stops %q: streamed %q, %s; want %q, %s", whole, stops, joined(chunks, 0), *last.FinishReason, wantText, wantFinish)
		}
		if wantStop != "" && last.StopReason != wantStop {
			t.Fatalf("%q, stops %q: stop reason %q, want %q", whole, stops, last.StopReason, wantStop)
		}
		if chunks[0].Choices[0].Text == "" && chunks[0].Choices[0].FinishReason == nil {
			t.Fatalf("the first chunk is empty: %s", body)
		}
		// Tokens up to the one that completed the stop string, and no further.
		wantTokens := len(ids)
		certain, decoder := "", tok.NewStream()
		for n, id := range ids {
			certain += decoder.Push(id)
			if _, stop := naiveStop(certain, stops); stop != "" {
				wantTokens = n + 1
				break
			}
		}
		if got.Usage.CompletionTokens != wantTokens {
			t.Fatalf("%q, stops %q: %d tokens counted, want %d", whole, stops, got.Usage.CompletionTokens, wantTokens)
		}
		r.http.Close()
	}
	if stopped < rounds/10 {
		t.Errorf("only %d of %d rounds found a stop string", stopped, rounds)
	}
}

func quote(texts []string) string {
	quoted, err := json.Marshal(append([]string{}, texts...))
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// What was held back comes out at the end: a stop string that was only begun, and bytes
// that never became a character.
func TestHeldBackTextComesOutAtTheEnd(t *testing.T) {
	for _, tt := range []struct {
		ids  []int32
		want string
	}{
		{spell(t, "one tw"), "one tw"},
		{spell(t, "größ")[:5], "grö�"}, // half of ß
		{spell(t, "ab tw\xe2\x82"), "ab tw�"},
		{append(spell(t, "ab tw\xe2\x82"), testEOS), "ab tw�"},
	} {
		r := newRig(t, says(tt.ids, 0))
		fields := `"max_tokens":40,"stop":["two"]`
		if got := r.complete(fields).Choices[0].Text; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if chunks, body := r.chunks("," + fields); joined(chunks, 0) != tt.want {
			t.Errorf("streamed %s, want %q", body, tt.want)
		}
	}
}

// Of two prompts one finds its stop string: its work ends at once, though the other goes on,
// and what the engine has made meanwhile does not count.
func TestStopStringEndsItsOwnPromptOnly(t *testing.T) {
	ids := spell(t, "one two")
	firstEnded := make(chan bool, 2)
	e := &scriptedEngine{}
	e.script = func(ctx context.Context, r engine.Request, out chan<- engine.Event) {
		if len(r.Tokens) == 1 {
			for _, id := range ids {
				out <- engine.Event{Token: id}
			}
			waitForAbort(ctx, r, out)
			firstEnded <- true
			return
		}
		<-firstEnded
		out <- engine.Event{Token: ids[0], Finish: engine.FinishLength}
	}
	r := newRig(t, e)
	fields := `"prompt":[[1],[1,2]],"stop":"e"`
	out := r.complete(fields)
	if a, b := out.Choices[0], out.Choices[1]; a.Text != "on" || *a.FinishReason != "stop" || b.Text != "o" || *b.FinishReason != "length" || out.Usage.CompletionTokens != 4 {
		t.Errorf("got %+v, %+v, usage %+v", a, b, out.Usage)
	}
	if chunks, body := r.chunks("," + fields); joined(chunks, 0) != "on" || joined(chunks, 1) != "o" {
		t.Errorf("streamed %s", body)
	}
}

// A stop string found ends the engine's work, which would have gone on.
func TestStopStringCancelsTheEngine(t *testing.T) {
	ids := spell(t, "one two")
	e := &scriptedEngine{}
	e.script = func(ctx context.Context, r engine.Request, out chan<- engine.Event) {
		for _, id := range ids {
			out <- engine.Event{Token: id}
		}
		waitForAbort(ctx, r, out)
	}
	r := newRig(t, e)
	fields := `"max_tokens":100,"stop":["zzz"," tw"]`
	out := r.complete(fields)
	if c := out.Choices[0]; c.Text != "one" || *c.FinishReason != "stop" || c.StopReason != " tw" || out.Usage.CompletionTokens != 6 {
		t.Errorf("got %+v, usage %+v", c, out.Usage)
	}
	chunks, body := r.chunks("," + fields)
	if joined(chunks, 0) != "one" || strings.Contains(body, "tw\"") && !strings.Contains(body, `"stop_reason":" tw"`) {
		t.Errorf("streamed %s", body)
	}
	e.running.Wait() // both were aborted, or this never ends
}

// Every chunk leaves at once: the second token is made only when the first was read.
func TestChunksAreNotBuffered(t *testing.T) {
	read := make(chan bool)
	ids := spell(t, "ab")
	e := &scriptedEngine{script: func(_ context.Context, _ engine.Request, out chan<- engine.Event) {
		out <- engine.Event{Token: ids[0]}
		<-read
		out <- engine.Event{Token: ids[1], Finish: engine.FinishLength}
	}}
	r := newRig(t, e)
	res, err := r.http.Client().Post(r.http.URL+"/v1/completions", "", strings.NewReader(request(`"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"text":"a"`) {
		t.Fatalf("%q, %v", line, err)
	}
	read <- true
	if rest, err := io.ReadAll(lines); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%q, %v", rest, err)
	}
}

// A client that reads nothing holds back neither the engine nor the clock: events are
// stamped as they come.
func TestCollectNeverBlocks(t *testing.T) {
	ch := make(chan engine.Event, 3)
	updates := collect([]<-chan engine.Event{ch, ch}, 3)
	for range 3 {
		ch <- engine.Event{Token: 1}
	}
	close(ch)
	n := 0
	for u := range updates {
		if u.at.IsZero() || time.Since(u.at) < 0 {
			t.Errorf("stamp %v", u.at)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d updates, want 3", n)
	}
}
