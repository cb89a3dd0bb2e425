package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// A ChatRequest is the body of POST /v1/chat/completions. It is only read, never
// written. What it has in common with a CompletionRequest is in there; Prompt,
// Logprobs and what else only completions know stay empty.
type ChatRequest struct {
	CompletionRequest
	Messages            Messages
	MaxCompletionTokens *int // OpenAI's later name for MaxTokens, which it overrides
	WantLogprobs        *bool
	TopLogprobs         *int
	AddGenerationPrompt *bool // vLLM's; default true
}

// A Message is one turn of a conversation.
type Message struct {
	Role    string
	Content string
	Name    string
}

// Messages is a conversation.
type Messages []Message

// The roles that messages may have. RoleDeveloper is OpenAI's later name for the
// system's.
const (
	RoleSystem    = "system"
	RoleDeveloper = "developer"
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// ParseChat is ParseCompletion for POST /v1/chat/completions.
func ParseChat(body []byte) (*ChatRequest, error) {
	r, err := parse(body, ChatParameters(), unsupportedInChat)
	if err != nil {
		return nil, err
	}
	if len(r.Messages) == 0 {
		return nil, Invalid("messages", "the field is missing or empty")
	}
	return r, nil
}

// Validate is CompletionRequest's for a chat.
func (r *ChatRequest) Validate() error {
	if err := r.checkRanges(ChatParameters()); err != nil {
		return err
	}
	if r.TopLogprobs != nil && !Or(r.WantLogprobs, false) {
		return Invalid("top_logprobs", "only allowed where logprobs is true")
	}
	most, name := Or(r.MaxTokens, int(^uint32(0)>>1)), "max_tokens"
	if r.MaxCompletionTokens != nil {
		most, name = *r.MaxCompletionTokens, "max_completion_tokens"
	}
	if err := r.checkTogether(most, name); err != nil {
		return err
	}
	return r.refuseUnsupported(unsupportedInChat)
}

// UnmarshalJSON takes a list of messages or null. A content in parts becomes their
// texts, a line each, as vLLM makes it.
func (m *Messages) UnmarshalJSON(data []byte) error {
	items, err := list(data, "messages")
	if err != nil {
		return err
	}
	*m = nil
	for i, item := range items {
		message, bad := readMessage(item)
		if bad != nil {
			return Invalid("", "message %d: %s", i, bad.Message)
		}
		*m = append(*m, message)
	}
	return nil
}

func readMessage(data []byte) (Message, *Error) {
	if data[0] != '{' {
		return Message{}, Invalid("", "%s is not an object", shorten(string(data), 64))
	}
	fields, bad := object(data)
	if bad != nil {
		return Message{}, bad
	}
	var out Message
	for _, f := range []struct {
		name string
		into *string
	}{{"role", &out.Role}, {"name", &out.Name}} {
		if raw, ok := fields[f.name]; ok && json.Unmarshal(raw, f.into) != nil {
			return out, Invalid("", "its %s is %s, which is not a string", f.name, shorten(string(raw), 64))
		}
	}
	switch out.Role {
	case RoleSystem, RoleDeveloper, RoleUser, RoleAssistant:
	case "":
		return out, Invalid("", "it has no role")
	case "tool", "function":
		return out, Invalid("", "role %q is not supported: the model calls no tools", out.Role)
	default:
		return out, Invalid("", "role %q is none of system, developer, user and assistant", shorten(out.Role, 64))
	}
	for _, name := range []string{"tool_calls", "function_call", "audio"} {
		if raw, ok := fields[name]; ok && !slices.Contains([]string{"null", "[]"}, string(raw)) {
			return out, Invalid("", "%s is not supported: the model takes and gives text only", name)
		}
	}
	out.Content, bad = readContent(fields["content"])
	return out, bad
}

// readContent takes a text or a list of parts that are texts.
func readContent(raw json.RawMessage) (string, *Error) {
	var text string
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || isNull(raw):
		return "", Invalid("", "it has no content")
	case raw[0] == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", Invalid("", "its content cannot be read: %v", err)
		}
		return text, nil
	case raw[0] != '[':
		return "", Invalid("", "its content is %s, which is neither a string nor a list of parts", shorten(string(raw), 64))
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", Invalid("", "its content is no list of parts with type and text: %s", shorten(string(raw), 64))
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		if part.Type != "text" {
			return "", Invalid("", "part %d of its content has type %q; this model reads text only", i, shorten(part.Type, 64))
		}
		if part.Text == nil {
			return "", Invalid("", "part %d of its content has no text", i)
		}
		texts[i] = *part.Text
	}
	return strings.Join(texts, "\n"), nil
}
