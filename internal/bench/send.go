package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"tailor/internal/openai"
)

// sample is what the client saw of one answer.
type sample struct {
	ttft   time.Duration // until the first chunk with a choice
	e2e    time.Duration
	prompt int
	cached int
}

// answerChunk is the part of a streamed chunk that a benchmark looks at.
type answerChunk struct {
	Choices []json.RawMessage `json:"choices"`
	Usage   *openai.Usage     `json:"usage"`
	Error   *openai.Error     `json:"error"`
}

// send posts one request to url, streamed, and reads its answer to the end. A replica named
// by pin gets it whatever the router's policy says.
func send(ctx context.Context, client *http.Client, url, model, pin string, r *Request) (sample, error) {
	var s sample
	yes, greedy := true, 0.0
	body, err := json.Marshal(openai.CompletionRequest{
		Model:         model,
		Prompt:        openai.TokenPrompt(r.Tokens),
		MaxTokens:     &r.MaxTokens,
		Temperature:   &greedy,
		IgnoreEOS:     &yes,
		Stream:        &yes,
		StreamOptions: &openai.StreamOptions{IncludeUsage: &yes},
	})
	if err != nil {
		return s, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return s, err
	}
	req.Header.Set("Content-Type", "application/json")
	if pin != "" {
		req.Header.Set("x-tailor-replica", pin)
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer drainBody(resp.Body)
	if resp.StatusCode != http.StatusOK {
		detail, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
		return s, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(detail))
	}
	usage, err := readStream(resp.Body, func() { s.ttft = time.Since(began) })
	if err != nil {
		return s, err
	}
	s.e2e = time.Since(began)
	cached, reported := usage.Cached()
	if !reported {
		return s, errors.New("the answer's usage does not say cached_tokens")
	}
	s.prompt, s.cached = usage.PromptTokens, cached
	return s, nil
}

// readStream reads chunks until [DONE], calls first at the first one with a choice, and
// returns the usage that the last chunk carried.
func readStream(body io.Reader, first func()) (*openai.Usage, error) {
	var usage *openai.Usage
	began := false
	stream := openai.NewStreamReader(body)
	for {
		data, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("stream: %w", err)
		}
		var c answerChunk
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("stream: %w", err)
		}
		if c.Error != nil {
			return nil, fmt.Errorf("stream: %w", c.Error)
		}
		if len(c.Choices) > 0 && !began {
			began = true
			first()
		}
		if c.Usage != nil {
			usage = c.Usage
		}
	}
	if !began || usage == nil {
		return nil, errors.New("stream: ended without a choice or without usage")
	}
	return usage, nil
}
