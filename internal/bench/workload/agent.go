package workload

import (
	"errors"
	"io"
	"sort"
	"strconv"
	"time"
	"unicode/utf8"
)

// AgentTrace reads a trace as LMCache records agents, a call of the model a line:
//
//	{"timestamp": 1760587752017385, "input": "Hi! ...", "output": "Hi, ...", "session_id": "09867e5c"}
//
// with the time in microseconds. The rows of all sessions are sorted by it. Answers are as
// long as the recorded ones, by Count, within 1 and MaxOutput. A prompt of more tokens than
// the context leaves beside MaxOutput is cut at its end, if there is Count; a parameter
// of the workload says how many were.
//
// name is the file's, for errors.
func AgentTrace(r io.Reader, name string, cfg TraceConfig) (*Workload, error) {
	return cfg.read(FormatAgent, readerRows(r, name), name)
}

func (c TraceConfig) agent(in *rows, out *earliest, w *Workload) error {
	w.Timed = true
	count := c.Count
	if count == nil {
		count = func(text string) int { return (len(text) + 3) / 4 }
	}
	for {
		row, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		at, err := row.instant("timestamp", time.Microsecond)
		if err != nil {
			return err
		}
		var r Request
		var output string
		for _, field := range []struct {
			name string
			into *string
		}{{"input", &r.Text}, {"output", &output}, {"session_id", &r.Session}} {
			if err := row.decode(field.name, field.into); err != nil {
				return err
			}
		}
		if r.Text == "" {
			return row.fail("input", "is empty")
		}
		r.MaxTokens = max(1, min(count(output), c.MaxOutput))
		out.add(at, r)
	}
	if c.Count == nil {
		return nil
	}
	out.settle()
	shortened := 0
	for i := range out.kept {
		text := cut(out.kept[i].Text, c.Target.Context-c.MaxOutput, c.Count)
		if text == "" {
			return errors.New("trace: not even the first character of a prompt fits in the context")
		}
		if text != out.kept[i].Text {
			out.kept[i].Text = text
			shortened++
		}
	}
	w.Parameters = append(w.Parameters, Parameter{"prompts_cut", strconv.Itoa(shortened)})
	return nil
}

// cut returns the longest beginning of text that a search by halves finds to have at most
// limit tokens. It ends between characters.
func cut(text string, limit int, count func(string) int) string {
	if count(text) <= limit {
		return text
	}
	boundary := func(n int) int {
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		return n
	}
	n := sort.Search(len(text), func(n int) bool { return count(text[:boundary(n)]) > limit })
	return text[:boundary(max(0, n-1))]
}
