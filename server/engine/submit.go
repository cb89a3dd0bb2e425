package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tailor/model/sample"
)

// maxChoices bounds Request.N, since the events of all choices have their room from the
// start. It is the OpenAI API's bound.
const maxChoices = 128

// Submit queues a request and returns its events. A request that could never be served
// is refused here and leaves nothing behind; the errors name the numbers.
//
// When ctx ends, the request's choices are aborted and their blocks are free within one
// step. The channel holds all events a request can have, so the step loop never waits for
// a reader, and a reader may leave without telling anybody but ctx.
func (e *Engine) Submit(ctx context.Context, r Request) (<-chan Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.N = max(r.N, 1)
	if err := e.accepts(&r); err != nil {
		return nil, err
	}
	s := e.newSequence(ctx, r)

	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.state {
	case draining, drained:
		return nil, ErrDraining
	case stopped:
		return nil, ErrStopped
	}
	if err := e.hasRoom(s); err != nil {
		return nil, err
	}
	// Numbered under the lock, so that arrival order is queue order.
	s.arrival = e.arrivals
	e.arrivals++
	e.inbox = append(e.inbox, s)
	e.signal()
	return s.events, nil
}

// hasRoom says whether the queue takes one more. An empty one always does: a request that
// is larger than the bounds would otherwise be told to come back for ever. mu is held.
func (e *Engine) hasRoom(s *sequence) error {
	choices, tokens := e.waiting()
	switch {
	case choices == 0:
		return nil
	case choices+s.choices() > e.cfg.MaxWaiting:
		if s.choices() > 1 {
			return fmt.Errorf("%w: %d choices wait and the request has %d, more than %d together",
				ErrQueueFull, choices, s.choices(), e.cfg.MaxWaiting)
		}
		return fmt.Errorf("%w: %d requests wait", ErrQueueFull, choices)
	case e.cfg.MaxWaitingTokens > 0 && tokens+s.prompt > e.cfg.MaxWaitingTokens:
		return fmt.Errorf("%w: %d tokens wait and the request has %d, more than %d together",
			ErrQueueFull, tokens, s.prompt, e.cfg.MaxWaitingTokens)
	}
	return nil
}

// waiting is what waits, received or not. mu is held.
func (e *Engine) waiting() (choices, tokens int) {
	choices, tokens = sizeOf(e.inbox)
	return choices + e.snapshot.Waiting, tokens + e.snapshot.WaitingTokens
}

func sizeOf(queue []*sequence) (choices, tokens int) {
	for _, s := range queue {
		choices += s.choices()
		tokens += len(s.tokens)
	}
	return choices, tokens
}

// accepts says why the request can never be served, or nil.
func (e *Engine) accepts(r *Request) error {
	prompt := len(r.Tokens)
	if prompt == 0 {
		return ErrEmptyPrompt
	}
	if r.MaxTokens < 0 {
		return ErrMaxTokens{r.MaxTokens}
	}
	// Subtracted, not added: MaxTokens may be anything that fits an int.
	if r.MaxTokens > e.shape.Context-prompt {
		return ErrContext{Prompt: prompt, MaxTokens: r.MaxTokens, Context: e.shape.Context}
	}
	for i, id := range r.Tokens {
		if id < 0 || int(id) >= e.shape.Vocab {
			return ErrTokenRange{Index: i, ID: id, Vocab: e.shape.Vocab}
		}
	}
	// The last token generated is never run, so it takes no row. Choices beyond the first
	// need no more: what does not fit beside the others waits for them to finish.
	rows := prompt + max(r.MaxTokens-1, 0)
	if blocks := (rows + e.blockSize - 1) / e.blockSize; blocks > e.blocks {
		return ErrTooLarge{Blocks: blocks, Pool: e.blocks}
	}
	for _, f := range []struct {
		name      string
		value     *int
		low, high int
	}{
		{"n", &r.N, 1, maxChoices},
		{"min_tokens", &r.MinTokens, 0, r.MaxTokens},
		{"logprobs", r.Logprobs, 0, e.shape.Vocab},
		{"prompt_logprobs", r.PromptLogprobs, 0, e.shape.Vocab},
	} {
		if f.value != nil && (*f.value < f.low || *f.value > f.high) {
			return &sample.FieldError{Field: f.name, Value: *f.value, Want: fmt.Sprintf("%d to %d", f.low, f.high)}
		}
	}
	if n := len(r.ChoiceContexts); n != 0 && n != r.N {
		panic(fmt.Sprintf("engine: %d contexts for %d choices", n, r.N))
	}
	if err := r.Sampling.Validate(); err != nil {
		return err
	}
	return r.Sampling.ValidateIDs(e.shape.Vocab)
}

// newSequence copies what the caller may change.
func (e *Engine) newSequence(ctx context.Context, r Request) *sequence {
	now := time.Now()
	shared := &request{
		id:             r.ID,
		ctx:            ctx,
		priority:       r.Priority,
		salt:           r.Salt,
		prompt:         len(r.Tokens),
		maxTokens:      r.MaxTokens,
		minTokens:      r.MinTokens,
		stop:           slices.Clone(r.StopTokens),
		logprobs:       orNone(r.Logprobs),
		promptLogprobs: orNone(r.PromptLogprobs),
		observe:        r.observe,
		events:         make(chan Event, r.N*(r.MaxTokens+1)),
		open:           r.N,
		times:          Times{Arrived: now},
	}
	if e.shape.EOS >= 0 && !r.IgnoreEOS {
		shared.stop = append(shared.stop, e.shape.EOS)
	}
	if e.cfg.RequestTimeout > 0 {
		shared.deadline = now.Add(e.cfg.RequestTimeout)
	}
	choices := newChoices(r)
	s := &sequence{request: shared, choice: choices[0], others: choices[1:]}
	s.tokens = append(make([]int32, 0, len(r.Tokens)+r.MaxTokens), r.Tokens...)
	if shared.promptLogprobs >= 0 {
		s.scores = make([]*TokenLogprobs, 1, s.prompt) // nothing predicts the first token
	}
	return s
}

func orNone(count *int) int {
	if count == nil {
		return -1
	}
	return *count
}

// newChoices gives each choice a seed of its own, and all of them one that can be told.
func newChoices(r Request) []choice {
	seed := rand.Int64()
	if r.Sampling.Seed != nil {
		seed = *r.Sampling.Seed
	}
	choices := make([]choice, r.N)
	for i := range choices {
		params := r.Sampling
		own := seed + int64(i) // wraps around, which is as good a seed as any
		params.Seed = &own
		choices[i] = choice{index: i, sampler: sample.New(params)}
		if len(r.ChoiceContexts) > 0 {
			choices[i].ctx = r.ChoiceContexts[i]
		}
	}
	return choices
}
