package engine

import (
	"context"
	"time"

	"tailor/model/sample"
)

// Request is one prompt to complete.
type Request struct {
	// ID names the request in the log. It need not be unique.
	ID string
	// Tokens is the prompt. Submit copies it.
	Tokens []int32
	// Salt separates prefixes: only requests with the same salt reuse each other's.
	Salt string
	// N is how many choices to generate from the prompt, which is computed once; 0 is 1.
	// Choice i samples with the seed plus i.
	N int
	// Priority orders requests before arrival does: the lower is served first.
	Priority int
	// MaxTokens ends each choice. 0 computes the prompt and generates nothing.
	MaxTokens int
	// MinTokens is how many tokens a choice has at least: until then the tokens that
	// would end it are not sampled.
	MinTokens int
	// Sampling without a seed is given one at Submit.
	Sampling sample.Params
	// StopTokens end the answer, as does the model's end-of-text token unless
	// IgnoreEOS is set.
	StopTokens []int32
	IgnoreEOS  bool
	// Logprobs, if not nil, asks for the log probability of each generated token, and for
	// that many of the likeliest tokens in its place.
	Logprobs *int
	// PromptLogprobs, if not nil, asks for the same of each prompt token. Such a request
	// computes all of its prompt: a cached row has no logits.
	PromptLogprobs *int
	// ChoiceContexts end single choices: when number i ends, choice i is aborted and the
	// others go on. It has N contexts, or none, where Submit's ctx alone ends them all.
	ChoiceContexts []context.Context

	// observe sees the logits that each token was sampled from, on the step loop.
	observe func(choice, index int, logits []float32)
}

// FinishReason says why a choice ended; it is empty while the choice goes on.
type FinishReason string

const (
	// FinishStop: the model's end-of-text token or a stop token was generated.
	FinishStop FinishReason = "stop"
	// FinishLength: MaxTokens tokens were generated.
	FinishLength FinishReason = "length"
	// FinishAbort: the context of the request or of the choice ended, the request took
	// longer than Config.RequestTimeout, or the engine stopped. Event.Err says which.
	FinishAbort FinishReason = "abort"
	// FinishError: the choice could not go on; Event.Err says why.
	FinishError FinishReason = "error"
)

// noToken stands in Event.Token where an event brings no token.
const noToken int32 = -1

// Event is one generated token, the end of a choice, or both.
type Event struct {
	// Choice is whose it is, 0 to N-1. The events of choices come in any order.
	Choice int
	// Token is the token generated, an end-of-text or stop token included; -1 where
	// the event brings none: an abort, an error, or the end of a request for 0 tokens.
	Token int32
	// Finish is set on a choice's last event. The channel is closed after the last of all.
	Finish FinishReason
	// Err says what ended the choice on FinishAbort and FinishError.
	Err error
	// Cached is how many prompt tokens were reused when the request was first admitted.
	Cached int
	// Cache says why it was not more.
	Cache CacheReport
	// Logprobs is Token's, where the request asks for it.
	Logprobs *TokenLogprobs
	// Prompt is one entry per prompt token, the first of them nil as nothing predicts it.
	// It comes with the first event of choice 0 that follows the prompt's computation.
	Prompt []*TokenLogprobs
	// Times are those known so far.
	Times Times
}

// Times are the moments of a request's life; those not reached are zero.
type Times struct {
	Arrived    time.Time // Submit
	Admitted   time.Time // blocks allocated for the first time
	FirstToken time.Time
	Finished   time.Time
}
