package openai

import (
	"encoding/json"
	"errors"
)

// A CompletionRequest is the body of POST /v1/completions. Nil means absent or
// null. It marshals to what ParseCompletion reads. Ranges and defaults stand in
// the table of parameters.
type CompletionRequest struct {
	Model         string         `json:"model"`
	Prompt        Prompt         `json:"prompt"`
	MaxTokens     *int           `json:"max_tokens,omitempty"`  // 0: prefill only
	Temperature   *float64       `json:"temperature,omitempty"` // 0: greedy
	TopP          *float64       `json:"top_p,omitempty"`
	TopK          *int           `json:"top_k,omitempty"` // -1 and 0: off
	Seed          *int64         `json:"seed,omitempty"`
	Stop          Stop           `json:"stop,omitempty"`
	N             *int           `json:"n,omitempty"`
	BestOf        *int           `json:"best_of,omitempty"` // 0: n
	Stream        *bool          `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`
	User          *string        `json:"user,omitempty"`
	Echo          *bool          `json:"echo,omitempty"`
	Suffix        *string        `json:"suffix,omitempty"`
	Logprobs      *int           `json:"logprobs,omitempty"`

	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	LogitBias        Biases   `json:"logit_bias,omitempty"`

	// The rest are vLLM's.

	MinP                *float64 `json:"min_p,omitempty"`
	RepetitionPenalty   *float64 `json:"repetition_penalty,omitempty"`
	MinTokens           *int     `json:"min_tokens,omitempty"`
	StopTokenIDs        TokenIDs `json:"stop_token_ids,omitempty"`
	IncludeStop         *bool    `json:"include_stop_str_in_output,omitempty"`
	IgnoreEOS           *bool    `json:"ignore_eos,omitempty"`
	AllowedTokenIDs     TokenIDs `json:"allowed_token_ids,omitempty"`
	BadWords            Words    `json:"bad_words,omitempty"`
	TruncatePrompt      *int     `json:"truncate_prompt_tokens,omitempty"` // -1: to what fits
	PromptLogprobs      *int     `json:"prompt_logprobs,omitempty"`
	AddSpecialTokens    *bool    `json:"add_special_tokens,omitempty"`
	SkipSpecialTokens   *bool    `json:"skip_special_tokens,omitempty"`
	ReturnTokenIDs      *bool    `json:"return_token_ids,omitempty"`
	ReturnTokensAsIDs   *bool    `json:"return_tokens_as_token_ids,omitempty"`
	Priority            *int     `json:"priority,omitempty"`
	CacheSalt           *string  `json:"cache_salt,omitempty"`
	SpacesBetweenTokens *bool    `json:"spaces_between_special_tokens,omitempty"`

	// other holds the fields that are known and not supported.
	other map[string]json.RawMessage
}

// StreamOptions ask for the usage: in a last chunk of its own, or in every chunk.
type StreamOptions struct {
	IncludeUsage         *bool `json:"include_usage,omitempty"`
	ContinuousUsageStats *bool `json:"continuous_usage_stats,omitempty"` // vLLM's
}

// Or is what p points to, or fallback where the field was absent.
func Or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// ParseCompletion reads a body of POST /v1/completions. It checks types, and
// that model and prompt are there, and nothing else. Its errors are *Error.
func ParseCompletion(body []byte) (*CompletionRequest, error) {
	r, err := parse(body, CompletionParameters(), unsupportedInCompletions)
	if err != nil {
		return nil, err
	}
	if r.Prompt.Len() == 0 {
		return nil, Invalid("prompt", "the field is missing")
	}
	return &r.CompletionRequest, nil
}

// parse reads the fields of a table into what has room for them all.
func parse(body []byte, table []Parameter, unsupported map[string][]any) (*ChatRequest, error) {
	fields, bad := object(body)
	if bad != nil {
		return nil, bad
	}
	r := new(ChatRequest)
	// In the table's order, so that of several errors always the same one is told.
	for _, p := range table {
		if raw, ok := fields[p.Name]; ok {
			if err := decodeField(p.Name, raw, p.into(r), p.Kind.want()); err != nil {
				return nil, err
			}
		}
	}
	for name := range unsupported {
		if raw, ok := fields[name]; ok && !isNull(raw) {
			if r.other == nil {
				r.other = make(map[string]json.RawMessage)
			}
			r.other[name] = raw
		}
	}
	if r.Model == "" {
		return nil, Invalid("model", "the field is missing or empty")
	}
	return r, nil
}

// decodeField reads one value. Types that read themselves name the place inside the
// value; the field is named here.
func decodeField(name string, raw json.RawMessage, into any, want string) error {
	err := json.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Param != "" {
			return e
		}
		return Invalid(name, "%s", e.Message)
	}
	return Invalid(name, "%s is not %s", shorten(string(raw), 64), want)
}

// UnmarshalJSON takes an object or null.
func (o *StreamOptions) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return Invalid("", "%s is not an object", shorten(string(data), 64))
	}
	fields, bad := object(data)
	if bad != nil {
		return bad
	}
	for _, option := range []struct {
		name string
		into **bool
	}{{"include_usage", &o.IncludeUsage}, {"continuous_usage_stats", &o.ContinuousUsageStats}} {
		if raw, ok := fields[option.name]; ok {
			if err := decodeField("stream_options."+option.name, raw, option.into, KindBoolean.want()); err != nil {
				return err
			}
		}
	}
	return nil
}

// DecodeObject reads a small JSON object into the fields of into, a pointer to
// a struct with json tags, for endpoints outside the completions API.
func DecodeObject(body []byte, into any) error {
	if _, bad := object(body); bad != nil {
		return bad
	}
	err := json.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return Invalid(wrong.Field, "%s is not of type %s", wrong.Value, wrong.Type)
	}
	return Invalid("", "%v", err)
}
