package workload

// LongestRows is how many rows of a KV cache the largest request takes, and its index: its
// prompt and its answer but for the last token, which is never run. A prompt that goes on
// from an earlier one holds that and its answer too. Of texts nothing is known before they
// are tokenized: they count as nothing.
func (w *Workload) LongestRows() (rows, request int) {
	prompts := make([]int, len(w.Requests))
	for i := range w.Requests {
		r := &w.Requests[i]
		prompts[i] = len(r.Tokens)
		if r.Continues {
			prompts[i] += prompts[r.After] + w.Requests[r.After].MaxTokens
		}
		if n := prompts[i] + max(r.MaxTokens-1, 0); n > rows {
			rows, request = n, i
		}
	}
	return rows, request
}
