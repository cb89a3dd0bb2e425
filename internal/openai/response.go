package openai

// The object names of answers. Streamed chunks of a completion carry the same
// one as the whole.
const (
	ObjectCompletion = "text_completion"
	ObjectChat       = "chat.completion"
	ObjectChatChunk  = "chat.completion.chunk"
	ObjectModel      = "model"
	ObjectList       = "list"
)

// The finish reasons of a choice.
const (
	FinishStop   = "stop"
	FinishLength = "length"
)

// A CompletionResponse answers POST /v1/completions without stream.
type CompletionResponse struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"` // Unix seconds
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage"`
}

// A Choice is a text, or a piece of it, that a prompt led to.
type Choice struct {
	Index        int       `json:"index"` // of the prompt times n, plus which of its n
	Text         string    `json:"text"`
	Logprobs     *Logprobs `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"` // null until the end
	StopReason   any       `json:"stop_reason"`   // the stop string or stop token id that ended it (vLLM's)

	PromptLogprobs []PromptLogprobs `json:"prompt_logprobs,omitempty"`  // vLLM's
	PromptTokenIDs []int32          `json:"prompt_token_ids,omitempty"` // vLLM's; of a stream in the first chunk
	TokenIDs       []int32          `json:"token_ids,omitempty"`        // vLLM's
}

// A Chunk is one event of a streamed completion.
type Chunk struct {
	ID      string
	Object  string
	Created int64
	Model   string
	Choices []Choice
	Usage   *Usage
	// IncludeUsage writes "usage":null where Usage is nil, as clients that asked
	// for usage expect of all chunks but the last. Not read back.
	IncludeUsage bool
}

// chunk is what all chunks carry.
type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
}

type chunkWithUsage struct {
	chunk
	Usage *Usage `json:"usage"`
}

// MarshalJSON writes choices as [] where there are none, never as null.
func (c Chunk) MarshalJSON() ([]byte, error) {
	out := chunkWithUsage{chunk{c.ID, c.Object, c.Created, c.Model, c.Choices}, c.Usage}
	if out.Choices == nil {
		out.Choices = []Choice{}
	}
	if c.IncludeUsage || c.Usage != nil {
		return marshal(out)
	}
	return marshal(out.chunk)
}

// Usage counts tokens; over several prompts, their sum.
type Usage struct {
	PromptTokens        int                  `json:"prompt_tokens"`
	CompletionTokens    int                  `json:"completion_tokens"`
	TotalTokens         int                  `json:"total_tokens"`
	PromptTokensDetails *PromptTokensDetails `json:"prompt_tokens_details"`
}

// PromptTokensDetails says how much of the prompt was not computed.
type PromptTokensDetails struct {
	CachedTokens *int `json:"cached_tokens"`
}

// NewUsage says cached_tokens even where it is 0: a client must be able to
// tell "no hit" from "not reported".
func NewUsage(prompt, completion, cached int) *Usage {
	return &Usage{
		PromptTokens:        prompt,
		CompletionTokens:    completion,
		TotalTokens:         prompt + completion,
		PromptTokensDetails: &PromptTokensDetails{CachedTokens: &cached},
	}
}

// Cached is the number of prompt tokens that came from the cache, and whether
// the server reported it at all.
func (u *Usage) Cached() (tokens int, reported bool) {
	if u == nil || u.PromptTokensDetails == nil || u.PromptTokensDetails.CachedTokens == nil {
		return 0, false
	}
	return *u.PromptTokensDetails.CachedTokens, true
}

// A ModelList answers GET /v1/models.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// A Model answers GET /v1/models/{id}.
type Model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"` // the context, in tokens (vLLM's)
}
