package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxBody is the body size that servers allow unless told otherwise, in bytes.
// A prompt of 1024 token ids takes 6 KiB.
const MaxBody = 4 << 20

// ReadBody reads a request's body of at most limit bytes. Its errors are
// *Error: 413 for a longer one (the connection is then closed rather than
// drained), 400 when the client breaks off.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return body, nil
	}
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		e := Invalid("", "the request body is longer than %d bytes, the most this server reads", tooLong.Limit)
		e.Status, e.Code = http.StatusRequestEntityTooLarge, CodeTooLarge
		return nil, e
	}
	return nil, Invalid("", "the request body could not be read: %v", err)
}

// object takes a JSON object apart. What it accepts is UTF-8 throughout.
func object(data []byte) (map[string]json.RawMessage, *Error) {
	if i := invalidUTF8(data); i >= 0 {
		return nil, Invalid("", "the request body is not UTF-8: byte 0x%02x at offset %d", data[i], i)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, Invalid("", "the request body is not a JSON object: %s", shorten(string(data), 64))
		}
		if len(data) == 0 {
			return nil, Invalid("", "the request body is empty; a JSON object is expected")
		}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, Invalid("", "the request body is not JSON: %v at offset %d", err, syntax.Offset)
		}
		return nil, Invalid("", "the request body is not JSON: %v", err)
	}
	if fields == nil {
		return nil, Invalid("", "the request body is null; a JSON object is expected")
	}
	for name, raw := range fields {
		if i := loneSurrogate(raw); i >= 0 {
			return nil, Invalid(name, "%s is half of a surrogate pair and no character", raw[i:i+6])
		}
	}
	return fields, nil
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
}

// loneSurrogate returns the offset of the first \u escape in valid JSON that
// is a surrogate without its other half, or -1.
func loneSurrogate(valid []byte) int {
	for i := 0; i < len(valid); i++ {
		if valid[i] != '\\' {
			continue
		}
		unit := escapedUnit(valid[i:])
		switch {
		case unit < 0:
			i++ // a two-byte escape; its second byte may be a backslash
		case !utf16.IsSurrogate(unit):
			i += 5
		default:
			if utf16.DecodeRune(unit, escapedUnit(valid[i+6:])) == utf8.RuneError {
				return i
			}
			i += 11
		}
	}
	return -1
}

// escapedUnit is the UTF-16 unit that data begins with as \uXXXX, or -1.
func escapedUnit(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// shorten cuts text to at most n bytes, at a character's border, for messages.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "..."
}
