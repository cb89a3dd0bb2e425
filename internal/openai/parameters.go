package openai

import "math"

// A Kind says what the value of a parameter must be.
type Kind int

// The kinds. Numbers are checked against the row's range, texts and lists against
// its lengths.
const (
	KindText Kind = iota
	KindBoolean
	KindInteger
	KindNumber
	KindStop     // a string or a list of strings
	KindWords    // a list of strings
	KindTokenIDs // a list of token ids
	KindBiases   // an object of token ids and numbers
	KindPrompt
	KindOptions
	KindMessages
)

// want completes "the value is not ...".
func (k Kind) want() string {
	return [...]string{
		"a string", "true or false", "an integer", "a number", "a string or a list of strings", "a list of strings",
		"a list of token ids", "an object of token ids and biases", "a prompt", "an object", "a list of messages",
	}[k]
}

// A Parameter is a row of the table that requests are read and checked by.
type Parameter struct {
	Name string
	Kind Kind
	// Low and High bound a number, or each bias. LowOpen says that Low itself is out.
	Low, High float64
	LowOpen   bool
	// MinLen and MaxLen bound a text in characters, a list in items; MaxLen 0 does not.
	MinLen, MaxLen int

	into func(*ChatRequest) any // where the value goes
}

// Limits and defaults of the fields.
const (
	DefaultMaxTokens = 16
	MaxStop          = 4
	MaxSalt          = 1024 // characters
	// MaxList bounds lists that are gone through for every token.
	MaxList = 1024
)

// CompletionParameters is the table for POST /v1/completions.
func CompletionParameters() []Parameter {
	type r = *ChatRequest
	return append([]Parameter{
		{Name: "model", Kind: KindText, into: func(r r) any { return &r.Model }},
		{Name: "prompt", Kind: KindPrompt, into: func(r r) any { return &r.Prompt }},
		{Name: "best_of", Kind: KindInteger, High: 20, into: func(r r) any { return &r.BestOf }},
		{Name: "echo", Kind: KindBoolean, into: func(r r) any { return &r.Echo }},
		{Name: "suffix", Kind: KindText, into: func(r r) any { return &r.Suffix }},
		{Name: "logprobs", Kind: KindInteger, High: 5, into: func(r r) any { return &r.Logprobs }},
		{Name: "prompt_logprobs", Kind: KindInteger, High: 20, into: func(r r) any { return &r.PromptLogprobs }},
	}, sharedParameters()...)
}

// ChatParameters is the table for POST /v1/chat/completions.
func ChatParameters() []Parameter {
	type r = *ChatRequest
	return append([]Parameter{
		{Name: "model", Kind: KindText, into: func(r r) any { return &r.Model }},
		{Name: "messages", Kind: KindMessages, MinLen: 1, into: func(r r) any { return &r.Messages }},
		{Name: "max_completion_tokens", Kind: KindInteger, High: math.MaxInt32, into: func(r r) any { return &r.MaxCompletionTokens }},
		{Name: "logprobs", Kind: KindBoolean, into: func(r r) any { return &r.WantLogprobs }},
		{Name: "top_logprobs", Kind: KindInteger, High: 20, into: func(r r) any { return &r.TopLogprobs }},
		{Name: "add_generation_prompt", Kind: KindBoolean, into: func(r r) any { return &r.AddGenerationPrompt }},
	}, sharedParameters()...)
}

// sharedParameters is what both tables hold.
func sharedParameters() []Parameter {
	type r = *ChatRequest
	return []Parameter{
		{Name: "max_tokens", Kind: KindInteger, High: math.MaxInt32, into: func(r r) any { return &r.MaxTokens }},
		{Name: "temperature", Kind: KindNumber, High: 2, into: func(r r) any { return &r.Temperature }},
		{Name: "top_p", Kind: KindNumber, High: 1, LowOpen: true, into: func(r r) any { return &r.TopP }},
		{Name: "top_k", Kind: KindInteger, Low: -1, High: math.MaxInt32, into: func(r r) any { return &r.TopK }},
		{Name: "min_p", Kind: KindNumber, High: 1, into: func(r r) any { return &r.MinP }},
		{Name: "seed", Kind: KindInteger, Low: math.MinInt64, High: math.MaxInt64, into: func(r r) any { return &r.Seed }},
		{Name: "n", Kind: KindInteger, Low: 1, High: 128, into: func(r r) any { return &r.N }},
		{Name: "presence_penalty", Kind: KindNumber, Low: -2, High: 2, into: func(r r) any { return &r.PresencePenalty }},
		{Name: "frequency_penalty", Kind: KindNumber, Low: -2, High: 2, into: func(r r) any { return &r.FrequencyPenalty }},
		{Name: "repetition_penalty", Kind: KindNumber, High: math.MaxFloat32, LowOpen: true, into: func(r r) any { return &r.RepetitionPenalty }},
		{Name: "logit_bias", Kind: KindBiases, Low: -100, High: 100, into: func(r r) any { return &r.LogitBias }},
		{Name: "stop", Kind: KindStop, MaxLen: MaxStop, into: func(r r) any { return &r.Stop }},
		{Name: "stop_token_ids", Kind: KindTokenIDs, MaxLen: MaxList, into: func(r r) any { return &r.StopTokenIDs }},
		{Name: "include_stop_str_in_output", Kind: KindBoolean, into: func(r r) any { return &r.IncludeStop }},
		{Name: "ignore_eos", Kind: KindBoolean, into: func(r r) any { return &r.IgnoreEOS }},
		{Name: "min_tokens", Kind: KindInteger, High: math.MaxInt32, into: func(r r) any { return &r.MinTokens }},
		{Name: "allowed_token_ids", Kind: KindTokenIDs, MinLen: 1, into: func(r r) any { return &r.AllowedTokenIDs }},
		{Name: "bad_words", Kind: KindWords, MaxLen: MaxList, into: func(r r) any { return &r.BadWords }},
		{Name: "truncate_prompt_tokens", Kind: KindInteger, Low: -1, High: math.MaxInt32, into: func(r r) any { return &r.TruncatePrompt }},
		{Name: "stream", Kind: KindBoolean, into: func(r r) any { return &r.Stream }},
		{Name: "stream_options", Kind: KindOptions, into: func(r r) any { return &r.StreamOptions }},
		{Name: "user", Kind: KindText, into: func(r r) any { return &r.User }},
		{Name: "cache_salt", Kind: KindText, MinLen: 1, MaxLen: MaxSalt, into: func(r r) any { return &r.CacheSalt }},
		{Name: "priority", Kind: KindInteger, Low: math.MinInt32, High: math.MaxInt32, into: func(r r) any { return &r.Priority }},
		{Name: "add_special_tokens", Kind: KindBoolean, into: func(r r) any { return &r.AddSpecialTokens }},
		{Name: "skip_special_tokens", Kind: KindBoolean, into: func(r r) any { return &r.SkipSpecialTokens }},
		{Name: "spaces_between_special_tokens", Kind: KindBoolean, into: func(r r) any { return &r.SpacesBetweenTokens }},
		{Name: "return_token_ids", Kind: KindBoolean, into: func(r r) any { return &r.ReturnTokenIDs }},
		{Name: "return_tokens_as_token_ids", Kind: KindBoolean, into: func(r r) any { return &r.ReturnTokensAsIDs }},
	}
}
