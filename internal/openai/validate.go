package openai

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits and defaults of the fields.
const (
	DefaultMaxTokens = 16
	MaxStop          = 4
	MaxSalt          = 1024 // characters
)

// neutral lists the known fields that are not supported, each with the values
// that change nothing about the answer; null and absent always pass. Anything
// else is refused: a client that asks for a penalty and silently gets none
// would blame the model.
var neutral = map[string][]any{
	"echo":              {false},
	"suffix":            {""},
	"logprobs":          nil,
	"presence_penalty":  {0.0},
	"frequency_penalty": {0.0},
	"logit_bias":        {map[string]any{}},

	"repetition_penalty":            {1.0},
	"length_penalty":                {1.0},
	"min_p":                         {0.0},
	"min_tokens":                    {0.0},
	"stop_token_ids":                {[]any{}},
	"include_stop_str_in_output":    {false},
	"truncate_prompt_tokens":        nil,
	"allowed_token_ids":             nil,
	"bad_words":                     {[]any{}},
	"prompt_logprobs":               nil,
	"prompt_embeds":                 nil,
	"return_token_ids":              {false},
	"return_tokens_as_token_ids":    {false},
	"spaces_between_special_tokens": {true},
	"priority":                      {0.0},
	"use_beam_search":               {false},
	"response_format":               {map[string]any{"type": "text"}},
	"structured_outputs":            nil,
	"guided_json":                   nil,
	"guided_regex":                  nil,
	"guided_choice":                 nil,
	"guided_grammar":                nil,
	"logits_processors":             nil,
	"regex":                         nil,
	"ebnf":                          nil,
	"json_schema":                   nil,
}

// Validate checks every range that does not depend on the model. Its errors
// are *Error.
func (r *CompletionRequest) Validate() error {
	if err := r.Prompt.validate(); err != nil {
		return err
	}
	if n := Or(r.MaxTokens, DefaultMaxTokens); n < 0 || n > math.MaxInt32 {
		return Invalid("max_tokens", "%d is not within 0 to %d", n, math.MaxInt32)
	}
	// The negated forms also catch NaN, which a caller in Go may set.
	if t := Or(r.Temperature, 1); !(t >= 0 && t <= 2) {
		return Invalid("temperature", "%v is not within 0 to 2", t)
	}
	if p := Or(r.TopP, 1); !(p > 0 && p <= 1) {
		return Invalid("top_p", "%v is not above 0 and at most 1", p)
	}
	if k := Or(r.TopK, 0); k < -1 || k > math.MaxInt32 {
		return Invalid("top_k", "%d is neither -1 or 0 (off) nor a count up to %d", k, math.MaxInt32)
	}
	if len(r.Stop) > MaxStop {
		return Invalid("stop", "%d strings; at most %d are allowed", len(r.Stop), MaxStop)
	}
	if i := slices.Index(r.Stop, ""); i >= 0 {
		return Invalid("stop", `string %d is "", which every text begins with`, i)
	}
	if n := Or(r.N, 1); n != 1 {
		return Invalid("n", "%d; this server makes 1 choice per prompt", n)
	}
	if n := Or(r.BestOf, 1); n != 1 {
		return Invalid("best_of", "%d; this server makes 1 choice per prompt", n)
	}
	if o := r.StreamOptions; o != nil {
		if !Or(r.Stream, false) {
			return Invalid("stream_options", "only allowed where stream is true")
		}
		if Or(o.ContinuousUsageStats, false) {
			return unsupported("stream_options.continuous_usage_stats", json.RawMessage("true"))
		}
	}
	if salt := r.CacheSalt; salt != nil {
		if n := utf8.RuneCountInString(*salt); n < 1 || n > MaxSalt {
			return Invalid("cache_salt", "%d characters are not within 1 to %d", n, MaxSalt)
		}
	}
	return r.refuseUnsupported()
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

func (r *CompletionRequest) refuseUnsupported() error {
	// In the order of names, so that of several always the same one is named.
	names := make([]string, 0, len(r.other))
	for name := range r.other {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		var value any
		if err := json.Unmarshal(r.other[name], &value); err != nil {
			return unsupported(name, r.other[name])
		}
		passes := func(other any) bool { return reflect.DeepEqual(value, other) }
		if !slices.ContainsFunc(neutral[name], passes) {
			return unsupported(name, r.other[name])
		}
	}
	return nil
}

func unsupported(name string, value json.RawMessage) *Error {
	e := Invalid(name, "%s is not supported by this server, and ignoring it would change the answer",
		shorten(string(value), 64))
	e.Code = CodeUnsupported
	return e
}
