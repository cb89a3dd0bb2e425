package router

import (
	"strings"
	"sync"
)

// A text is tokenized in parts, each as long as it needs to be to end before a space
// between two letters. There every tokenizer of GPT-2's kind begins a new piece, and pieces
// know nothing of each other: so the parts' tokens, one after the other, are the text's.
//
//   - No more of a text is tokenized than is looked at: it is left off after the last block
//     that counts, and where no place to cut is found.
//   - Texts that begin alike are cut alike, so what they share is tokenized once and
//     remembered.
const (
	partBytes = 128      // of a part, at least, but for the last
	maxPart   = 64 << 10 // of one that is tokenized at all
	// tokenBytes is how long the tokens are on average, at most, of texts that are read to
	// the last block that counts.
	tokenBytes = 8
)

// partEnd is where the part at the beginning of text ends: len(text) for the last one, and
// -1 if it is too long.
func partEnd(text string) int {
	for i := partBytes; i+1 < len(text); i++ {
		if i > maxPart {
			return -1
		}
		next := strings.IndexByte(text[i:], ' ')
		if next < 0 {
			break
		}
		if i += next; i+1 < len(text) && i <= maxPart && isLetter(text[i-1]) && isLetter(text[i+1]) {
			return i
		}
	}
	if len(text) > maxPart {
		return -1
	}
	return len(text)
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// encode returns the first tokens of a text, at least most of them if there are so many,
// and how much of it, of at most budget bytes, they stand for. No error, and less than all:
// the rest was not looked at.
func (p *promptReader) encode(salt, text string, most, budget int) (tokens []int32, read int, err error) {
	tokens = make([]int32, 0, min(len(text)/4+1, most+partBytes))
	for len(tokens) < most && read < len(text) {
		n := partEnd(text[read:])
		if n < 0 || read+n > budget {
			break
		}
		part := text[read : read+n]
		last := read+n == len(text) // its end is an accident
		ids, found := p.memo.look(salt, part)
		if !found {
			if ids, err = p.tokenize(part); err != nil {
				return nil, 0, err
			}
			if !last {
				p.memo.keep(salt, part, ids)
			}
		}
		tokens = append(tokens, ids...)
		read += n
	}
	return tokens, read, nil
}

// memo remembers the tokens of parts of texts.
//
//   - What one salt's callers sent is remembered for them alone: the time that a request
//     takes must not tell others.
//   - Two generations: a part enters the young one. When that is full it becomes the old
//     one, and what nobody has asked for since then is forgotten.
//   - Token lists are shared and never changed.
//   - A nil memo remembers nothing. Safe for concurrent use.
type memo struct {
	limit int // bytes of a generation

	mu         sync.Mutex
	young, old map[memoKey][]int32
	bytes      int // of the young
}

type memoKey struct{ salt, text string }

const (
	memoBytes    = 8 << 20
	memoOverhead = 128     // of an entry, about
	memoLongest  = 4 << 10 // of a part worth remembering
)

func newMemo(limit int) *memo { return &memo{limit: limit, young: map[memoKey][]int32{}} }

func (m *memo) look(salt, part string) ([]int32, bool) {
	if m == nil || len(part) > memoLongest {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ids, found := m.young[memoKey{salt, part}]; found {
		return ids, true
	}
	ids, found := m.old[memoKey{salt, part}]
	if found {
		m.add(memoKey{strings.Clone(salt), strings.Clone(part)}, ids)
	}
	return ids, found
}

func (m *memo) keep(salt, part string, ids []int32) {
	if m == nil || len(part) > memoLongest {
		return
	}
	// Copied, since a part would keep its whole request in memory.
	key := memoKey{strings.Clone(salt), strings.Clone(part)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(key, ids)
}

// add enters a part into the young generation; the lock is held.
func (m *memo) add(key memoKey, ids []int32) {
	if m.bytes >= m.limit {
		m.young, m.old, m.bytes = map[memoKey][]int32{}, m.young, 0
	}
	m.young[key] = ids
	m.bytes += len(key.salt) + len(key.text) + 4*cap(ids) + memoOverhead
}
