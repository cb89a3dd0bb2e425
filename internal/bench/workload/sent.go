package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Sent is a request as a cache sees it.
type Sent struct {
	// Salt separates caches: prompts under different salts share nothing.
	Salt string
	// Prompt and Output are what is asked and what is answered, in tokens or, where the
	// target has no tokenizer to ask, bytes: see Bytes.
	Prompt, Output []int32
}

// Sent spells the requests as a cache sees them, in their order, each turn of a conversation
// with what was said before. spell turns what is not given as tokens, a Text or Body,
// into units; nil stands for Bytes. answers are the answers in units, as far as they are
// known. In the place of one that is not, because answers or its element is nil, come
// MaxTokens negative units that stand nowhere else: they take room, and only the next turn
// of the same conversation finds them again.
func (w *Workload) Sent(spell func(*Request) ([]int32, error), answers [][]int32) ([]Sent, error) {
	if spell == nil {
		spell = Bytes
	}
	if answers != nil && len(answers) != len(w.Requests) {
		panic(fmt.Sprintf("workload: %d answers to %d requests", len(answers), len(w.Requests)))
	}
	sent := make([]Sent, len(w.Requests))
	unknown := int32(0)
	for i := range w.Requests {
		r := &w.Requests[i]
		prompt := r.Tokens
		if r.Text != "" || r.Body != nil {
			var err error
			if prompt, err = spell(r); err != nil {
				return nil, fmt.Errorf("request %d: %w", i, err)
			}
		}
		if r.Continues {
			if r.After < 0 || r.After >= i {
				panic(fmt.Sprintf("workload: request %d continues request %d", i, r.After))
			}
			prompt = slices.Concat(sent[r.After].Prompt, sent[r.After].Output, prompt)
		}
		sent[i].Prompt = prompt
		if answers != nil && answers[i] != nil {
			sent[i].Output = answers[i]
			continue
		}
		sent[i].Output = make([]int32, r.MaxTokens)
		for k := range sent[i].Output {
			unknown--
			sent[i].Output[k] = unknown
		}
	}
	return sent, nil
}

// Bytes spells a request's Text, or the prompt of its Body, as bytes. Messages become one
// line of JSON each, so that a conversation begins with the bytes of what it continues;
// so do prompts that are not a string.
func Bytes(r *Request) ([]int32, error) {
	if r.Body == nil {
		return unitsOf([]byte(r.Text)), nil
	}
	var body struct {
		Prompt   json.RawMessage   `json:"prompt"`
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	var text string
	if body.Messages == nil && json.Unmarshal(body.Prompt, &text) == nil {
		return unitsOf([]byte(text)), nil
	}
	parts := body.Messages
	if parts == nil && body.Prompt != nil {
		parts = []json.RawMessage{body.Prompt}
	}
	var lines bytes.Buffer
	for _, part := range parts {
		if err := json.Compact(&lines, part); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		lines.WriteByte('\n')
	}
	if lines.Len() == 0 {
		return nil, fmt.Errorf("body has neither prompt nor messages")
	}
	return unitsOf(lines.Bytes()), nil
}

func unitsOf(text []byte) []int32 {
	units := make([]int32, len(text))
	for i, b := range text {
		units[i] = int32(b)
	}
	return units
}
