package engine

import (
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
	// MaxTokens ends the answer. 0 computes the prompt and generates nothing.
	MaxTokens int
	// Sampling without a seed is given one at Submit.
	Sampling sample.Params
	// StopTokens end the answer, as does the model's end-of-text token unless
	// IgnoreEOS is set.
	StopTokens []int32
	IgnoreEOS  bool

	// observe sees the logits that each token was sampled from, on the step loop.
	observe func(index int, logits []float32)
}

// FinishReason says why a sequence ended; it is empty while the sequence runs.
type FinishReason string

const (
	// FinishStop: the model's end-of-text token or a stop token was generated.
	FinishStop FinishReason = "stop"
	// FinishLength: MaxTokens tokens were generated.
	FinishLength FinishReason = "length"
	// FinishAbort: the request's context ended, or the engine stopped.
	FinishAbort FinishReason = "abort"
	// FinishError: the sequence could not go on; Event.Err says why.
	FinishError FinishReason = "error"
)

// noToken stands in Event.Token where an event brings no token.
const noToken int32 = -1

// Event is one generated token, the end of a sequence, or both.
type Event struct {
	// Token is the token generated, an end-of-text or stop token included; -1 where
	// the event brings none: an abort, an error, or the end of a request for 0 tokens.
	Token int32
	// Finish is set on a sequence's last event, after which the channel is closed.
	Finish FinishReason
	// Err says what ended the sequence on FinishAbort and FinishError.
	Err error
	// Cached is how many prompt tokens were reused when the request was first admitted.
	Cached int
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
