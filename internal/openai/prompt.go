package openai

import (
	"bytes"
	"encoding/json"
)

// A Prompt is one or more prompts, all texts or all lists of token ids. On the
// wire: string, [string], [int] or [[int]].
type Prompt struct {
	Texts  []string
	Tokens [][]int32
}

// TextPrompt is the prompt of one text.
func TextPrompt(text string) Prompt { return Prompt{Texts: []string{text}} }

// TokenPrompt is the prompt of one list of token ids.
func TokenPrompt(tokens []int32) Prompt { return Prompt{Tokens: [][]int32{tokens}} }

// Len is the number of prompts; 0 means absent.
func (p Prompt) Len() int { return len(p.Texts) + len(p.Tokens) }

// MarshalJSON writes a single prompt bare, as most servers expect it.
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch {
	case len(p.Texts) == 1:
		return marshal(p.Texts[0])
	case len(p.Tokens) == 1 && len(p.Tokens[0]) > 0: // [] would be no prompt, not an empty one
		return marshal(p.Tokens[0])
	case len(p.Texts) > 0:
		return marshal(p.Texts)
	case len(p.Tokens) > 0:
		return marshal(p.Tokens)
	}
	return []byte("null"), nil
}

// UnmarshalJSON takes the four shapes and null. Its errors are *Error.
func (p *Prompt) UnmarshalJSON(data []byte) error {
	*p = Prompt{}
	data = bytes.TrimSpace(data)
	switch data[0] {
	case 'n':
		return nil
	case '"':
		p.Texts = make([]string, 1)
		return json.Unmarshal(data, &p.Texts[0])
	case '[':
	default:
		return Invalid("prompt", "%s is neither text nor a list of texts, of token ids or of lists of token ids",
			shorten(string(data), 64))
	}
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return err
	}
	if len(items) == 0 {
		return Invalid("prompt", "[] holds no prompt")
	}
	// The first item says what the list is of; the others must follow it.
	switch items[0][0] {
	case '"':
		p.Texts = make([]string, len(items))
		for i, item := range items {
			if item[0] != '"' {
				return Invalid("prompt", "item %d of a list of texts is %s", i, shorten(string(item), 64))
			}
			if err := json.Unmarshal(item, &p.Texts[i]); err != nil {
				return err
			}
		}
		return nil
	case '[':
		p.Tokens = make([][]int32, len(items))
		for i, item := range items {
			var list []json.RawMessage
			if item[0] != '[' {
				return Invalid("prompt", "item %d of a list of token lists is %s", i, shorten(string(item), 64))
			}
			err := json.Unmarshal(item, &list)
			if err == nil {
				p.Tokens[i], err = tokenIDs(list)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	tokens, err := tokenIDs(items)
	p.Tokens = [][]int32{tokens}
	return err
}
