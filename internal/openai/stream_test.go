package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestStreamWriterBytes(t *testing.T) {
	w := httptest.NewRecorder()
	s := NewStreamWriter(w, time.Second)
	if s.Started() {
		t.Error("started before the first event")
	}
	head := Chunk{ID: "cmpl-1", Object: ObjectCompletion, Created: 5, Model: "m", IncludeUsage: true}
	text, last := head, head
	text.Choices = []Choice{{Index: 0, Text: "a <b>\n"}}
	last.Choices = []Choice{{Index: 0, Text: "", FinishReason: new(FinishStop), StopReason: "END"}}
	usage := head
	usage.Usage = NewUsage(3, 2, 0)
	for _, c := range []Chunk{text, last, usage} {
		if err := s.Send(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Done(); err != nil {
		t.Fatal(err)
	}
	const want = `data: {"id":"cmpl-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a <b>\n","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}

data: {"id":"cmpl-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"usage":null}

data: {"id":"cmpl-1","object":"text_completion","created":5,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}

data: [DONE]

`
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" || !w.Flushed {
		t.Errorf("status %d, header %v, flushed %v", w.Code, w.Header(), w.Flushed)
	}

	r := NewStreamReader(w.Body)
	for i, want := range []Chunk{text, last, usage} {
		got, err := r.NextChunk()
		want.IncludeUsage = false
		if want.Choices == nil {
			want.Choices = []Choice{}
		}
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("chunk %d: got %+v, %v; want %+v", i, got, err, want)
		}
	}
	for range 2 {
		if c, err := r.NextChunk(); c != nil || err != io.EOF {
			t.Errorf("after [DONE]: %v, %v", c, err)
		}
	}
}

func TestChunkWithoutUsageOmitsTheKey(t *testing.T) {
	data, err := json.Marshal(Chunk{})
	if err != nil || bytes.Contains(data, []byte("usage")) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestStreamFailure(t *testing.T) {
	w := httptest.NewRecorder()
	s := NewStreamWriter(w, 0)
	if err := errors.Join(s.Send(Chunk{}), s.Fail(&Error{Status: 500, Type: TypeServer, Message: "broke"})); err != nil {
		t.Fatal(err)
	}
	r := NewStreamReader(w.Body)
	if _, err := r.NextChunk(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the failure stays
		_, err := r.NextChunk()
		if e, ok := errors.AsType[*Error](err); !ok || e.Message != "broke" || e.Type != TypeServer {
			t.Errorf("got %v", err)
		}
	}
}

func TestStreamReader(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
		end      error
	}{
		{"LF", "data: a\n\ndata: b\n\ndata: [DONE]\n\n", []string{"a", "b"}, io.EOF},
		{"CR LF", "data: a\r\n\r\ndata: b\r\n\r\ndata: [DONE]\r\n\r\n", []string{"a", "b"}, io.EOF},
		{"CR", "data: a\r\rdata: b\r\rdata: [DONE]\r\r", []string{"a", "b"}, io.EOF},
		{"mixed", "data: a\r\n\ndata: b\r\r\ndata: [DONE]\n\r", []string{"a", "b"}, io.EOF},
		{"nothing read after [DONE]", "data: [DONE]\n\ndata: a\n\n", nil, io.EOF},
		{"comments and other fields", ": ping\n\nevent: x\nid: 1\ndata: a\nretry: 5\n\n:\n\ndata: [DONE]\n\n", []string{"a"}, io.EOF},
		{"several data lines", "data: a\ndata:b\ndata\ndata:  c\n\ndata: [DONE]\n\n", []string{"a\nb\n\n c"}, io.EOF},
		{"empty data", "data\n\ndata:\n\ndata: [DONE]\n\n", []string{"", ""}, io.EOF},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: [DONE]\n\n", []string{"a"}, io.EOF},
		{"ends without [DONE]", "data: a\n\n", []string{"a"}, io.ErrUnexpectedEOF},
		{"ends inside an event", "data: a\n\ndata: b\n", []string{"a"}, io.ErrUnexpectedEOF},
		{"empty", "", nil, io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{
				"whole": strings.NewReader(tt.in), "by bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
				"EOF with data": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, err := readAllEvents(NewStreamReader(in))
				if !reflect.DeepEqual(got, tt.want) || err != tt.end {
					t.Errorf("%s: got %q, %v; want %q, %v", how, got, err, tt.want, tt.end)
				}
			}
		})
	}
}

