package server

import (
	"context"
	"net/http"
	"strings"

	"tailor/internal/openai"
)

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	req, err := s.readChat(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel, err := s.limited(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer cancel()
	g, err := s.orderChat(ctx, req)
	if err != nil {
		s.fail(w, r, inMessages(err))
		return
	}
	defer func() { s.account(ctx, g) }()
	if openai.Or(req.Stream, false) {
		s.streamChat(ctx, w, r, req, g)
	} else {
		s.answerChat(ctx, w, r, req, g)
	}
}

// inMessages is an error about the prompt as one about what it was made of.
func inMessages(err error) error {
	e := toOpenAI(err)
	if e.Param != "prompt" {
		return err
	}
	moved := openai.Invalid("messages", "%v", err)
	moved.Code = e.Code
	return moved
}

func (s *Server) readChat(w http.ResponseWriter, r *http.Request) (*openai.ChatRequest, error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, err
	}
	if s.Template == nil {
		e := openai.Invalid("messages", "%s comes without a chat template, so it cannot be chatted with; POST /v1/completions takes a prompt", s.ModelName)
		e.Code = openai.CodeUnsupported
		return nil, e
	}
	req, err := openai.ParseChat(body)
	if err != nil {
		return nil, err
	}
	if req.Model != s.ModelName {
		return nil, s.noModel(req.Model)
	}
	return req, req.Validate()
}

// orderChat renders the conversation and hands it to the engine. Where the answer's length
// is not given, it is what fits.
func (s *Server) orderChat(ctx context.Context, req *openai.ChatRequest) (*generation, error) {
	tokens, err := s.chatTokens(req)
	if err != nil {
		return nil, err
	}
	asked := req.MaxCompletionTokens
	if asked == nil {
		asked = req.MaxTokens
	}
	if keep := req.TruncatePrompt; keep != nil {
		fits := *keep
		if fits < 0 {
			fits = max(s.Context-openai.Or(asked, 1), 1)
		}
		tokens = tokens[max(len(tokens)-fits, 0):]
	}
	o := order{
		id:        "chatcmpl-" + requestID(ctx),
		prompts:   [][]int32{tokens},
		n:         openai.Or(req.N, 1),
		maxTokens: openai.Or(asked, max(min(s.Context, s.Engine.Stats().KV.Total*s.BlockSize)-len(tokens), 1)),
	}
	if openai.Or(req.WantLogprobs, false) {
		o.logprobs = new(openai.Or(req.TopLogprobs, 0))
	}
	if o.sampling, err = s.sampling(&req.CompletionRequest); err != nil {
		return nil, err
	}
	return s.submit(ctx, &req.CompletionRequest, o)
}

func (s *Server) answerChat(ctx context.Context, w http.ResponseWriter, r *http.Request, req *openai.ChatRequest, g *generation) {
	texts := make([]strings.Builder, len(g.choices))
	tokens := make([][]token, len(g.choices))
	err := s.follow(ctx, g, func(c *choice, p piece) error {
		texts[c.index].WriteString(p.text)
		tokens[c.index] = append(tokens[c.index], p.tokens...)
		return nil
	})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := openai.ChatResponse{ID: g.id, Object: openai.ObjectChat, Created: g.created, Model: s.ModelName, Usage: g.usage()}
	withIDs := openai.Or(req.ReturnTokenIDs, false)
	if withIDs {
		out.PromptTokenIDs = g.prompts[0].tokens
	}
	for i, c := range g.choices {
		choice := openai.ChatChoice{
			Index:    i,
			Message:  openai.ChatMessage{Role: openai.RoleAssistant, Content: texts[i].String()},
			Logprobs: s.chatChoiceLogprobs(req, tokens[i]), FinishReason: c.finishReason(), StopReason: c.stop,
		}
		if withIDs {
			choice.TokenIDs = idsOf(tokens[i])
		}
		out.Choices = append(out.Choices, choice)
	}
	s.tellCache(w, g)
	s.respond(w, out)
}

// streamChat sends the role with the first text, not in a chunk before it, which clients
// would take for the first token.
//
// The logprobs of the first text come one chunk later: OpenAI's Node client counts those
// of a choice's first chunk twice, as OpenAI never sends any there.
func (s *Server) streamChat(ctx context.Context, w http.ResponseWriter, r *http.Request, req *openai.ChatRequest, g *generation) {
	head := openai.ChatChunk{ID: g.id, Created: g.created, Model: s.ModelName, IncludeUsage: wantsUsage(&req.CompletionRequest)}
	out := openai.NewStreamWriter(w, s.WriteTimeout)
	send := func(delta openai.ChatDelta) error {
		chunk := head
		chunk.Choices = []openai.ChatDelta{delta}
		if wantsUsageAlways(&req.CompletionRequest) {
			chunk.Usage = g.usage()
		}
		if !out.Started() {
			s.tellCache(w, g)
			if openai.Or(req.ReturnTokenIDs, false) {
				chunk.PromptTokenIDs = g.prompts[0].tokens
			}
		}
		return out.Send(chunk)
	}
	begun, late := make([]bool, len(g.choices)), make([][]token, len(g.choices))
	err := s.follow(ctx, g, func(c *choice, p piece) error {
		delta := openai.ChatDelta{
			Index: c.index, Delta: openai.Delta{Content: &p.text}, FinishReason: c.finishReason(), StopReason: c.stop,
		}
		if openai.Or(req.ReturnTokenIDs, false) {
			delta.TokenIDs = idsOf(p.tokens)
		}
		if !begun[c.index] {
			begun[c.index] = true
			delta.Delta.Role = openai.RoleAssistant
			if openai.Or(req.WantLogprobs, false) {
				late[c.index] = p.tokens
				if c.finish == "" {
					return send(delta)
				}
				first := delta
				first.FinishReason, first.StopReason = nil, nil
				if err := send(first); err != nil {
					return err
				}
				delta.Delta, delta.TokenIDs, p.tokens = openai.Delta{}, nil, nil
			}
		}
		delta.Logprobs = s.chatChoiceLogprobs(req, append(late[c.index], p.tokens...))
		late[c.index] = nil
		return send(delta)
	})
	s.streamed(w, r, out, err, func() error {
		if !head.IncludeUsage {
			return nil
		}
		chunk := head
		chunk.Usage = g.usage()
		return out.Send(chunk)
	})
}

func (s *Server) chatChoiceLogprobs(req *openai.ChatRequest, tokens []token) *openai.ChatLogprobs {
	if !openai.Or(req.WantLogprobs, false) {
		return nil
	}
	return s.chatLogprobs(tokens, openai.Or(req.TopLogprobs, 0), openai.Or(req.ReturnTokensAsIDs, false))
}
