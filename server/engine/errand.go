package engine

import (
	"context"

	"tailor/kvcache"
)

// errand is something to do on the step loop, between two steps. It answers by itself;
// err says that the loop has ended and nothing can be done any more.
type errand func(s *scheduler, err error)

// onLoop has the step loop do something and waits for it. If ctx ends first, it may still
// be done.
func (e *Engine) onLoop(ctx context.Context, do func(s *scheduler) error) error {
	answer := make(chan error, 1)
	e.mu.Lock()
	if e.state == stopped {
		e.mu.Unlock()
		return ErrStopped
	}
	e.errands = append(e.errands, func(s *scheduler, err error) {
		if err == nil {
			err = do(s)
		}
		answer <- err
	})
	e.signal()
	e.mu.Unlock()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset empties the prefix cache, so that the next request finds nothing to reuse. It
// fails with ErrHeld, and changes nothing, while any sequence holds blocks. If ctx ends
// first, the reset may still happen.
func (e *Engine) Reset(ctx context.Context) error {
	return e.onLoop(ctx, (*scheduler).reset)
}

// View is a picture of the prefix cache with at most so many nodes, as of now but for the
// step that is being computed. It shows tokens of all salts: it is the operator's.
func (e *Engine) View(ctx context.Context, limit int) (kvcache.View, error) {
	answer := make(chan kvcache.View, 1) // not a variable: ctx may end first
	err := e.onLoop(ctx, func(s *scheduler) error {
		answer <- s.kv.View(limit)
		return nil
	})
	if err != nil {
		return kvcache.View{}, err
	}
	return <-answer, nil
}
