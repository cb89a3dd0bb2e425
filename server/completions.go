package server

import (
	"context"
	"net/http"
	"strings"

	"tailor/internal/openai"
	"tailor/server/engine"
)

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	req, err := s.readCompletion(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel, err := s.limited(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer cancel() // with it the engine's work ends, at the latest
	g, err := s.order(ctx, req)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer func() { s.account(ctx, g) }()
	if openai.Or(req.Stream, false) {
		s.stream(ctx, w, r, req, g)
	} else {
		s.answer(ctx, w, r, req, g)
	}
}

// readBody refuses early while the server drains.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if s.draining.Load() {
		return nil, engine.ErrDraining
	}
	return openai.ReadBody(w, r, s.MaxBody)
}

func (s *Server) readCompletion(w http.ResponseWriter, r *http.Request) (*openai.CompletionRequest, error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, err
	}
	req, err := openai.ParseCompletion(body)
	if err != nil {
		return nil, err
	}
	if req.Model != s.ModelName {
		return nil, s.noModel(req.Model)
	}
	if n := req.Prompt.Len(); n > s.MaxPrompts {
		return nil, openai.Invalid("prompt", "%d prompts in one request; at most %d are allowed", n, s.MaxPrompts)
	}
	return req, req.Validate()
}

// order hands the request to the engine.
func (s *Server) order(ctx context.Context, req *openai.CompletionRequest) (*generation, error) {
	o := order{
		id:        "cmpl-" + requestID(ctx),
		echo:      openai.Or(req.Echo, false),
		n:         perPrompt(req),
		maxTokens: openai.Or(req.MaxTokens, openai.DefaultMaxTokens),
		logprobs:  req.Logprobs, promptLogprobs: req.PromptLogprobs,
	}
	if o.logprobs == nil && o.n > openai.Or(req.N, 1) {
		o.logprobs = new(0) // the best are found by them
	}
	if o.echo && req.Logprobs != nil {
		o.promptLogprobs = new(max(*req.Logprobs, openai.Or(req.PromptLogprobs, 0)))
	}
	var err error
	if o.prompts, err = s.promptTokens(req, o.maxTokens); err != nil {
		return nil, err
	}
	if o.sampling, err = s.sampling(req); err != nil {
		return nil, err
	}
	return s.submit(ctx, req, o)
}

// perPrompt is how many choices are generated for each prompt.
func perPrompt(req *openai.CompletionRequest) int {
	return max(openai.Or(req.N, 1), openai.Or(req.BestOf, 0))
}

// answer sends everything at once.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, req *openai.CompletionRequest, g *generation) {
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
	out := openai.CompletionResponse{
		ID: g.id, Object: openai.ObjectCompletion, Created: g.created, Model: s.ModelName, Usage: g.usage(),
	}
	all, n := perPrompt(req), openai.Or(req.N, 1)
	for i := range g.prompts {
		for j, c := range best(g.choices[i*all:(i+1)*all], n) {
			choice := s.choice(req, c, piece{texts[c.index].String(), tokens[c.index]}, true)
			choice.Index = i*n + j
			if req.PromptLogprobs != nil {
				choice.PromptLogprobs = s.promptLogprobs(c.prompt, *req.PromptLogprobs)
			}
			out.Choices = append(out.Choices, choice)
		}
	}
	s.tellCache(w, g)
	s.respond(w, out)
}

// stream sends text as it comes. The first chunk carries text, or the end: clients
// measure the time to the first token by it.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, req *openai.CompletionRequest, g *generation) {
	head := openai.Chunk{ID: g.id, Object: openai.ObjectCompletion, Created: g.created, Model: s.ModelName}
	head.IncludeUsage = wantsUsage(req)
	out := openai.NewStreamWriter(w, s.WriteTimeout)
	begun := make([]bool, len(g.choices))
	err := s.follow(ctx, g, func(c *choice, p piece) error {
		chunk := head
		chunk.Choices = []openai.Choice{s.choice(req, c, p, !begun[c.index])}
		begun[c.index] = true
		if wantsUsageAlways(req) {
			chunk.Usage = g.usage()
		}
		if !out.Started() {
			s.tellCache(w, g)
		}
		return out.Send(chunk)
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

func wantsUsage(req *openai.CompletionRequest) bool {
	return req.StreamOptions != nil && openai.Or(req.StreamOptions.IncludeUsage, false)
}

// wantsUsageAlways is true where every chunk is to say what was used so far. As in vLLM
// that takes both options.
func wantsUsageAlways(req *openai.CompletionRequest) bool {
	return wantsUsage(req) && openai.Or(req.StreamOptions.ContinuousUsageStats, false)
}

// choice is a piece of a choice on the wire; first says that it is the first.
func (s *Server) choice(req *openai.CompletionRequest, c *choice, p piece, first bool) openai.Choice {
	out := openai.Choice{Index: c.index, Text: p.text, FinishReason: c.finishReason(), StopReason: c.stop}
	if openai.Or(req.ReturnTokenIDs, false) {
		out.TokenIDs = idsOf(p.tokens)
		if first {
			out.PromptTokenIDs = c.prompt.tokens
		}
	}
	if req.Logprobs == nil {
		return out
	}
	tokens := p.tokens
	if first && openai.Or(req.Echo, false) {
		tokens = append(s.echoed(c.prompt), tokens...)
	}
	out.Logprobs = s.logprobs(tokens, *req.Logprobs, openai.Or(req.ReturnTokensAsIDs, false))
	return out
}

func idsOf(tokens []token) []int32 {
	ids := make([]int32, len(tokens))
	for i, t := range tokens {
		ids[i] = t.id
	}
	return ids
}
