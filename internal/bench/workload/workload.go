// Package workload makes the requests that a benchmark sends: generated ones, the same on
// every run and machine for the same seed, and those of recorded traces. It also counts
// what of a workload's prompts one cache could reuse at best.
package workload

import (
	"encoding/json"
	"time"
)

// Request is one request of a workload. Exactly one of Tokens, Text and Body says what is
// asked, except that with Continues Tokens or Text is only what this turn adds.
type Request struct {
	// Tokens is the prompt, or what a turn adds to it, as token ids.
	Tokens []int32
	// Text is the prompt, or what a turn adds to it, as text.
	Text string
	// Body is a whole request in OpenAI's form for Path; it is sent as it is, except that
	// it is streamed with usage and its model may be replaced.
	Body json.RawMessage
	// Path is /v1/completions or /v1/chat/completions; empty: the former.
	Path string
	// MaxTokens is how many tokens to generate, exactly. With a Body it bounds the body's own
	// wish, unless 0.
	MaxTokens int
	// At is when the workload's own clock sends the request, from the start.
	At time.Duration
	// After is the index of an earlier request whose answer must be complete before this one
	// is sent, or -1.
	After int
	// Think is waited between that answer and this request.
	Think time.Duration
	// Continues makes the prompt that of request After, followed by its answer, followed
	// by Tokens or Text.
	Continues bool
	// Session names the conversation or group that the request belongs to; empty: none.
	Session string
	// Placement is the replica (0-based) that the workload recorded for this request, or -1.
	Placement int
}

// Workload is a sequence of requests and what is already known about them.
type Workload struct {
	Name string
	// Parameters are what it was made from, such as groups=8, for the report.
	Parameters []Parameter
	Seed       uint64
	// Replicas is how many the workload is meant for; 0: no matter.
	Replicas int
	// Timed says that the requests' At are meant: a trace with times of its own.
	Timed    bool
	Requests []Request
	// Churn are the changes of the set of replicas during the run, by the number of requests
	// sent before.
	Churn []Change
	// Published are figures that somebody else gave for this workload, by policy name.
	Published map[string]Published
}

// Parameter is a setting of a workload.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Change adds a fresh replica, or removes one, once Sent requests have been sent.
type Change struct {
	Sent   int
	Add    bool
	Remove int // index among the replicas there were at the start; unless Add
}

// Published is what a workload's author says a policy costs on it.
type Published struct {
	Computed int64 `json:"tokens_computed"`
	Hits     int64 `json:"request_hits"`
}
