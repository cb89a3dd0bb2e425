package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// class sorts characters as GPT-2's pattern does.
type class uint8

const (
	space  class = iota // \s: Unicode's White_Space, of which U+00A0 and U+3000 are part
	letter              // \p{L}
	number              // \p{N}
	other               // everything else: punctuation, symbols, marks, controls
)

func classOf(r rune) class {
	switch {
	case unicode.IsSpace(r):
		return space
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	}
	return other
}

// contractions are the suffixes that GPT-2 splits off, in lower case only.
var contractions = [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

// pieceLen returns the length in bytes of the first piece of text, which must be
// non-empty valid UTF-8. It is GPT-2's pattern, matched by hand because Go's regexp has
// no look-ahead:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Over a whole text the work is linear: a character is looked at in its own piece and at
// most once more as the one that ends a piece.
func pieceLen(text string) int {
	if text[0] == '\'' {
		for _, c := range contractions {
			if strings.HasPrefix(text, c) {
				return len(c)
			}
		}
	}
	start := 0
	if text[0] == ' ' {
		start = 1 // the " ?" before a word: U+0020 alone, not any white space
	}
	if start < len(text) {
		r, size := utf8.DecodeRuneInString(text[start:])
		if c := classOf(r); c != space {
			n, _ := run(text, start+size, c)
			return n
		}
	}
	n, last := run(text, 0, space)
	if n < len(text) && last > 0 {
		// \s+(?!\S): white space before a word leaves its last character to the word.
		return last
	}
	return n
}

// run returns where the run of characters of class c that holds text[:from] ends, and
// where its last character begins (0 if none follows from).
func run(text string, from int, c class) (end, last int) {
	for end = from; end < len(text); {
		r, size := utf8.DecodeRuneInString(text[end:])
		if classOf(r) != c {
			break
		}
		last = end
		end += size
	}
	return end, last
}
