package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// Stop is the list of strings before which the text ends. On the wire a single
// string will do.
type Stop []string

// UnmarshalJSON takes a string, a list of strings or null.
func (s *Stop) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil && !isNull(data) {
		*s = Stop{one}
		return nil
	}
	var list Words
	if err := list.UnmarshalJSON(data); err != nil {
		if data[0] != '[' {
			return Invalid("", "%s is neither a string nor a list of strings", shorten(string(data), 64))
		}
		return err
	}
	*s = Stop(list)
	return nil
}

// Words is a list of strings.
type Words []string

// UnmarshalJSON takes a list of strings or null.
func (w *Words) UnmarshalJSON(data []byte) error {
	items, err := list(data, "strings")
	if err != nil {
		return err
	}
	*w = nil
	for i, item := range items {
		var text string
		if item[0] != '"' || json.Unmarshal(item, &text) != nil {
			return Invalid("", "%s at index %d is not a string", shorten(string(item), 64), i)
		}
		*w = append(*w, text)
	}
	return nil
}

// TokenIDs is a list of token ids. Which ids exist is the model's affair. The
// empty list differs from the absent one.
type TokenIDs []int32

// UnmarshalJSON takes a list of integers of 32 bits or null.
func (t *TokenIDs) UnmarshalJSON(data []byte) error {
	items, err := list(data, "token ids")
	if items == nil || err != nil {
		*t = nil
		return err
	}
	*t, err = tokenIDs(items)
	return err
}

// list takes a JSON list apart; null gives nil.
func list(data []byte, of string) ([]json.RawMessage, error) {
	if isNull(data) {
		return nil, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return nil, Invalid("", "%s is not a list of %s", shorten(string(data), 64), of)
	}
	for i := range items {
		items[i] = bytes.TrimSpace(items[i])
	}
	return items, nil
}

// tokenIDs only asks for 32-bit integers.
func tokenIDs(items []json.RawMessage) ([]int32, error) {
	tokens := make([]int32, len(items))
	for i, item := range items {
		id, err := strconv.ParseInt(string(item), 10, 32)
		if err != nil {
			return nil, Invalid("", "%s at index %d is not a token id", shorten(string(item), 64), i)
		}
		tokens[i] = int32(id)
	}
	return tokens, nil
}

// Biases says what is added to the logits of tokens. On the wire the ids are
// strings, since JSON has no other keys.
type Biases map[int32]float32

// UnmarshalJSON takes an object of numbers or null. Their range is Validate's affair.
func (b *Biases) UnmarshalJSON(data []byte) error {
	*b = nil
	if isNull(data) {
		return nil
	}
	if data[0] != '{' {
		return Invalid("", "%s is not an object of token ids and biases", shorten(string(data), 64))
	}
	fields, bad := object(data)
	if bad != nil {
		return bad
	}
	*b = make(Biases, len(fields))
	for name, raw := range fields {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 {
			return Invalid("", "%q is not a token id", shorten(name, 64))
		}
		var bias *float64
		if json.Unmarshal(raw, &bias) != nil || bias == nil || math.Abs(*bias) > math.MaxFloat32 {
			return Invalid("", "%s for token %d is not a number", shorten(string(raw), 64), id)
		}
		(*b)[int32(id)] = float32(*bias)
	}
	return nil
}