func readAllEvents(r *StreamReader) (events []string, err error) {
	for {
		data, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

// An event must come out when its empty line is there, not when more arrives.
func TestStreamReaderDoesNotWait(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		in, out := io.Pipe()
		go func() { _, _ = out.Write([]byte("data: a" + end)) }()
		if data, err := NewStreamReader(in).Next(); string(data) != "a" || err != nil {
			t.Errorf("%q: got %q, %v", end, data, err)
		}
		_ = in.Close()
	}
}

func TestStreamReaderBoundsAnEvent(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	for name, in := range map[string]string{
		"one line": "data: " + strings.Repeat("x", maxEvent+10), "many lines": strings.Repeat(line, maxEvent>>20+1),
	} {
		if _, err := NewStreamReader(strings.NewReader(in)).Next(); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadChunkOfAnotherServer(t *testing.T) {
	in := `data: {"id":"x","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"]},"finish_reason":"stop","stop_reason":50256}],"usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5,"prompt_tokens_details":null},"extra":1}

data: {"error":{"message":"boom","type":"InternalServerError","param":null,"code":500}}

`
	r := NewStreamReader(strings.NewReader(in))
	c, err := r.NextChunk()
	if err != nil {
		t.Fatal(err)
	}
	if n, reported := c.Usage.Cached(); n != 0 || reported || c.Usage.PromptTokens != 4 {
		t.Errorf("usage %+v: cached %d, reported %v", c.Usage, n, reported)
	}
	_, err = r.NextChunk()
	if e, ok := errors.AsType[*Error](err); !ok || e.Message != "boom" || e.Code != "500" {
		t.Errorf("got %v", err)
	}
}

func TestReadError(t *testing.T) {
	tests := []struct{ name, body, message, code string }{
		{"ours", `{"error":{"message":"m","type":"t","param":"p","code":"c"}}`, "m", "c"},
		{"nulls", `{"error":{"message":"m","type":"t","param":null,"code":null}}`, "m", ""},
		{"number as code", `{"error":{"message":"m","code":404}}`, "m", "404"},
		{"bare string", `{"error":"m"}`, "m", ""},
		{"a page", "<html>bad gateway</html>\n", "<html>bad gateway</html>", ""},
		{"nothing", "", "Bad Gateway", ""},
		{"another JSON", `{"detail":"x"}`, `{"detail":"x"}`, ""},
	}
	for _, tt := range tests {
		e := ReadError(502, strings.NewReader(tt.body))
		if e.Status != 502 || e.Message != tt.message || e.Code != tt.code {
			t.Errorf("%s: got %+v", tt.name, e)
		}
	}
	if e := ReadError(500, strings.NewReader(strings.Repeat("ß", 1000))); len(e.Message) > 310 {
		t.Errorf("message of %d bytes", len(e.Message))
	}
}

func TestWriteError(t *testing.T) {
	w := httptest.NewRecorder()
	WriteError(w, &Error{Status: 429, RetryAfter: 1500 * time.Millisecond, Type: TypeRateLimit, Message: "full"})
	if w.Code != 429 || w.Header().Get("Retry-After") != "2" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, header %v", w.Code, w.Header())
	}
	if want := `{"error":{"message":"full","type":"rate_limit_error","param":null,"code":null}}`; w.Body.String() != want {
		t.Errorf("got %s, want %s", w.Body, want)
	}
}

func TestReadBody(t *testing.T) {
	read := func(body io.Reader) error {
		_, err := ReadBody(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body), 8)
		return err
	}
	if err := read(strings.NewReader("12345678")); err != nil {
		t.Errorf("8 bytes of 8: %v", err)
	}
	for name, tt := range map[string]struct {
		body   io.Reader
		status int
	}{
		"too long":  {strings.NewReader("123456789"), 413},
		"broken":    {iotest.ErrReader(errors.New("reset")), 400},
		"cut short": {io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF)), 400},
	} {
		e, ok := errors.AsType[*Error](read(tt.body))
		if !ok || e.Status != tt.status {
			t.Errorf("%s: got %v", name, e)
			continue
		}
		fourKeys(t, e)
	}
}

func TestDecodeObject(t *testing.T) {
	var in struct {
		Prompt string `json:"prompt"`
		Count  int    `json:"count"`
	}
	if err := DecodeObject([]byte(`{"prompt":"a","count":2,"more":null}`), &in); err != nil || in.Prompt != "a" || in.Count != 2 {
		t.Errorf("got %+v, %v", in, err)
	}
	for body, param := range map[string]string{`{"prompt":1}`: "prompt", `{"count":1.5}`: "count", `[]`: "", `{"prompt":"\ud800"}`: "prompt"} {
		if e, ok := errors.AsType[*Error](DecodeObject([]byte(body), &in)); !ok || e.Param != param || e.Status != 400 {
			t.Errorf("%s: got %v", body, e)
		}
	}
}

// naiveEvents reads the whole input at once: the reader's twin.
func naiveEvents(in string) (events []string, end error) {
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(in, "\r\n", "\n")
	in = strings.ReplaceAll(in, "\r", "\n")
	lines := strings.Split(in, "\n")
	var data []string
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "" && data != nil:
			event := strings.Join(data, "\n")
			if event == "[DONE]" {
				return events, io.EOF
			}
			events, data = append(events, event), nil
		case name == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return events, io.ErrUnexpectedEOF
}

func FuzzStreamReader(f *testing.F) {
	f.Add("data: a\n\ndata: [DONE]\n\n")
	f.Add("\xef\xbb\xbfdata: a\r\n\rdata:b\rdata\n:c\n\n")
	f.Add("event: x\ndata:  y\n\n\r\n\rdata: {\"error\":{\"message\":\"m\"}}\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		want, wantEnd := naiveEvents(in)
		for _, body := range []io.Reader{strings.NewReader(in), iotest.HalfReader(strings.NewReader(in))} {
			got, end := readAllEvents(NewStreamReader(body))
			if !reflect.DeepEqual(got, want) || end != wantEnd {
				t.Fatalf("%q: got %q, %v; want %q, %v", in, got, end, want, wantEnd)
			}
		}
		for r := NewStreamReader(strings.NewReader(in)); ; {
			if _, err := r.NextChunk(); err != nil {
				break
			}
		}
	})
}
