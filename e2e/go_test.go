package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const (
	model  = "tailor-4m"
	prompt = "User: I would like to book a table for two people in San Jose tonight.\nAssistant:"
)

func client(base string, more ...option.RequestOption) *openai.Client {
	c := openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(base + "/v1"), option.WithAPIKey(apiKey), option.WithMaxRetries(0),
	}, more...)...)
	return &c
}

func completion(tokens int64) openai.CompletionNewParams {
	return openai.CompletionNewParams{
		Model: model, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(prompt)},
		MaxTokens: openai.Int(tokens), Seed: openai.Int(7),
	}
}

func TestGoClient(t *testing.T) {
	for name, base := range targets(t) {
		t.Run(name, func(t *testing.T) {
			t.Run("models", func(t *testing.T) { models(t, base) })
			t.Run("completions", func(t *testing.T) { completions(t, base) })
			t.Run("logprobs", func(t *testing.T) { logprobs(t, base) })
			t.Run("chat", func(t *testing.T) { chat(t, base) })
			t.Run("errors", func(t *testing.T) { typedErrors(t, base) })
			t.Run("aborted streams", func(t *testing.T) { abortedStream(t, base) })
			t.Run("retries", func(t *testing.T) { retries(t, base) })
		})
	}
}

func models(t *testing.T, base string) {
	c := client(base)
	page, err := c.Models.List(t.Context())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != model {
		t.Fatalf("%+v, %v", page, err)
	}
	one, err := c.Models.Get(t.Context(), model)
	if err != nil || one.ID != model || one.OwnedBy == "" {
		t.Errorf("%+v, %v", one, err)
	}
}

func completions(t *testing.T, base string) {
	c := client(base)
	plain, err := c.Completions.New(t.Context(), completion(24))
	if err != nil {
		t.Fatal(err)
	}
	choice := plain.Choices[0]
	if choice.Text == "" || choice.FinishReason == "" || plain.Object != "text_completion" || plain.Usage.TotalTokens != plain.Usage.PromptTokens+plain.Usage.CompletionTokens {
		t.Errorf("%s", plain.RawJSON())
	}
	again, err := c.Completions.New(t.Context(), completion(24))
	if err != nil || again.Choices[0].Text != choice.Text || again.Usage.PromptTokensDetails.CachedTokens == 0 {
		t.Errorf("the second time: %v, %s", err, again.RawJSON())
	}
	params := completion(24)
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Completions.NewStreaming(t.Context(), params)
	var text strings.Builder
	var usage openai.CompletionUsage
	for stream.Next() {
		chunk := stream.Current()
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Text)
		}
		if chunk.Usage.TotalTokens > 0 {
			usage = chunk.Usage
		}
	}
	if stream.Err() != nil || text.String() != choice.Text || usage.TotalTokens != plain.Usage.TotalTokens {
		t.Errorf("streamed %q, %v, usage %+v; want %q", text.String(), stream.Err(), usage, choice.Text)
	}
	several := completion(4)
	several.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"a table", "a train"}}
	several.N, several.Stop = openai.Int(2), openai.CompletionNewParamsStopUnion{OfStringArray: []string{"\n"}}
	out, err := c.Completions.New(t.Context(), several)
	if err != nil || len(out.Choices) != 4 || out.Choices[3].Index != 3 {
		t.Errorf("%v, %+v", err, out)
	}
}

func logprobs(t *testing.T, base string) {
	c := client(base)
	params := completion(8)
	params.Logprobs = openai.Int(3)
	out, err := c.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	l := out.Choices[0].Logprobs
	if len(l.Tokens) != int(out.Usage.CompletionTokens) || strings.Join(l.Tokens, "") != out.Choices[0].Text || len(l.TopLogprobs) != len(l.Tokens) {
		t.Fatalf("%s", out.RawJSON())
	}
	for i, token := range l.Tokens {
		if own, ok := l.TopLogprobs[i][token]; !ok || own != l.TokenLogprobs[i] || len(l.TopLogprobs[i]) < 3 {
			t.Errorf("token %d: %v in %v", i, l.TokenLogprobs[i], l.TopLogprobs[i])
		}
	}
	// The prompt alone, scored. Its first token has no logprob: the null that stands there
	// keeps this client from decoding the two lists, so they are read from what was sent.
	params = completion(0)
	params.Echo, params.Logprobs = openai.Bool(true), openai.Int(1)
	if out, err = c.Completions.New(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	var raw struct {
		TokenLogprobs []*float64 `json:"token_logprobs"`
	}
	l = out.Choices[0].Logprobs
	if err := json.Unmarshal([]byte(l.RawJSON()), &raw); err != nil {
		t.Fatal(err)
	}
	n := int(out.Usage.PromptTokens)
	if out.Choices[0].Text != prompt || strings.Join(l.Tokens, "") != prompt || len(raw.TokenLogprobs) != n || raw.TokenLogprobs[0] != nil || *raw.TokenLogprobs[n-1] >= 0 {
		t.Errorf("%s", out.RawJSON())
	}
}

func chat(t *testing.T, base string) {
	c := client(base)
	params := openai.ChatCompletionNewParams{
		Model: model, Seed: openai.Int(3), MaxCompletionTokens: openai.Int(16), Logprobs: openai.Bool(true), TopLogprobs: openai.Int(2),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.DeveloperMessage("Be brief."), openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("I need a taxi.")}),
		},
	}
	plain, err := c.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	choice := plain.Choices[0]
	if choice.Message.Content == "" || choice.Message.Role != "assistant" || len(choice.Logprobs.Content) != int(plain.Usage.CompletionTokens) {
		t.Errorf("%s", plain.RawJSON())
	}
	for _, l := range choice.Logprobs.Content {
		if len(l.TopLogprobs) != 2 || l.Logprob > 0 || math.IsInf(l.Logprob, 0) || len(l.Bytes) == 0 {
			t.Errorf("%s", l.RawJSON())
		}
	}
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Errorf("the accumulator refuses %s", stream.Current().RawJSON())
		}
	}
	if stream.Err() != nil || all.Choices[0].Message.Content != choice.Message.Content || all.Usage.TotalTokens != plain.Usage.TotalTokens {
		t.Errorf("streamed %+v, %v", all.ChatCompletion, stream.Err())
	}
}

