package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/sugarme/tokenizer/model/bpe"
)

var (
	// ErrNoVocabulary: the folder has neither tokenizer.json nor vocab.json with merges.txt.
	ErrNoVocabulary = errors.New("no tokenizer files")
	// ErrMalformed: a tokenizer file contradicts itself or its format.
	ErrMalformed = errors.New("malformed tokenizer file")
	// ErrUnsupported: a tokenizer file asks for something that is not GPT-2's tokenizer.
	ErrUnsupported = errors.New("not a GPT-2 tokenizer")
	// ErrNoToken: the text holds a byte for which the vocabulary has no token.
	ErrNoToken = errors.New("no token for byte")
)

// Tokenizer is a byte-level BPE tokenizer. It is immutable: all its methods may be called
// by any number of goroutines at once.
type Tokenizer struct {
	merges bpe.Merges
	// letters holds the token id of each byte; -1 where the vocabulary has none.
	letters [256]int
	// tokens is indexed by id. Ids that no token has lie between those that do.
	tokens  []token
	special map[string]int32
	// added holds the tokens that are looked for in the text before it is split, by
	// first byte, the longest first.
	added [256][]addedToken
	// prefixSpace says that a text not beginning with a space is given one.
	prefixSpace bool
}

type token struct {
	text string // the bytes the token stands for
	kind kind
}

type kind uint8

const (
	missing kind = iota
	ordinary
	special
)

// addedToken is found in the text as it stands, not by merging.
type addedToken struct {
	text    string
	id      int32
	special bool
}

// Encode returns the token ids of text. With special, a special token's spelling in the
// text becomes that token; without, it is ordinary text. The error is ErrNoToken, which
// a vocabulary that has all 256 bytes never gives.
func (t *Tokenizer) Encode(text string, special bool) ([]int32, error) {
	if !utf8.ValidString(text) {
		whole, rest := wellFormed([]byte(text))
		if len(rest) > 0 {
			whole += replacement
		}
		text = whole
	}
	// English takes about four bytes a token; growing is cheap where that is too few.
	ids := make([]int32, 0, len(text)/4+1)
	m := merger{merges: t.merges}
	for done := 0; done < len(text); {
		at, found := t.nextAdded(text[done:], special)
		var err error
		if ids, err = t.encodePlain(&m, ids, text[done:done+at]); err != nil {
			return nil, err
		}
		done += at
		if found != nil {
			ids = append(ids, found.id)
			done += len(found.text)
		}
	}
	return ids, nil
}

// nextAdded returns where the first added token in text begins and which it is (the
// longest, if several begin there); len(text) and nil if there is none.
func (t *Tokenizer) nextAdded(text string, special bool) (at int, found *addedToken) {
	for at := range len(text) {
		candidates := t.added[text[at]]
		for i := range candidates {
			c := &candidates[i]
			if (special || !c.special) && strings.HasPrefix(text[at:], c.text) {
				return at, c
			}
		}
	}
	return len(text), nil
}

// encodePlain appends the ids of a text without added tokens.
func (t *Tokenizer) encodePlain(m *merger, ids []int32, text string) ([]int32, error) {
	if t.prefixSpace && text != "" && text[0] != ' ' {
		text = " " + text
	}
	for text != "" {
		piece := text[:pieceLen(text)]
		text = text[len(piece):]
		if at, ok := m.start(piece, &t.letters); !ok {
			return nil, fmt.Errorf("%w 0x%02X in %q", ErrNoToken, piece[at], clip(piece))
		}
		m.mergeAll()
		ids = m.appendIDs(ids)
	}
	return ids, nil
}

// text returns the bytes of a token. For an id that the vocabulary lacks it is a byte
// that no UTF-8 text holds, so it decodes to U+FFFD wherever it stands.
func (t *Tokenizer) text(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id].kind == missing {
		return "\xFF"
	}
	return t.tokens[id].text
}

// Bytes returns the bytes that a token stands for, which may be part of a character. It
// is false for an id that the vocabulary lacks.
func (t *Tokenizer) Bytes(id int32) ([]byte, bool) {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id].kind == missing {
		return nil, false
	}
	return []byte(t.tokens[id].text), true
}

// VocabSize is the highest token id plus one. A model's output may be wider (padding).
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// IsSpecial reports whether id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.tokens[id].kind == special
}

// Special returns the special tokens' spellings and ids.
func (t *Tokenizer) Special() map[string]int32 { return maps.Clone(t.special) }

// clip shortens a text from outside for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
