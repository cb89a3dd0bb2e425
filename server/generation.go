package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"tailor/internal/openai"
	"tailor/model/sample"
	"tailor/server/engine"
)

// A generation is a request under way.
type generation struct {
	id      string
	created int64
	prompts []*prompt
	choices []*choice // of the first prompt, of the second, ...; each has equally many
	scored  bool      // the prompts' logprobs are asked for
	updates <-chan update
}

// An update is an event of one of the prompts.
type update struct {
	prompt int
	event  engine.Event
	at     time.Time
}

// An order is what a request asks the engine for, whichever API it came by.
type order struct {
	id             string // of the answer
	prompts        [][]int32
	echo           bool
	n              int // choices of each prompt
	maxTokens      int
	sampling       sample.Params
	logprobs       *int
	promptLogprobs *int
}

// submit hands all prompts to the engine, or none: ctx ends those accepted before one
// that is not.
func (s *Server) submit(ctx context.Context, req *openai.CompletionRequest, o order) (*generation, error) {
	for _, id := range req.StopTokenIDs {
		if int(id) >= s.Tokenizer.VocabSize() {
			return nil, openai.Invalid("stop_token_ids", "there is no token %d; ids are 0 to %d", id, s.Tokenizer.VocabSize()-1)
		}
	}
	g := &generation{id: o.id, created: time.Now().Unix(), scored: o.promptLogprobs != nil}
	record := recordOf(ctx)
	for _, tokens := range o.prompts {
		record.prompt += len(tokens)
	}
	isSpecial := s.Tokenizer.IsSpecial
	if !openai.Or(req.SkipSpecialTokens, true) {
		isSpecial = func(int32) bool { return false }
	}
	events := make([]<-chan engine.Event, len(o.prompts))
	for i, tokens := range o.prompts {
		contexts, cancels := make([]context.Context, o.n), make([]context.CancelCauseFunc, o.n)
		for j := range contexts {
			contexts[j], cancels[j] = context.WithCancelCause(ctx)
		}
		all, each := ctx, contexts
		if o.n == 1 {
			all, each = contexts[0], nil
		}
		ch, err := s.Engine.Submit(all, engine.Request{
			ID: requestID(ctx), Tokens: tokens, Salt: s.salt(ctx, req.CacheSalt), N: o.n,
			Priority: openai.Or(req.Priority, 0), MaxTokens: o.maxTokens, MinTokens: openai.Or(req.MinTokens, 0),
			Sampling: o.sampling, StopTokens: slices.Clone(req.StopTokenIDs), IgnoreEOS: openai.Or(req.IgnoreEOS, false),
			Logprobs: o.logprobs, PromptLogprobs: o.promptLogprobs, ChoiceContexts: each,
		})
		if err != nil {
			for _, cancel := range cancels {
				cancel(err)
			}
			if len(o.prompts) > 1 {
				err = fmt.Errorf("prompt %d of %d: %w", i, len(o.prompts), err)
			}
			return nil, err
		}
		events[i] = ch
		p := &prompt{tokens: tokens}
		if o.echo {
			p.echo = s.Tokenizer.Decode(tokens)
		}
		g.prompts = append(g.prompts, p)
		for j, cancel := range cancels {
			g.choices = append(g.choices, &choice{
				index: i*o.n + j, prompt: p, cancel: cancel, isSpecial: isSpecial, decoder: s.Tokenizer.NewStream(),
				stops: newStopFinder(req.Stop), minTokens: openai.Or(req.MinTokens, 0), stopIDs: req.StopTokenIDs,
				includeStop: openai.Or(req.IncludeStop, false),
			})
		}
	}
	g.updates = collect(events, o.n*(o.maxTokens+1))
	record.completion = true
	return g, nil
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

// follow hands on what becomes certain, until every choice has ended. The first piece of a
// choice begins with the prompt if that is to be echoed. At a choice's end emit is called
// even if there is no text.
func (s *Server) follow(ctx context.Context, g *generation, emit func(*choice, piece) error) error {
	f := follower{server: s, generation: g, emit: emit, open: len(g.choices), held: make([]piece, len(g.choices))}
	for f.open > 0 {
		select {
		case <-ctx.Done():
			return gone(ctx)
		case u, ok := <-g.updates:
			if !ok {
				return errNoReason
			}
			if err := f.take(u); err != nil {
				return err
			}
		}
	}
	return nil
}

// gone is why ctx has ended: the time that the client gave, the server's end, or the
// client's leaving.
func gone(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, engine.ErrTimeout) || errors.Is(cause, ErrCut) {
		return cause
	}
	return errGone
}

// A follower takes the updates of a generation.
type follower struct {
	server *Server
	*generation
	emit    func(*choice, piece) error
	open    int      // choices that go on
	held    []piece  // per choice: tokens without text of their own yet
	waiting []update // of choices whose prompt's scores have not come
}

func (f *follower) take(u update) error {
	p := f.prompts[u.prompt]
	perPrompt := len(f.choices) / len(f.prompts)
	p.begun, p.cached, p.cache = true, u.event.Cached, u.event.Cache
	if u.event.Prompt != nil {
		p.scores = u.event.Prompt
	}
	c := f.choices[u.prompt*perPrompt+u.event.Choice]
	if f.scored && p.scores == nil && u.event.Finish != engine.FinishAbort && u.event.Finish != engine.FinishError {
		f.waiting = append(f.waiting, u) // they come with the first choice, which may not be the first to come
		return nil
	}
	if err := f.push(c, u); err != nil {
		return err
	}
	waiting := f.waiting
	f.waiting = nil
	for _, w := range waiting {
		if err := f.take(w); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) push(c *choice, u update) error {
	if c.finish != "" {
		return nil // came before the engine saw the cancellation
	}
	out := &f.held[c.index]
	if !c.begun {
		*out = c.begin()
	}
	next, err := c.push(u.event)
	if err != nil {
		return err
	}
	out.text += next.text
	out.tokens = append(out.tokens, next.tokens...)
	if u.event.Token >= 0 {
		if !c.last.IsZero() {
			f.server.metrics.interToken.Observe(u.at.Sub(c.last).Seconds())
		}
		c.last = u.at
	}
	if c.finish != "" {
		f.open--
		f.server.metrics.finished(c, u.at)
	} else if out.text == "" {
		return nil
	}
	ready := *out
	*out = piece{}
	if err := f.emit(c, ready); err != nil {
		return errGone
	}
	return nil
}

// usage counts every token that was generated, those of choices that are not returned too.
func (g *generation) usage() *openai.Usage {
	var prompt, generated, cached int
	for _, p := range g.prompts {
		prompt += len(p.tokens)
		cached += p.cached
	}
	for _, c := range g.choices {
		generated += c.generated
	}
	return openai.NewUsage(prompt, generated, cached)
}

// echoed are the prompt's tokens as an answer that begins with them lists them.
func (s *Server) echoed(p *prompt) []token {
	tokens := make([]token, len(p.tokens))
	decoder, chars := s.Tokenizer.NewStream(), 0
	for i, id := range p.tokens {
		tokens[i] = token{id: id, offset: chars}
		if p.scores != nil {
			tokens[i].logprobs = p.scores[i]
		}
		for range decoder.Push(id) {
			chars++
		}
	}
	return tokens
}

// streamed runs a stream: send what follows hands on, finish with what ends it.
func (s *Server) streamed(w http.ResponseWriter, r *http.Request, out *openai.StreamWriter, err error, last func() error) {
	switch {
	case err == nil:
		if last() != nil || out.Done() != nil {
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
