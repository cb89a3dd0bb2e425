package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tailor/model/sample"
)

// Submit queues a request and returns its events. A request that could never be served
// is refused here and leaves nothing behind; the errors name the numbers.
//
// When ctx ends, the sequence is aborted and its blocks are free within one step. The
// channel holds all events a request can have, so the step loop never waits for a
// reader, and a reader may leave without telling anybody but ctx.
func (e *Engine) Submit(ctx context.Context, r Request) (<-chan Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
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
	if waiting := e.snapshot.Waiting + len(e.inbox); waiting >= e.cfg.MaxWaiting {
		return nil, fmt.Errorf("%w: %d requests wait", ErrQueueFull, waiting)
	}
	// Numbered under the lock, so that arrival order is queue order.
	s.arrival = e.arrivals
	e.arrivals++
	e.inbox = append(e.inbox, s)
	e.signal()
	return s.events, nil
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
	// The last token generated is never run, so it takes no row.
	rows := prompt + max(r.MaxTokens-1, 0)
	if blocks := (rows + e.blockSize - 1) / e.blockSize; blocks > e.blocks {
		return ErrTooLarge{Blocks: blocks, Pool: e.blocks}
	}
	return r.Sampling.Validate()
}

func (e *Engine) newSequence(ctx context.Context, r Request) *sequence {
	if r.Sampling.Temperature > 0 && r.Sampling.Seed == nil {
		seed := rand.Int64()
		r.Sampling.Seed = &seed
	}
	tokens := make([]int32, len(r.Tokens), len(r.Tokens)+r.MaxTokens)
	copy(tokens, r.Tokens)
	stop := slices.Clone(r.StopTokens)
	if e.shape.EOS >= 0 && !r.IgnoreEOS {
		stop = append(stop, e.shape.EOS)
	}
	return &sequence{
		id:        r.ID,
		ctx:       ctx,
		salt:      r.Salt,
		tokens:    tokens,
		prompt:    len(r.Tokens),
		maxTokens: r.MaxTokens,
		stop:      stop,
		sampler:   sample.New(r.Sampling),
		observe:   r.observe,
		events:    make(chan Event, r.MaxTokens+1),
		times:     Times{Arrived: time.Now()},
	}
}
