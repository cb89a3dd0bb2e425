package server

import (
	"context"
	"errors"

	"tailor/internal/openai"
	"tailor/model/tokenizer"
	"tailor/server/engine"
)

// A choice turns the tokens of one prompt's answer into text.
//
//   - The texts that push returns, joined, are what Decode makes of the tokens that
//     are text, up to the first stop string.
//   - generated counts the tokens up to the one that ended the choice, an
//     end-of-text token and the one that completed a stop string included.
//   - finish is "" until the end, and push is not called after it.
type choice struct {
	index     int                     // of the prompt
	prompt    int                     // its tokens
	cancel    context.CancelCauseFunc // ends the engine's work on it
	isSpecial func(id int32) bool
	decoder   *tokenizer.Stream
	stops     *stopFinder

	generated int
	cached    int // prompt tokens that came from the cache
	times     engine.Times
	finish    string
	stop      string // the stop string found
}

var (
	errNoReason = errors.New("the engine ended a sequence without a reason")
	// errStopFound is for the engine's log, which would otherwise blame the client.
	errStopFound = errors.New("a stop string was found")
)

// push takes the next event and returns the text that is certain now. The error is
// why the engine gave up.
func (c *choice) push(event engine.Event) (string, error) {
	c.cached, c.times = event.Cached, event.Times
	switch event.Finish {
	case engine.FinishAbort, engine.FinishError:
		if event.Err == nil {
			return "", errNoReason
		}
		return "", event.Err
	}
	var text string
	if event.Token >= 0 {
		c.generated++
		// The token that stops the engine is a stop token, and no text.
		if event.Finish != engine.FinishStop && !c.isSpecial(event.Token) {
			text = c.decoder.Push(event.Token)
		}
	}
	if event.Finish != "" {
		text += c.decoder.Flush()
	}
	text, c.stop = c.stops.push(text)
	switch {
	case c.stop != "":
		c.finish = openai.FinishStop
		c.cancel(errStopFound)
	case event.Finish != "":
		text += c.stops.flush()
		c.finish = string(event.Finish)
	}
	return text, nil
}

// answer is the choice on the wire, with text as its text.
func (c *choice) answer(text string) openai.Choice {
	out := openai.Choice{Index: c.index, Text: text}
	if c.finish != "" {
		out.FinishReason = &c.finish
	}
	if c.stop != "" {
		out.StopReason = c.stop
	}
	return out
}
