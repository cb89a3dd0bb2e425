package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"tailor/internal/openai"
	"tailor/model/graph"
	"tailor/weights"
)

// recorded is one request of testdata/client_requests.json: what a known client sends, read
// off its source.
type recorded struct {
	Client  string            `json:"client"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	CtxLens []int             `json:"ctxlens"`
	Body    json.RawMessage   `json:"body"`
}

func (c recorded) headers() []string {
	var out []string
	for name, value := range c.Headers {
		out = append(out, name, value)
	}
	return out
}

// Each client gets what it reads, the way that it reads it.
func TestKnownClients(t *testing.T) {
	data, err := os.ReadFile("testdata/client_requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var requests []recorded
	if err := json.Unmarshal(data, &requests); err != nil {
		t.Fatal(err)
	}
	r, e := realRig(t, 256, withTemplate(t))
	s := loadSchemas(t)
	for _, c := range requests {
		t.Run(c.Client, func(t *testing.T) {
			a := r.do("POST", c.Path, string(c.Body), c.headers()...)
			if a.status != 200 {
				t.Fatalf("status %d: %s", a.status, a.body)
			}
			var asked struct {
				MaxTokens           int  `json:"max_tokens"`
				MaxCompletionTokens int  `json:"max_completion_tokens"`
				Stream              bool `json:"stream"`
			}
			if err := json.Unmarshal(c.Body, &asked); err != nil {
				t.Fatal(err)
			}
			if id := c.Headers["x-request-id"]; id != "" && a.header.Get("x-request-id") != id {
				t.Errorf("x-request-id %q", a.header.Get("x-request-id"))
			}
			name := map[string]string{"/v1/completions": "completion", "/v1/chat/completions": "chat"}[c.Path]
			switch {
			case asked.Stream:
				s.mustMatchStream(t, name+"_chunk", a.body)
				readAsBench(t, a.body, asked.MaxTokens+asked.MaxCompletionTokens)
			case c.CtxLens != nil:
				s.mustMatch(t, name, a.body)
				readAsEval(t, a.body, c)
			default:
				s.mustMatch(t, name, a.body)
			}
		})
	}
	mustBeIdle(t, e)
}

// readAsBench reads as vllm bench serve does: the first chunk with choices is the first
// token, usage counts only where choices are empty.
func readAsBench(t *testing.T, body string, want int) {
	t.Helper()
	first, generated := false, -1
	for message := range strings.SplitSeq(body, "\n\n") {
		chunk, ok := strings.CutPrefix(strings.TrimSpace(message), "data: ")
		if !ok || chunk == "[DONE]" {
			continue
		}
		var data struct {
			Choices []struct {
				Text  string `json:"text"`
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
				FinishReason *string `json:"finish_reason"`
			} `json:"choices"`
			Usage *openai.Usage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(chunk), &data); err != nil {
			t.Fatal(err)
		}
		switch {
		case len(data.Choices) > 0:
			if c := data.Choices[0]; !first && c.Text+c.Delta.Content == "" && c.FinishReason == nil {
				t.Errorf("the first chunk is empty: %s", chunk)
			}
			first = true
		case data.Usage != nil:
			generated = data.Usage.CompletionTokens
		}
	}
	if !first || generated != want {
		t.Errorf("%d tokens (first chunk seen: %v), want %d", generated, first, want)
	}
}

// readAsEval reads as lm-eval does: the sum of token_logprobs from the context's end to the
// last but one, and whether each of them is the highest of its top_logprobs.
func readAsEval(t *testing.T, body string, c recorded) {
	t.Helper()
	var out struct {
		Choices []struct {
			Index    int `json:"index"`
			Logprobs struct {
				Tokens        []string             `json:"tokens"`
				TokenLogprobs []*float64           `json:"token_logprobs"`
				TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	var asked struct {
		Prompt [][]int32 `json:"prompt"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(c.Body, &asked); err != nil {
		t.Fatal(err)
	}
	for i, choice := range out.Choices {
		l := choice.Logprobs
		if choice.Index != i || len(l.TokenLogprobs) != len(asked.Prompt[i])+1 || l.TokenLogprobs[0] != nil || l.TopLogprobs[0] != nil {
			t.Fatalf("choice %d: %+v", i, choice)
		}
		scores := bundledLogprobs(t, asked.Prompt[i])
		sum, want, greedy, wantGreedy := 0.0, 0.0, true, true
		for j := c.CtxLens[i]; j < len(asked.Prompt[i]); j++ {
			sum += *l.TokenLogprobs[j]
			greedy = greedy && *l.TokenLogprobs[j] == slices.Max(values(l.TopLogprobs[j]))
			row := scores[j-1]
			want += row[asked.Prompt[i][j]]
			wantGreedy = wantGreedy && row[asked.Prompt[i][j]] == slices.Max(row)
		}
		if math.Abs(sum-want) > 1e-4*math.Abs(want) || greedy != wantGreedy {
			t.Errorf("choice %d: sum %v, greedy %v; want %v, %v", i, sum, greedy, want, wantGreedy)
		}
	}
}

