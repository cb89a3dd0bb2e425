package bench

// Request is one request of a workload, in the order in which it is sent.
type Request struct {
	// Tokens is the prompt as token ids, so that no tokenizer stands between the
	// workload and what the engine counts.
	Tokens []int32
	// MaxTokens is how many tokens to generate.
	MaxTokens int
	// Placement is the replica (0-based) that the workload recorded for this request,
	// or -1 where it recorded none.
	Placement int
}

// Workload is a sequence of requests and what is already known about them.
type Workload struct {
	Name     string
	Replicas int
	Requests []Request
	// Published are figures that somebody else gave for this workload, by policy name.
	Published map[string]Published
}

// Published is what a workload's author says a policy costs on it.
type Published struct {
	Computed int64 `json:"tokens_computed"`
	Hits     int64 `json:"request_hits"`
}

// PromptTokens is the number of prompt tokens in the whole workload.
func (w *Workload) PromptTokens() int64 {
	var n int64
	for i := range w.Requests {
		n += int64(len(w.Requests[i].Tokens))
	}
	return n
}
