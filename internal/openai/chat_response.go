package openai

// A ChatResponse answers POST /v1/chat/completions without stream.
type ChatResponse struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"` // Unix seconds
	Model   string       `json:"model"`
	Choices []ChatChoice `json:"choices"`
	Usage   *Usage       `json:"usage"`

	PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"` // vLLM's
}

// A ChatChoice is one answer.
type ChatChoice struct {
	Index        int           `json:"index"`
	Message      ChatMessage   `json:"message"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	StopReason   any           `json:"stop_reason"`         // vLLM's
	TokenIDs     []int32       `json:"token_ids,omitempty"` // vLLM's
}

// A ChatMessage is what the model says.
type ChatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"` // null: the model refuses nothing
}

// A ChatChunk is one event of a streamed chat completion.
type ChatChunk struct {
	ID      string
	Created int64
	Model   string
	Choices []ChatDelta
	Usage   *Usage
	// IncludeUsage writes "usage":null where Usage is nil.
	IncludeUsage bool
	// PromptTokenIDs are vLLM's, in the first chunk.
	PromptTokenIDs []int32
}

// A ChatDelta is what a chunk adds to an answer.
type ChatDelta struct {
	Index        int           `json:"index"`
	Delta        Delta         `json:"delta"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	StopReason   any           `json:"stop_reason"`         // vLLM's
	TokenIDs     []int32       `json:"token_ids,omitempty"` // vLLM's
}

// A Delta is a piece of a message; the role comes with the first.
type Delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatChunk struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"`
	Created int64       `json:"created"`
	Model   string      `json:"model"`
	Choices []ChatDelta `json:"choices"`

	PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"`
}

// MarshalJSON writes choices as [] where there are none, never as null.
func (c ChatChunk) MarshalJSON() ([]byte, error) {
	out := struct {
		chatChunk
		Usage *Usage `json:"usage"`
	}{chatChunk{c.ID, ObjectChatChunk, c.Created, c.Model, c.Choices, c.PromptTokenIDs}, c.Usage}
	if out.Choices == nil {
		out.Choices = []ChatDelta{}
	}
	if c.IncludeUsage || c.Usage != nil {
		return marshal(out)
	}
	return marshal(out.chatChunk)
}
