package engine

import (
	"errors"
	"fmt"
)

// Errors that carry no numbers of their own; where numbers help, they are wrapped with
// them, so test with errors.Is.
var (
	// ErrEmptyPrompt: there is no token whose logits could be asked for.
	ErrEmptyPrompt = errors.New("the prompt has no tokens")
	// ErrQueueFull: as many requests wait as the configuration allows.
	ErrQueueFull = errors.New("the queue is full")
	// ErrDraining: the engine finishes what it has accepted and takes nothing new.
	ErrDraining = errors.New("the engine is draining")
	// ErrStopped: the step loop has ended.
	ErrStopped = errors.New("the engine has stopped")
	// ErrTimeout: the request took longer than Config.RequestTimeout. It is the cause of
	// an abort.
	ErrTimeout = errors.New("the request took too long")
	// ErrHeld: the prefix cache cannot be reset while sequences hold its blocks.
	ErrHeld = errors.New("the prefix cache is in use")
	// ErrNoLogits: the model gave no usable logit (all NaN or -Inf), so there is no
	// next token. It ends a sequence, never the engine.
	ErrNoLogits = errors.New("the model gave no usable logits")
)

// ErrTokenRange refuses a prompt with a token id that the model does not have.
type ErrTokenRange struct {
	Index int   // place in the prompt
	ID    int32 // what stands there
	Vocab int   // ids are 0 to Vocab-1
}

func (e ErrTokenRange) Error() string {
	return fmt.Sprintf("prompt token %d has id %d, want 0 to %d", e.Index, e.ID, e.Vocab-1)
}

// ErrMaxTokens refuses a negative number of tokens to generate.
type ErrMaxTokens struct{ MaxTokens int }

func (e ErrMaxTokens) Error() string {
	return fmt.Sprintf("max_tokens is %d, want 0 or more", e.MaxTokens)
}

// ErrContext refuses a request that runs past the last position the model knows.
type ErrContext struct {
	Prompt, MaxTokens int // tokens given, tokens asked for
	Context           int // what the two may add up to
}

func (e ErrContext) Error() string {
	return fmt.Sprintf("the prompt has %d tokens and max_tokens is %d: more than the model's context of %d",
		e.Prompt, e.MaxTokens, e.Context)
}

// ErrTooLarge refuses a request that the block pool could not hold even alone.
type ErrTooLarge struct {
	Blocks int // needed for prompt and answer
	Pool   int // there are
}

func (e ErrTooLarge) Error() string {
	return fmt.Sprintf("the request needs %d blocks of the KV cache, which has %d", e.Blocks, e.Pool)
}
