package server

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"tailor/internal/openai"
	"tailor/model/tokenizer"
	"tailor/server/engine"
)

// A prompt is one of a request's prompts and what the engine says of it.
type prompt struct {
	tokens []int32
	echo   string // its text, where the answer is to begin with it
	begun  bool   // an event has come
	cached int    // tokens that came from the cache
	cache  engine.CacheReport
	scores []*engine.TokenLogprobs // one per token, if asked for
}

// A token is one token of an answer.
type token struct {
	id       int32
	offset   int                   // characters of the choice's text before it
	logprobs *engine.TokenLogprobs // nil: not asked for, or the first of a prompt
}

// A piece is what is certain of a choice and has not been handed on.
type piece struct {
	text   string
	tokens []token // those that were generated since the last piece
}

// A choice turns the tokens of one answer into text.
//
//   - The texts that push returns, joined, are what Decode makes of the tokens that
//     are text, up to the first stop string.
//   - generated counts the tokens up to the one that ended the choice, an
//     end-of-text token and the one that completed a stop string included.
//   - finish is "" until the end, and push is not called after it.
type choice struct {
	index       int // in the answer
	prompt      *prompt
	cancel      context.CancelCauseFunc // ends the engine's work on it
	isSpecial   func(id int32) bool
	decoder     *tokenizer.Stream
	stops       *stopFinder
	minTokens   int // stop strings are looked for in what follows them
	stopIDs     []int32
	includeStop bool

	begun     bool
	generated int
	chars     int       // of all text decoded so far, the echo included
	logprob   float64   // of all tokens generated, where logprobs are asked for
	last      time.Time // when the last token came
	times     engine.Times
	finish    string
	stop      any // the stop string, or the id of the stop token, that ended it
}

var (
	errNoReason = errors.New("the engine ended a sequence without a reason")
	// errStopFound is for the engine's log, which would otherwise blame the client.
	errStopFound = errors.New("a stop string was found")
)

// begin returns what an answer begins with: the prompt, if it is to be echoed.
func (c *choice) begin() piece {
	c.begun = true
	c.chars = utf8.RuneCountInString(c.prompt.echo)
	return piece{text: c.prompt.echo}
}

// push takes the next event and returns the text that is certain now. The error is
// why the engine gave up.
func (c *choice) push(event engine.Event) (piece, error) {
	c.times = event.Times
	switch event.Finish {
	case engine.FinishAbort, engine.FinishError:
		if event.Err == nil {
			return piece{}, errNoReason
		}
		return piece{}, event.Err
	}
	var out piece
	var text string
	if event.Token >= 0 {
		c.generated++
		out.tokens = []token{{event.Token, c.chars, event.Logprobs}}
		if event.Logprobs != nil {
			c.logprob += float64(event.Logprobs.Logprob)
		}
		// The token that stops the engine is a stop token, and no text unless it is
		// asked for.
		if (event.Finish != engine.FinishStop || c.includeStop) && !c.isSpecial(event.Token) {
			text = c.decoder.Push(event.Token)
		}
	}
	if event.Finish != "" {
		text += c.decoder.Flush()
	}
	c.chars += utf8.RuneCountInString(text)
	c.pushText(&out, text, event.Finish)
	if event.Finish == engine.FinishStop && c.stop == nil && slices.Contains(c.stopIDs, event.Token) {
		c.stop = event.Token
	}
	return out, nil
}

// pushText looks for stop strings and the end.
func (c *choice) pushText(out *piece, text string, finish engine.FinishReason) {
	if c.generated <= c.minTokens && c.minTokens > 0 {
		out.text = text
		if finish != "" {
			c.finish = string(finish)
		}
		return
	}
	var stop string
	out.text, stop = c.stops.push(text)
	switch {
	case stop != "":
		c.stop = stop
		if c.includeStop {
			out.text += stop
		}
		c.finish = openai.FinishStop
		c.cancel(errStopFound)
	case finish != "":
		out.text += c.stops.flush()
		c.finish = string(finish)
	}
}

// finishReason is nil while the choice goes on.
func (c *choice) finishReason() *string {
	if c.finish == "" {
		return nil
	}
	return &c.finish
}
