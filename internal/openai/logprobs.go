package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// A Logprob is a natural logarithm of a probability. What has none (-Inf, NaN) is
// written -9999.0, as JSON has no infinity.
type Logprob float32

// MarshalJSON writes the shortest number that is this float32 and no other.
func (l Logprob) MarshalJSON() ([]byte, error) {
	v := float64(l)
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("-9999.0"), nil
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 32), nil
}

// Logprobs are a completion's, one entry per token in each list.
type Logprobs struct {
	Tokens        []string      `json:"tokens"`
	TokenLogprobs []*Logprob    `json:"token_logprobs"` // null for a prompt's first token
	TopLogprobs   []TopLogprobs `json:"top_logprobs"`   // likewise
	TextOffset    []int         `json:"text_offset"`    // in characters of the choice's text
}

// TopLogprobs are the likeliest tokens at one place, best first, and the token that
// stands there. On the wire they are an object whose keys keep that order, so that who
// looks for the greatest of equal values finds the token that the engine would take.
type TopLogprobs []TopLogprob

// A TopLogprob is one of them.
type TopLogprob struct {
	Token   string
	Logprob Logprob
}

// MarshalJSON writes nil as null.
func (t TopLogprobs) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("null"), nil
	}
	out := []byte{'{'}
	for i, e := range t {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := marshal(e.Token)
		if err != nil {
			return nil, err
		}
		value, err := e.Logprob.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON keeps the order of the keys.
func (t *TopLogprobs) UnmarshalJSON(data []byte) error {
	*t = nil
	if isNull(data) {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(data))
	if _, err := in.Token(); err != nil {
		return err
	}
	*t = TopLogprobs{}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return err
		}
		e := TopLogprob{}
		e.Token, _ = key.(string)
		if err := in.Decode(&e.Logprob); err != nil {
			return err
		}
		*t = append(*t, e)
	}
	return nil
}

// A PromptLogprob is vLLM's entry for one token at one place of a prompt.
type PromptLogprob struct {
	Logprob Logprob `json:"logprob"`
	Rank    *int    `json:"rank"` // from 1; null where it is not among the likeliest
	Decoded string  `json:"decoded_token"`
}

// PromptLogprobs are vLLM's for one place of a prompt, by token id; nil at the first.
type PromptLogprobs map[int32]PromptLogprob

// ChatLogprobs are a chat completion's.
type ChatLogprobs struct {
	Content []ChatLogprob `json:"content"`
	Refusal *struct{}     `json:"refusal"` // null: the model refuses nothing
}

// A ChatLogprob is one token of the answer, with the likeliest in its place.
type ChatLogprob struct {
	ChatToken
	TopLogprobs []ChatToken `json:"top_logprobs"`
}

// A ChatToken is a token, its bytes and how likely it was.
type ChatToken struct {
	Token   string  `json:"token"`
	Logprob Logprob `json:"logprob"`
	Bytes   []int   `json:"bytes"` // not []byte, which JSON would have as base64
}
