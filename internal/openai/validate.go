package openai

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// The tables of known fields that are not supported, each with the values that change
// nothing about the answer; null and absent always pass. Anything else is refused: a
// client that asks for a grammar and silently gets none would blame the model.
var (
	unsupportedInCompletions = with(unsupportedAnywhere(), map[string][]any{
		"prompt_embeds":   nil,
		"use_beam_search": {false},
	})
	unsupportedInChat = with(unsupportedAnywhere(), map[string][]any{
		"tools":                  {[]any{}},
		"tool_choice":            {"none", "auto"},
		"functions":              {[]any{}},
		"function_call":          {"none", "auto"},
		"modalities":             {[]any{"text"}},
		"audio":                  nil,
		"prediction":             nil,
		"web_search_options":     nil,
		"echo":                   {false},
		"best_of":                {0.0, 1.0},
		"prompt_logprobs":        nil,
		"use_beam_search":        {false},
		"continue_final_message": {false},
		"chat_template":          nil,
		"chat_template_kwargs":   {map[string]any{}},
		"documents":              {[]any{}},
	})
)

func unsupportedAnywhere() map[string][]any {
	return map[string][]any{
		"length_penalty":     {1.0},
		"response_format":    {map[string]any{"type": "text"}},
		"structured_outputs": nil,
		"guided_json":        nil,
		"guided_regex":       nil,
		"guided_choice":      nil,
		"guided_grammar":     nil,
		"logits_processors":  nil,
		"regex":              nil,
		"ebnf":               nil,
		"json_schema":        nil,
	}
}

func with(table, more map[string][]any) map[string][]any {
	for name, values := range more {
		table[name] = values
	}
	return table
}

// Validate checks every range that does not depend on the model. Its errors
// are *Error.
func (r *CompletionRequest) Validate() error {
	if err := r.Prompt.validate(); err != nil {
		return err
	}
	all := ChatRequest{CompletionRequest: *r}
	if err := all.checkRanges(CompletionParameters()); err != nil {
		return err
	}
	if n, best := Or(r.N, 1), Or(r.BestOf, 0); best != 0 && best < n {
		return Invalid("best_of", "%d choices cannot give the %d that n asks for", best, n)
	} else if best > n && Or(r.Stream, false) {
		return Invalid("best_of", "%d: which of the choices are the best is known only at their end, so it cannot be streamed", best)
	}
	if r.PromptLogprobs != nil && Or(r.Stream, false) {
		return Invalid("prompt_logprobs", "not allowed where stream is true")
	}
	if Or(r.Suffix, "") != "" {
		return unsupported("suffix", "the model was not trained to fill in text")
	}
	if err := r.checkTogether(Or(r.MaxTokens, DefaultMaxTokens), "max_tokens"); err != nil {
		return err
	}
	return r.refuseUnsupported(unsupportedInCompletions)
}

// checkTogether checks what the values of several fields have to do with each other.
func (r *CompletionRequest) checkTogether(most int, mostName string) error {
	if least := Or(r.MinTokens, 0); least > most {
		return Invalid("min_tokens", "%d are more than the %d that %s allows", least, most, mostName)
	}
	if r.TruncatePrompt != nil && *r.TruncatePrompt == 0 {
		return Invalid("truncate_prompt_tokens", "0 leaves nothing of the prompt; -1 keeps what fits")
	}
	if r.StreamOptions != nil && !Or(r.Stream, false) {
		return Invalid("stream_options", "only allowed where stream is true")
	}
	return nil
}

// checkRanges holds the values against the rows of a table.
func (r *ChatRequest) checkRanges(table []Parameter) error {
	for _, p := range table {
		var bad *Error
		switch v := p.into(r).(type) {
		case **int:
			if *v != nil {
				bad = p.checkInteger(*v)
			}
		case **float64:
			if *v != nil {
				bad = p.checkNumber(**v)
			}
		case *Biases:
			for _, id := range sortedKeys(*v) {
				if bias := float64((*v)[id]); !(bias >= p.Low && bias <= p.High) {
					bad = Invalid(p.Name, "%v for token %d is not within %v to %v", bias, id, p.Low, p.High)
					break
				}
			}
		case **string:
			if *v != nil {
				bad = p.checkLength(utf8.RuneCountInString(**v), "characters")
			}
		case *Stop:
			bad = p.checkStrings(*v)
		case *Words:
			bad = p.checkStrings(*v)
		case *TokenIDs:
			bad = p.checkIDs(*v)
		}
		if bad != nil {
			return bad
		}
	}
	return nil
}

func (p *Parameter) checkInteger(v *int) *Error {
	if float64(*v) < p.Low || float64(*v) > p.High {
		return Invalid(p.Name, "%d is not within %.0f to %.0f", *v, p.Low, p.High)
	}
	return nil
}

func (p *Parameter) checkNumber(v float64) *Error {
	// The negated forms also catch NaN, which a caller in Go may set.
	if p.LowOpen && !(v > p.Low && v <= p.High) {
		if p.High >= math.MaxFloat32 {
			return Invalid(p.Name, "%v is not above %v", v, p.Low)
		}
		return Invalid(p.Name, "%v is not above %v and at most %v", v, p.Low, p.High)
	}
	if !(v >= p.Low && v <= p.High) {
		return Invalid(p.Name, "%v is not within %v to %v", v, p.Low, p.High)
	}
	return nil
}

func (p *Parameter) checkLength(n int, of string) *Error {
	switch {
	case p.MaxLen == 0 && n >= p.MinLen, n >= p.MinLen && n <= p.MaxLen:
		return nil
	case p.MaxLen == 0:
		return Invalid(p.Name, "%d %s; at least %d must be given", n, of, p.MinLen)
	}
	return Invalid(p.Name, "%d %s are not within %d to %d", n, of, p.MinLen, p.MaxLen)
}

func (p *Parameter) checkStrings(list []string) *Error {
	if i := slices.Index(list, ""); i >= 0 {
		return Invalid(p.Name, `string %d is "", which every text holds`, i)
	}
	return p.checkLength(len(list), "strings")
}

func (p *Parameter) checkIDs(ids TokenIDs) *Error {
	if ids == nil {
		return nil
	}
	for i, id := range ids {
		if id < 0 {
			return Invalid(p.Name, "%d at index %d is not a token id", id, i)
		}
	}
	return p.checkLength(len(ids), "token ids")
}

func sortedKeys(b Biases) []int32 {
	ids := make([]int32, 0, len(b))
	for id := range b {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (p Prompt) validate() error {
	for i, text := range p.Texts {
		if text == "" {
			return Invalid("prompt", "prompt %d is empty", i)
		}
	}
	for i, tokens := range p.Tokens {
		if len(tokens) == 0 {
			return Invalid("prompt", "prompt %d is empty", i)
		}
	}
	return nil
}

func (r *CompletionRequest) refuseUnsupported(table map[string][]any) error {
	// In the order of names, so that of several always the same one is named.
	names := make([]string, 0, len(r.other))
	for name := range r.other {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		var value any
		err := json.Unmarshal(r.other[name], &value)
		passes := func(other any) bool { return reflect.DeepEqual(value, other) }
		if err != nil || !slices.ContainsFunc(table[name], passes) {
			return unsupported(name, "it would change the answer, and this server cannot do it")
		}
	}
	return nil
}

func unsupported(name, why string) *Error {
	e := Invalid(name, "not supported: %s", why)
	e.Code = CodeUnsupported
	return e
}
