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

// client sends requests to one server. Safe for concurrent use.
type client struct {
	http *http.Client
	url  string
	key  string // sent as a bearer token; empty: none
}

func newClient(url, key string, connections int) *client {
	return &client{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(connections, 2), DisableCompression: true}},
		url:  url, key: key,
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// message is one request as it goes over the wire.
type message struct {
	path    string
	body    []byte
	replica string // that must serve it, whatever the policy; empty: any
	session string
}

// answer is what the client saw of one answer that came to its end.
type answer struct {
	first, end time.Time // of the first chunk with a choice, and of the last one
	prompt     int       // tokens, as usage says; -1: it does not
	cached     int       // of them; -1: usage does not say
	output     int       // tokens; -1
	text       string    // of choice 0
	ids        []int32   // of choice 0, where the server sends them
}

// statusError is an answer with another status than 200.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, http.StatusText(e.status), e.message)
}

// send posts a message and reads its streamed answer to the end. The replica that served
// it is known even where the answer fails after its head.
func (c *client) send(ctx context.Context, m *message) (a answer, replica string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+m.path, bytes.NewReader(m.body))
	if err != nil {
		return a, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if m.replica != "" {
		req.Header.Set(headerReplica, m.replica)
	}
	if m.session != "" {
		req.Header.Set("X-Session-Id", m.session)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, "", err
	}
	defer drainBody(resp.Body)
	replica = resp.Header.Get(headerReplica)
	if resp.StatusCode != http.StatusOK {
		return a, replica, &statusError{resp.StatusCode, openai.ReadError(resp.StatusCode, resp.Body).Message}
	}
	a, err = readAnswer(openai.NewStreamReader(resp.Body))
	if err != nil {
		return a, replica, fmt.Errorf("stream: %w", err)
	}
	return a, replica, nil
}

// headerReplica names the replica that served a request, or, in a request, that must.
const headerReplica = "X-Tailor-Replica"

// chunk is the part of a streamed chunk that a benchmark looks at, of a completion (text)
// or a chat (delta).
type chunk struct {
	Choices []struct {
		Index    int     `json:"index"`
		Text     string  `json:"text"`
		TokenIDs []int32 `json:"token_ids"`
		Delta    struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *openai.Usage `json:"usage"`
	Error *openai.Error `json:"error"`
}

func readAnswer(stream *openai.StreamReader) (answer, error) {
	a := answer{prompt: -1, cached: -1, output: -1}
	var text []byte
	for {
		data, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, err
		}
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			return a, err
		}
		if c.Error != nil {
			return a, c.Error
		}
		if len(c.Choices) > 0 && a.first.IsZero() {
			a.first = time.Now()
		}
		for i := range c.Choices {
			if choice := &c.Choices[i]; choice.Index == 0 {
				text = append(append(text, choice.Text...), choice.Delta.Content...)
				a.ids = append(a.ids, choice.TokenIDs...)
			}
		}
		if c.Usage != nil {
			a.prompt, a.output = c.Usage.PromptTokens, c.Usage.CompletionTokens
			cached, reported := c.Usage.Cached()
			if reported {
				a.cached = cached
			}
			const most = 1 << 32 // so that sums stay far from overflow
			if a.prompt < 0 || a.output < 0 || max(a.prompt, a.output) > most || reported && (cached < 0 || cached > a.prompt) {
				return a, fmt.Errorf("usage makes no sense: prompt_tokens %d, cached_tokens %d, completion_tokens %d", a.prompt, cached, a.output)
			}
		}
	}
	if a.first.IsZero() {
		return a, errors.New("ended without a choice")
	}
	a.end, a.text = time.Now(), string(text)
	return a, nil
}

// drainBody reads what is left of a body so that its connection can be used again.
func drainBody(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 64<<10))
	body.Close()
}
