package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strings"
	"time"
)

// OpenAILog reads a log of requests to an OpenAI API. A line is the body of a request to
// /v1/completions or /v1/chat/completions, told apart by prompt and messages,
//
//	{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "timestamp": 1760587752.017}
//
// or says what was sent where, as the batch API and proxies write it:
//
//	{"timestamp": "2026-11-30T18:32:00Z", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"}}
//
// with only body required. The timestamp is in RFC 3339 or a number. The first row's says
// in what: from 1e17 on nanoseconds, from 1e14 on microseconds, from 1e11 on milliseconds,
// below that seconds, so that times since 1970 are told apart until the year 5138 and a
// clock that starts at 0 counts seconds. Either all rows have one, and they are sorted
// by it, or none has.
//
// Bodies are sent as they are, or without the timestamp if it is among their fields. MaxOutput bounds what they ask
// for. The context is not looked at: how many tokens a body has only its target knows.
//
// name is the file's, for errors.
func OpenAILog(r io.Reader, name string, cfg TraceConfig) (*Workload, error) {
	return cfg.read(FormatOpenAI, readerRows(r, name), name)
}

const (
	completionsPath = "/v1/completions"
	chatPath        = "/v1/chat/completions"
)

func (c TraceConfig) openAI(in *rows, out *earliest, w *Workload) error {
	var unit time.Duration // 0: no timestamp so far
	for n := 0; w.Timed || !out.full(); n++ {
		row, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		const stamp = "timestamp"
		if n == 0 {
			w.Timed = row.has(stamp)
		}
		if row.has(stamp) != w.Timed {
			return row.fail(stamp, "some rows have one and others have not")
		}
		var at int64
		if w.Timed {
			if at, err = row.moment(stamp, &unit); err != nil {
				return err
			}
		}
		request, err := openAIRequest(row, stamp)
		if err != nil {
			return err
		}
		request.MaxTokens = c.MaxOutput
		out.add(at, request)
	}
	return nil
}

// moment reads a timestamp in RFC 3339, or as a number in *unit, which it finds out if it is 0.
func (r row) moment(field string, unit *time.Duration) (int64, error) {
	if r.fields[field][0] == '"' {
		var text string
		if err := r.decode(field, &text); err != nil {
			return 0, err
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, r.fail(field, "%w", err)
		}
		if year := t.Year(); year < 1970 || year > 2261 { // UnixNano's
			return 0, r.fail(field, "is %s, want the years 1970 to 2261", text)
		}
		return t.UnixNano(), nil
	}
	if *unit == 0 {
		var n float64
		if err := r.decode(field, &n); err != nil {
			return 0, err
		}
		switch {
		case n >= 1e17:
			*unit = time.Nanosecond
		case n >= 1e14:
			*unit = time.Microsecond
		case n >= 1e11:
			*unit = time.Millisecond
		default:
			*unit = time.Second
		}
	}
	return r.instant(field, *unit)
}

// openAIRequest takes the row as a body without the stamp, or the body from the row.
func openAIRequest(outer row, stamp string) (Request, error) {
	body, raw := outer, json.RawMessage(nil)
	switch {
	case outer.has("body"):
		raw, body.fields = outer.fields["body"], nil
		if err := outer.decode("body", &body.fields); err != nil {
			return Request{}, err
		}
	case outer.has(stamp):
		body.fields = maps.Clone(outer.fields)
		delete(body.fields, stamp)
		var err error
		if raw, err = json.Marshal(body.fields); err != nil {
			return Request{}, outer.fail("", "%w", err)
		}
	default:
		raw = bytes.Clone(outer.text)
	}
	path, err := pathOf(body)
	if err != nil {
		return Request{}, err
	}
	if outer.has("body") {
		err = checkSent(outer, path)
	}
	return Request{Body: raw, Path: path}, err
}

// pathOf tells what a body is for.
func pathOf(body row) (string, error) {
	switch {
	case body.has("messages") && body.has("prompt"):
		return "", body.fail("prompt", "beside messages: which of the two?")
	case body.has("prompt"):
		return completionsPath, nil
	case !body.has("messages"):
		return "", body.fail("prompt", "missing, and so are messages, among the fields: %s", body.names())
	}
	var messages []json.RawMessage
	if err := body.decode("messages", &messages); err != nil {
		return "", err
	}
	if len(messages) == 0 {
		return "", body.fail("messages", "is empty")
	}
	return chatPath, nil
}

// checkSent checks that a body for path was sent there, as far as the row says.
func checkSent(outer row, path string) error {
	if outer.has("method") {
		var method string
		if err := outer.decode("method", &method); err != nil {
			return err
		}
		if method != "POST" {
			return outer.fail("method", "is %q, want POST", method)
		}
	}
	if !outer.has("url") {
		return nil
	}
	var url string
	if err := outer.decode("url", &url); err != nil {
		return err
	}
	bare, _, _ := strings.Cut(url, "?")
	switch {
	case strings.HasSuffix(bare, "/chat/completions"):
		if path != chatPath {
			return outer.fail("url", "is %q, but the body is for %s", url, path)
		}
	case strings.HasSuffix(bare, "/completions"):
		if path != completionsPath {
			return outer.fail("url", "is %q, but the body is for %s", url, path)
		}
	default:
		return outer.fail("url", "is %q, want one that ends in %s or %s", url, completionsPath, chatPath)
	}
	return nil
}
