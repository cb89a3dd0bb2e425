package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text that ids spell, special tokens included.
func (t *Tokenizer) Decode(ids []int32) string {
	var raw []byte
	for _, id := range ids {
		raw = append(raw, t.text(id)...)
	}
	whole, rest := wellFormed(raw)
	if len(rest) > 0 {
		whole += replacement
	}
	return whole
}

// Stream decodes one sequence's tokens as they come. A character whose bytes are spread
// over several tokens is held back until it is whole, so no piece of text ever ends inside
// a character.
//
//   - The texts returned by all Push calls and the final Flush, joined, equal Decode of
//     all ids.
//   - pending is empty or the beginning of a well-formed character: three bytes at most.
//
// A Stream belongs to one goroutine.
type Stream struct {
	tokenizer *Tokenizer
	pending   []byte
}

// NewStream returns a Stream at the beginning of a text.
func (t *Tokenizer) NewStream() *Stream {
	return &Stream{tokenizer: t}
}

// Push takes the next token and returns the characters that it completes; often none.
func (s *Stream) Push(id int32) string {
	s.pending = append(s.pending, s.tokenizer.text(id)...)
	whole, rest := wellFormed(s.pending)
	s.pending = append(s.pending[:0], rest...)
	return whole
}

// Flush ends the text: U+FFFD if it stopped inside a character, else nothing.
func (s *Stream) Flush() string {
	if len(s.pending) == 0 {
		return ""
	}
	s.pending = s.pending[:0]
	return replacement
}

// replacement is U+FFFD.
const replacement = string(utf8.RuneError)

// wellFormed returns raw as UTF-8, with U+FFFD for each ill-formed part as the package
// comment says, up to a character that raw has only the beginning of: that is rest.
func wellFormed(raw []byte) (whole string, rest []byte) {
	if utf8.Valid(raw) {
		return string(raw), nil
	}
	var out strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		if r != utf8.RuneError || size > 1 {
			out.Write(raw[:size])
			raw = raw[size:]
			continue
		}
		if !utf8.FullRune(raw) {
			break
		}
		out.WriteString(replacement)
		raw = raw[maximalSubpart(raw):]
	}
	return out.String(), raw
}

// maximalSubpart returns the length of the longest beginning of raw that also begins some
// well-formed character, at least 1. raw itself begins with no well-formed character.
func maximalSubpart(raw []byte) int {
	for n := min(len(raw), utf8.UTFMax-1); n > 1; n-- {
		if !utf8.FullRune(raw[:n]) {
			return n
		}
	}
	return 1
}