func values(m map[string]float64) []float64 {
	var out []float64
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// oracle is the bundled model as an expression graph, which knows no cache. It serves one
// goroutine at a time.
var oracle = sync.OnceValues(func() (*graph.Graph, error) {
	folder := weights.Bundled()
	m, err := bundledModel()
	if err != nil {
		return nil, err
	}
	tensors, err := folder.Tensors()
	if err != nil {
		return nil, err
	}
	return graph.New(m.Config(), tensors)
})

// bundledLogprobs are log-softmaxes of the oracle's logits.
func bundledLogprobs(t *testing.T, tokens []int32) [][]float64 {
	t.Helper()
	g, err := oracle()
	if err != nil {
		t.Fatal(err)
	}
	logits, err := g.Logits(tokens)
	if err != nil {
		t.Fatal(err)
	}
	rows, vocab := make([][]float64, len(tokens)), len(logits)/len(tokens)
	for i := range rows {
		raw := logits[i*vocab : (i+1)*vocab]
		top := float64(slices.Max(raw))
		sum := 0.0
		for _, v := range raw {
			sum += math.Exp(float64(v) - top)
		}
		rows[i] = make([]float64, vocab)
		for id, v := range raw {
			rows[i][id] = float64(v) - top - math.Log(sum)
		}
	}
	return rows
}

// heldTexts are texts that the model was not trained on, longest first.
func heldTexts(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../weights/bundled/tokenizer_vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var row struct {
			Text string  `json:"text"`
			IDs  []int32 `json:"ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if len(row.IDs) >= 4 && len(row.IDs) < 400 && !strings.Contains(row.Text, "<|endoftext|>") {
			texts = append(texts, row.Text)
		}
	}
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })
	return texts
}

// The perplexity that a client computes from echo and logprobs is the oracle's, cold and
// with all of the text in the cache.
func TestPerplexityIsTheOracles(t *testing.T) {
	texts := heldTexts(t)
	if len(texts) < 20 {
		t.Fatalf("%d texts", len(texts))
	}
	texts = texts[:20]
	if testing.Short() {
		texts = texts[14:]
	}
	r, e := realRig(t, 256)
	worst := 0.0
	for _, text := range texts {
		for _, how := range []string{"cold", "hot"} {
			body := fmt.Sprintf(`{"model":"tailor-4m","prompt":%s,"echo":true,"max_tokens":0,"logprobs":1}`, mustJSON(text))
			a := r.do("POST", "/v1/completions", body)
			var out openai.CompletionResponse
			if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
				t.Fatalf("status %d, %v: %s", a.status, err, a.body)
			}
			if out.Choices[0].Text != text {
				t.Errorf("echoed %q, want %q", out.Choices[0].Text, text)
			}
			ids, err := tokens(t).Encode(text, false)
			if err != nil {
				t.Fatal(err)
			}
			l := out.Choices[0].Logprobs
			if len(l.TokenLogprobs) != len(ids) || l.TokenLogprobs[0] != nil {
				t.Fatalf("%q: %d logprobs for %d tokens", text, len(l.TokenLogprobs), len(ids))
			}
			want, got := 0.0, 0.0
			rows := bundledLogprobs(t, ids)
			for i := 1; i < len(ids); i++ {
				got -= float64(*l.TokenLogprobs[i])
				want -= rows[i-1][ids[i]]
			}
			n := float64(len(ids) - 1)
			got, want = math.Exp(got/n), math.Exp(want/n)
			worst = max(worst, math.Abs(got-want)/want)
			if math.Abs(got-want) > 1e-4*want {
				t.Errorf("%s, %.40q: perplexity %v, the oracle's is %v", how, text, got, want)
			}
			// What fills the cache, so that the second round finds it.
			r.complete(fmt.Sprintf(`"prompt":%s,"max_tokens":1`, mustJSON(text)))
		}
	}
	t.Logf("%d texts, largest relative difference %.2g", len(texts), worst)
	mustBeIdle(t, e)
}

// A greedy token is the highest of its top_logprobs, and its own logprob is the identical
// float, echoed or generated, streamed or not.
func TestGreedyTokenIsTheArgMax(t *testing.T) {
	r, e := realRig(t, 256)
	checked := 0
	check := func(l *openai.Logprobs) {
		for i, own := range l.TokenLogprobs {
			best := l.TopLogprobs[i][0]
			for _, other := range l.TopLogprobs[i] {
				if other.Logprob > best.Logprob {
					best = other
				}
			}
			checked++
			if best.Token != l.Tokens[i] || math.Float32bits(float32(best.Logprob)) != math.Float32bits(float32(*own)) {
				t.Errorf("token %q has %v, the best is %q with %v", l.Tokens[i], *own, best.Token, best.Logprob)
			}
		}
	}
	for _, text := range heldTexts(t)[:8] {
		for _, n := range []int{1, 5} {
			fields := fmt.Sprintf(`"prompt":%s,"temperature":0,"max_tokens":16,"logprobs":%d,"ignore_eos":true`, mustJSON(text), n)
			out := r.complete(fields)
			check(out.Choices[0].Logprobs)
			chunks, _ := r.chunks("," + fields)
			var streamed []string
			for _, c := range chunks {
				check(c.Choices[0].Logprobs)
				streamed = append(streamed, c.Choices[0].Logprobs.Tokens...)
			}
			if !slices.Equal(streamed, out.Choices[0].Logprobs.Tokens) {
				t.Errorf("streamed %q, want %q", streamed, out.Choices[0].Logprobs.Tokens)
			}
		}
	}
	if checked < 500 {
		t.Errorf("%d tokens checked", checked)
	}
	mustBeIdle(t, e)
}