func typedErrors(t *testing.T, base string) {
	for _, tt := range []struct {
		name        string
		change      func(*openai.CompletionNewParams)
		key         string
		status      int
		param, code string
	}{
		{"out of range", func(p *openai.CompletionNewParams) { p.Temperature = openai.Float(9) }, apiKey, 400, "temperature", ""},
		{"unknown model", func(p *openai.CompletionNewParams) { p.Model = "gpt-9" }, apiKey, 404, "model", "model_not_found"},
		{"too long", func(p *openai.CompletionNewParams) { p.MaxTokens = openai.Int(5000) }, apiKey, 400, "max_tokens", "context_length_exceeded"},
		{"no key", func(*openai.CompletionNewParams) {}, "wrong", 401, "", "invalid_api_key"},
	} {
		params := completion(4)
		tt.change(&params)
		for _, streamed := range []bool{false, true} {
			c := client(base, option.WithAPIKey(tt.key))
			var err error
			if streamed {
				s := c.Completions.NewStreaming(t.Context(), params)
				s.Next()
				err = s.Err()
			} else {
				_, err = c.Completions.New(t.Context(), params)
			}
			var e *openai.Error
			if !errors.As(err, &e) {
				t.Errorf("%s, streamed %v: %v of type %T", tt.name, streamed, err, err)
				continue
			}
			if e.StatusCode != tt.status || e.Param != tt.param || e.Code != tt.code || e.Message == "" || e.Type == "" {
				t.Errorf("%s, streamed %v: %+v", tt.name, streamed, e)
			}
		}
	}
}

// running and waiting are how many requests the metrics of the program's replicas say.
func running(ctx context.Context, t *testing.T, base string) int {
	t.Helper()
	return gauge(ctx, t, base, "vllm:num_requests_running{")
}

func waiting(ctx context.Context, t *testing.T, base string) int {
	t.Helper()
	return gauge(ctx, t, base, "vllm:num_requests_waiting{")
}

// gauge is the sum of a metric over the replicas.
func gauge(ctx context.Context, t *testing.T, base, name string) int {
	t.Helper()
	addresses := []string{base}
	if res, err := ask(ctx, base+"/v1/replicas"); err == nil && res.StatusCode == http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		addresses = nil
		for part := range strings.SplitSeq(string(body), `"url":"`) {
			if address, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(address, "http") {
				addresses = append(addresses, address)
			}
		}
	}
	total := 0
	for _, address := range addresses {
		res, err := ask(ctx, address+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, name) {
				n := 0
				if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &n); err != nil {
					t.Fatal(err)
				}
				total += n
			}
		}
	}
	return total
}

// A stream that is left ends the work on it.
func abortedStream(t *testing.T, base string) {
	ctx, cancel := context.WithCancel(t.Context())
	params := completion(900)
	stream := client(base).Completions.NewStreaming(ctx, params, option.WithJSONSet("ignore_eos", true))
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	cancel()
	for stream.Next() {
	}
	if !errors.Is(stream.Err(), context.Canceled) {
		t.Errorf("the stream ends with %v", stream.Err())
	}
	deadline, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	for running(deadline, t, base) > 0 {
		if deadline.Err() != nil {
			t.Fatal("the engine goes on")
		}
	}
}

// The client sends again what failed for a moment, and not what said that it must not.
func retries(t *testing.T, base string) {
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(target)
	var seen, failures atomic.Int64
	flaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) <= failures.Load() {
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		through.ServeHTTP(w, r)
	}))
	defer flaky.Close()
	failures.Store(2)
	out, err := client(flaky.URL, option.WithMaxRetries(2)).Completions.New(t.Context(), completion(4))
	if err != nil || seen.Load() != 3 || out.Choices[0].Text == "" {
		t.Errorf("%v after %d tries", err, seen.Load())
	}
	seen.Store(0)
	failures.Store(0)
	_, err = client(flaky.URL, option.WithMaxRetries(2)).Completions.New(t.Context(), completion(900),
		option.WithJSONSet("ignore_eos", true), option.WithHeader("x-request-timeout", "0.02"))
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusGatewayTimeout || seen.Load() != 1 {
		t.Errorf("%v after %d tries, want one and 504", err, seen.Load())
	}
}
