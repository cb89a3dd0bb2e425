package router

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// scanned is what the router wants of a completion request.
type scanned struct {
	model, user, salt string
	stream            bool
	isText            bool
	text              string
	tokens            []int32
}

// scanCompletion reads the few fields that the router needs, in one pass and without an
// allocation per token. It takes only what it is sure of: a JSON object with a model and
// one prompt, text or token ids, no key twice, no field of a surprising type. Everything
// else it leaves to the full parser, which knows what is wrong and how to say so.
func scanCompletion(body []byte) (q scanned, ok bool) {
	if !utf8.Valid(body) || bytes.Contains(body, []byte(`\ud`)) || bytes.Contains(body, []byte(`\uD`)) {
		return q, false // a surrogate may lack its other half
	}
	s := scanner{data: body}
	var seen struct{ model, prompt, user, salt, stream bool }
	first := func(flag *bool) bool {
		was := *flag
		*flag = true
		return !was
	}
	if !s.take('{') {
		return q, false
	}
	for more := !s.take('}'); more; {
		key, plain := s.str()
		if !plain || !s.take(':') {
			return q, false
		}
		good := true
		switch string(key) {
		case "model":
			good = first(&seen.model) && s.text(&q.model)
		case "user":
			good = first(&seen.user) && s.text(&q.user)
		case "cache_salt":
			good = first(&seen.salt) && s.text(&q.salt)
		case "stream":
			good = first(&seen.stream) && s.flag(&q.stream)
		case "truncate_prompt_tokens":
			good = s.peek() == 'n' && s.word("null") // else the prompt is another one
		case "prompt":
			good = first(&seen.prompt)
			if s.peek() == '"' {
				q.isText = true
				good = good && s.text(&q.text)
			} else {
				q.tokens, ok = s.ids()
				good = good && ok
			}
		default:
			good = s.skip(0)
		}
		if !good {
			return q, false
		}
		switch {
		case s.take(','):
		case s.take('}'):
			more = false
		default:
			return q, false
		}
	}
	return q, s.peek() == 0 && s.at == len(body) && q.model != "" && seen.prompt
}

// scanner walks over JSON. Its methods return false where the text is not what they take,
// and leave the scanner anywhere.
type scanner struct {
	data []byte
	at   int
}

// peek is the next byte that is no white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// str takes a string and returns what is between its quotes; plain says that this is its
// value, without escapes.
func (s *scanner) str() (raw []byte, plain bool) {
	if !s.take('"') {
		return nil, false
	}
	start := s.at
	plain = true
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[start : s.at-1], plain
		case c < ' ':
			return nil, false
		case c == '\\':
			plain = false
			s.at += 2
		default:
			s.at++
		}
	}
	return nil, false
}

// text takes a string's value, or null, which stands for an absent field.
func (s *scanner) text(into *string) bool {
	if s.peek() == 'n' {
		return s.word("null")
	}
	start := s.at
	raw, plain := s.str()
	switch {
	case raw == nil:
		return false
	case plain:
		*into = string(raw)
		return true
	}
	return json.Unmarshal(s.data[start:s.at], into) == nil
}

func (s *scanner) flag(into *bool) bool {
	switch s.peek() {
	case 't':
		*into = true
		return s.word("true")
	case 'f':
		return s.word("false")
	}
	return s.word("null")
}

func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.data[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

// ids takes a list of at least one token id.
func (s *scanner) ids() ([]int32, bool) {
	if !s.take('[') {
		return nil, false
	}
	end := bytes.IndexByte(s.data[s.at:], ']')
	if end < 0 {
		return nil, false
	}
	ids := make([]int32, 0, 1+bytes.Count(s.data[s.at:s.at+end], []byte{','}))
	// The hot loop: a prompt is a few hundred ids long, all else a few fields.
	data, at := s.data, s.at
	blank := func(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
	for {
		for at < len(data) && blank(data[at]) {
			at++
		}
		start, n := at, int32(0)
		for at < len(data) && data[at]-'0' <= 9 && at-start < 10 {
			n = 10*n + int32(data[at]-'0')
			at++
		}
		// At most nine digits, no sign, no leading zero: that is a token id.
		digits := at - start
		if digits == 0 || digits > 9 || (digits > 1 && data[start] == '0') {
			return nil, false
		}
		ids = append(ids, n)
		for at < len(data) && blank(data[at]) {
			at++
		}
		if at == len(data) || (data[at] != ',' && data[at] != ']') {
			return nil, false
		}
		if at++; data[at-1] == ']' {
			s.at = at
			return ids, true
		}
	}
}

// maxScanDepth is how deep nested values may be; the full parser reads deeper ones.
const maxScanDepth = 16

// skip takes any value.
func (s *scanner) skip(depth int) bool {
	if depth > maxScanDepth {
		return false
	}
	switch c := s.peek(); c {
	case '"':
		start := s.at
		raw, plain := s.str()
		return raw != nil && (plain || json.Valid(s.data[start:s.at]))
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	case '[', '{':
		s.at++
		end := c + 2 // in ASCII both closing brackets are two after the opening ones
		if s.take(end) {
			return true
		}
		for {
			if c == '{' {
				key, plain := s.str()
				if key == nil || !plain || !s.take(':') {
					return false
				}
			}
			if !s.skip(depth + 1) {
				return false
			}
			if s.take(end) {
				return true
			}
			if !s.take(',') {
				return false
			}
		}
	}
	start := s.at
	for s.at < len(s.data) && bytes.IndexByte([]byte("+-.0123456789eE"), s.data[s.at]) >= 0 {
		s.at++
	}
	return s.at > start && json.Valid(s.data[start:s.at])
}
