package openai

import (
	"encoding/json"
	"errors"
)

// A CompletionRequest is the body of POST /v1/completions. Nil means absent or
// null. It marshals to what ParseCompletion reads.
type CompletionRequest struct {
	Model             string         `json:"model"`
	Prompt            Prompt         `json:"prompt"`
	MaxTokens         *int           `json:"max_tokens,omitempty"`  // default 16; 0: prefill only
	Temperature       *float64       `json:"temperature,omitempty"` // 0 to 2, default 1; 0: greedy
	TopP              *float64       `json:"top_p,omitempty"`       // (0, 1], default 1
	TopK              *int           `json:"top_k,omitempty"`       // -1 and 0: off (vLLM's)
	Seed              *int64         `json:"seed,omitempty"`
	Stop              Stop           `json:"stop,omitempty"`
	N                 *int           `json:"n,omitempty"`
	BestOf            *int           `json:"best_of,omitempty"`
	Stream            *bool          `json:"stream,omitempty"`
	StreamOptions     *StreamOptions `json:"stream_options,omitempty"`
	User              *string        `json:"user,omitempty"`
	CacheSalt         *string        `json:"cache_salt,omitempty"` // 1 to 1024 characters (vLLM's)
	IgnoreEOS         *bool          `json:"ignore_eos,omitempty"` // vLLM's
	SkipSpecialTokens *bool          `json:"skip_special_tokens,omitempty"`

	// other holds the fields of Validate's table of unsupported ones.
	other map[string]json.RawMessage
}

// StreamOptions ask for a last chunk that carries the usage.
type StreamOptions struct {
	IncludeUsage         *bool `json:"include_usage,omitempty"`
	ContinuousUsageStats *bool `json:"continuous_usage_stats,omitempty"` // vLLM's; refused by Validate
}

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
	var items []*string
	if err := json.Unmarshal(data, &items); err != nil {
		return Invalid("stop", "%s is neither a string nor a list of strings", shorten(string(data), 64))
	}
	*s = nil
	for i, item := range items {
		if item == nil {
			return Invalid("stop", "item %d of the list is null", i)
		}
		*s = append(*s, *item)
	}
	return nil
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
	fields, bad := object(body)
	if bad != nil {
		return nil, bad
	}
	r := new(CompletionRequest)
	var options json.RawMessage
	if err := decodeFields("", fields, []field{
		{"model", &r.Model, "a string"},
		{"prompt", &r.Prompt, "a prompt"},
		{"max_tokens", &r.MaxTokens, "an integer"},
		{"temperature", &r.Temperature, "a number"},
		{"top_p", &r.TopP, "a number"},
		{"top_k", &r.TopK, "an integer"},
		{"seed", &r.Seed, "an integer of 64 bits"},
		{"stop", &r.Stop, "a string or a list of strings"},
		{"n", &r.N, "an integer"},
		{"best_of", &r.BestOf, "an integer"},
		{"stream", &r.Stream, "true or false"},
		{"stream_options", &options, ""},
		{"user", &r.User, "a string"},
		{"cache_salt", &r.CacheSalt, "a string"},
		{"ignore_eos", &r.IgnoreEOS, "true or false"},
		{"skip_special_tokens", &r.SkipSpecialTokens, "true or false"},
	}); err != nil {
		return nil, err
	}
	if len(options) > 0 && !isNull(options) {
		if options[0] != '{' {
			return nil, Invalid("stream_options", "%s is not an object", shorten(string(options), 64))
		}
		inner, bad := object(options)
		if bad != nil {
			return nil, bad
		}
		r.StreamOptions = new(StreamOptions)
		if err := decodeFields("stream_options.", inner, []field{
			{"include_usage", &r.StreamOptions.IncludeUsage, "true or false"},
			{"continuous_usage_stats", &r.StreamOptions.ContinuousUsageStats, "true or false"},
		}); err != nil {
			return nil, err
		}
	}
	for name := range neutral {
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
	if r.Prompt.Len() == 0 {
		return nil, Invalid("prompt", "the field is missing")
	}
	return r, nil
}

// A field is one key, where its value goes, and what the value must be.
type field struct {
	name string
	into any
	kind string
}

// decodeFields decodes in the order given, so that of several errors always
// the same one is reported. prefix stands before the names in messages.
func decodeFields(prefix string, fields map[string]json.RawMessage, want []field) error {
	for _, f := range want {
		raw, ok := fields[f.name]
		if !ok {
			continue
		}
		err := json.Unmarshal(raw, f.into)
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*Error](err); ok {
			return e
		}
		return Invalid(prefix+f.name, "%s is not %s", shorten(string(raw), 64), f.kind)
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
