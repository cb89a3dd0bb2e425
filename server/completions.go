package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"tailor/internal/openai"
	"tailor/model/sample"
	"tailor/server/engine"
)

// A completion is a request under way: a choice for each prompt.
type completion struct {
	id      string
	created int64
	choices []*choice
	updates <-chan update
}

// An update is an event of one choice.
type update struct {
	choice int
	event  engine.Event
	at     time.Time
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context() // ends, at the latest, when this handler returns
	req, err := s.readCompletion(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	c, err := s.submit(ctx, req)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer func() { s.account(ctx, c) }()
	if openai.Or(req.Stream, false) {
		s.stream(ctx, w, r, req, c)
	} else {
		s.answer(ctx, w, r, c)
	}
}

func (s *Server) readCompletion(w http.ResponseWriter, r *http.Request) (*openai.CompletionRequest, error) {
	if s.draining.Load() {
		return nil, engine.ErrDraining
	}
	body, err := openai.ReadBody(w, r, s.MaxBody)
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

// tokens are the token ids of prompt i.
func (s *Server) tokens(p openai.Prompt, i int) ([]int32, error) {
	if p.Tokens != nil {
		return p.Tokens[i], nil
	}
	text := p.Texts[i]
	// Megabytes of text need not be tokenized to know that they do not fit.
	if least := (len(text) + s.maxTokenBytes - 1) / s.maxTokenBytes; least > s.Context {
		e := openai.Invalid("prompt", "%d bytes of text are at least %d tokens: more than the model's context of %d",
			len(text), least, s.Context)
		e.Code = openai.CodeContextLength
		return nil, e
	}
	return s.Tokenizer.Encode(text, false)
}

// submit hands all prompts to the engine, or none: ctx ends those accepted before one
// that is not.
func (s *Server) submit(ctx context.Context, req *openai.CompletionRequest) (*completion, error) {
	maxTokens := openai.Or(req.MaxTokens, openai.DefaultMaxTokens)
	c := &completion{id: "cmpl-" + requestID(ctx), created: time.Now().Unix()}
	record := recordOf(ctx)
	isSpecial := s.Tokenizer.IsSpecial
	if !openai.Or(req.SkipSpecialTokens, true) {
		isSpecial = func(int32) bool { return false }
	}
	prompts := make([][]int32, req.Prompt.Len())
	for i := range prompts {
		var err error
		if prompts[i], err = s.tokens(req.Prompt, i); err != nil {
			return nil, err
		}
		record.prompt += len(prompts[i])
	}
	events := make([]<-chan engine.Event, len(prompts))
	for i, tokens := range prompts {
		own, cancel := context.WithCancelCause(ctx)
		ch, err := s.Engine.Submit(own, engine.Request{
			ID:        requestID(ctx),
			Tokens:    tokens,
			Salt:      openai.Or(req.CacheSalt, ""),
			MaxTokens: maxTokens,
			Sampling: sample.Params{
				Temperature: openai.Or(req.Temperature, 1),
				TopP:        openai.Or(req.TopP, 1),
				TopK:        openai.Or(req.TopK, 0),
				Seed:        req.Seed,
			},
			IgnoreEOS: openai.Or(req.IgnoreEOS, false),
		})
		if err != nil {
			cancel(err)
			if len(prompts) > 1 {
				err = fmt.Errorf("prompt %d of %d: %w", i, len(prompts), err)
			}
			return nil, err
		}
		events[i] = ch
		c.choices = append(c.choices, &choice{
			index: i, prompt: len(tokens), cancel: cancel, isSpecial: isSpecial,
			decoder: s.Tokenizer.NewStream(), stops: newStopFinder(req.Stop),
		})
	}
	c.updates = collect(events, maxTokens+1)
	record.completion = true
	return c, nil
}

// collect merges the events of all prompts and stamps them as they come: a client that
// reads slowly must not make the engine look slow. The result holds all there can be,
// most for each prompt, so the goroutines end with the engine's channels, read or not.
func collect(events []<-chan engine.Event, most int) <-chan update {
	updates := make(chan update, len(events)*most)
	var all sync.WaitGroup
	for i, ch := range events {
		all.Go(func() {
			for event := range ch {
				updates <- update{i, event, time.Now()}
			}
		})
	}
	go func() {
		all.Wait()
		close(updates)
	}()
	return updates
}

// errGone means that the client does not take the answer any more.
var errGone = errors.New("the client has gone")

// follow hands text to emit as it becomes certain, until every choice has ended. At a
// choice's end emit is called even if there is no text.
func (s *Server) follow(ctx context.Context, c *completion, emit func(*choice, string) error) error {
	last := make([]time.Time, len(c.choices))
	for open := len(c.choices); open > 0; {
		var u update
		select {
		case <-ctx.Done():
			return errGone
		case next, ok := <-c.updates:
			if !ok {
				return errNoReason
			}
			u = next
		}
		ch := c.choices[u.choice]
		if ch.finish != "" {
			continue // came before the engine saw the cancellation
		}
		text, err := ch.push(u.event)
		if err != nil {
			return err
		}
		if u.event.Token >= 0 {
			if !last[u.choice].IsZero() {
				s.metrics.interToken.Observe(u.at.Sub(last[u.choice]).Seconds())
			}
			last[u.choice] = u.at
		}
		if ch.finish != "" {
			open--
			s.metrics.finished(ch, u.at)
		} else if text == "" {
			continue
		}
		if err := emit(ch, text); err != nil {
			return errGone
		}
	}
	return nil
}

// answer sends all text at once.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, c *completion) {
	texts := make([]strings.Builder, len(c.choices))
	err := s.follow(ctx, c, func(ch *choice, text string) error {
		texts[ch.index].WriteString(text)
		return nil
	})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := openai.CompletionResponse{
		ID: c.id, Object: openai.ObjectCompletion, Created: c.created, Model: s.ModelName, Usage: c.usage(),
	}
	for i, ch := range c.choices {
		out.Choices = append(out.Choices, ch.answer(texts[i].String()))
	}
	s.respond(w, out)
}

// stream sends text as it comes. The first chunk carries text, or the end: clients
// measure the time to the first token by it.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, req *openai.CompletionRequest, c *completion) {
	head := openai.Chunk{ID: c.id, Object: openai.ObjectCompletion, Created: c.created, Model: s.ModelName}
	if o := req.StreamOptions; o != nil {
		head.IncludeUsage = openai.Or(o.IncludeUsage, false)
	}
	out := openai.NewStreamWriter(w, s.WriteTimeout)
	err := s.follow(ctx, c, func(ch *choice, text string) error {
		chunk := head
		chunk.Choices = []openai.Choice{ch.answer(text)}
		return out.Send(chunk)
	})
	switch {
	case err == nil:
		if head.IncludeUsage {
			chunk := head
			chunk.Usage = c.usage()
			err = out.Send(chunk)
		}
		if err == nil {
			err = out.Done()
		}
		if err != nil {
			s.fail(w, r, errGone)
		}
	case !out.Started():
		s.fail(w, r, err)
	default:
		if e := s.refusal(r, err); e != nil {
			_ = out.Fail(e) // the client may be gone by now; nobody is left to tell
		}
	}
}

func (c *completion) usage() *openai.Usage {
	var prompt, generated, cached int
	for _, ch := range c.choices {
		prompt += ch.prompt
		generated += ch.generated
		cached += ch.cached
	}
	return openai.NewUsage(prompt, generated, cached)
}
