package bench

import (
	"encoding/json"
	"errors"
	"fmt"

	"tailor/internal/bench/workload"
	"tailor/internal/openai"
)

// prompt is what was asked, once it is known in full.
type prompt struct {
	tokens []int32
	text   string
	isText bool
}

// messages writes a workload's requests as they go over the wire. The same request and the
// same answers before it give the same bytes.
type messages struct {
	requests  []workload.Request
	model     string
	continued []bool // another request goes on from this one's answer
	ids       bool   // ask for the token ids of all answers
}

func newMessages(requests []workload.Request, model string) *messages {
	m := &messages{requests: requests, model: model, continued: make([]bool, len(requests))}
	for i := range requests {
		if requests[i].Continues {
			m.continued[requests[i].After] = true
		}
	}
	return m
}

var (
	errNoIDs       = errors.New("the server does not return token ids (return_token_ids), so the next turn cannot be made")
	errParent      = errors.New("not sent: the request that it goes on from failed")
	errBodyParent  = errors.New("a turn goes on from a recorded body, whose prompt is not known")
	errMixedPrompt = errors.New("a turn of token ids goes on from one of text, or the other way round")
)

// prompt returns the whole prompt of request i; before and said are that of the request
// it goes on from, and its answer.
func (m *messages) prompt(i int, before *prompt, said *answer) (prompt, error) {
	r := &m.requests[i]
	p := prompt{tokens: r.Tokens, text: r.Text, isText: r.Tokens == nil}
	if !r.Continues {
		return p, nil
	}
	switch {
	case m.requests[r.After].Body != nil:
		return p, errBodyParent
	case p.isText != before.isText && (r.Tokens != nil || r.Text != ""):
		return p, errMixedPrompt
	case before.isText:
		return prompt{text: before.text + said.text + r.Text, isText: true}, nil
	case len(said.ids) == 0:
		return p, errNoIDs
	}
	whole := make([]int32, 0, len(before.tokens)+len(said.ids)+len(r.Tokens))
	whole = append(append(append(whole, before.tokens...), said.ids...), r.Tokens...)
	return prompt{tokens: whole}, nil
}

// write returns request i as a message, streamed and with usage.
func (m *messages) write(i int, p prompt) (*message, error) {
	r := &m.requests[i]
	out := &message{path: r.Path, session: r.Session}
	if out.path == "" {
		out.path = "/v1/completions"
	}
	var err error
	if r.Body != nil {
		out.body, err = m.rewrite(i)
		return out, err
	}
	yes, greedy := true, 0.0
	body := openai.CompletionRequest{
		Model:         m.model,
		Prompt:        openai.TokenPrompt(p.tokens),
		MaxTokens:     &r.MaxTokens,
		Temperature:   &greedy,
		IgnoreEOS:     &yes,
		Stream:        &yes,
		StreamOptions: &openai.StreamOptions{IncludeUsage: &yes},
	}
	if p.isText {
		body.Prompt = openai.TextPrompt(p.text)
	}
	if m.ids || m.continued[i] && !p.isText {
		body.ReturnTokenIDs = &yes
	}
	out.body, err = json.Marshal(body)
	return out, err
}

// rewrite makes a recorded body one that this replay can send. A seed where there is none
// makes its answer, and so what the caches keep of it, the same each time.
func (m *messages) rewrite(i int) ([]byte, error) {
	r := &m.requests[i]
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("the body is no JSON object: %v", err)
	}
	set := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			panic("bench: " + err.Error()) // a string, a number or a flag
		}
		fields[name] = data
	}
	set("stream", true)
	set("stream_options", map[string]bool{"include_usage": true})
	if m.model != "" {
		set("model", m.model)
	}
	if isAbsent(fields["seed"]) {
		set("seed", i)
	}
	if r.MaxTokens > 0 {
		bounded := false
		for _, name := range []string{"max_tokens", "max_completion_tokens"} {
			if isAbsent(fields[name]) {
				continue
			}
			var wish int
			if err := json.Unmarshal(fields[name], &wish); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			set(name, min(wish, r.MaxTokens))
			bounded = true
		}
		if !bounded {
			set("max_tokens", r.MaxTokens)
		}
	}
	return json.Marshal(fields)
}

func isAbsent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
