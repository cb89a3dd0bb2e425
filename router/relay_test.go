package router

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"tailor/internal/openai"
)

// stream answers with the pieces, flushing each, and then ends properly or breaks off.
func stream(properly bool, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_ = http.NewResponseController(w).Flush()
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
		if !properly {
			panic(http.ErrAbortHandler)
		}
	}
}

const event = `data: {"id":"cmpl-1","choices":[{"index":0,"text":"a","finish_reason":null}]}` + "\n\n"

func TestStreamIsNotBuffered(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	release := make(chan struct{})
	rt.fakes[0].set(func(f *fakeReplica) {
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
			<-release
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		}
	})
	resp := rt.open(t.Context(), "POST", "/v1/completions", tokenBody(1, 64, 0, 10, `,"stream":true`))
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("content type %q", kind)
	}
	in := bufio.NewReader(resp.Body)
	first, err := in.ReadString('\n') // the replica is still blocked
	if err != nil || first+"\n" != event {
		t.Fatalf("first line %q, %v", first, err)
	}
	close(release)
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "\ndata: [DONE]\n\n" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	row := rt.rows(1)[0]
	if row.Outcome != OutcomeOK || !row.Stream || row.AnswerBytes != int64(len(event)+len("data: [DONE]\n\n")) {
		t.Errorf("ledger row %+v", row)
	}
}

// However the bytes of a stream are cut, they arrive unchanged.
func TestStreamBytesArriveUnchanged(t *testing.T) {
	whole := event + ": comment\r\n\r\n" + "data: two\ndata: lines\r\n\r\n" + strings.ReplaceAll(event, "\n", "\r") + "data: [DONE]\n\n" + "tail"
	for _, size := range []int{1, 2, 7, 50, 1000} {
		rt := newTestRouter(t, 1, nil)
		var pieces []string
		for p := whole; p != ""; {
			n := min(size, len(p))
			pieces = append(pieces, p[:n])
			p = p[n:]
		}
		rt.fakes[0].set(func(f *fakeReplica) { f.answer = stream(true, pieces...) })
		if a := rt.post(tokenBody(1, 64, 0, 10, `,"stream":true`)); a.body != whole || a.err != nil {
			t.Errorf("pieces of %d: %q, %v", size, a.body, a.err)
		}
	}
}

func TestReplicaDiesInTheStream(t *testing.T) {
	rt := newTestRouter(t, 2, withPolicy("round_robin"))
	huge := "data: " + strings.Repeat("x", maxHeldEvent+100<<10)
	for _, tt := range []struct {
		name   string
		pieces []string
		kept   string // what of it arrives before the error
	}{
		{"between events", []string{event, event}, event + event},
		{"within an event", []string{event, event[:30]}, event},
		{"within an event too long to hold back", []string{event, huge}, event + huge + "\n\n"},
	} {
		for _, f := range rt.fakes {
			f.set(func(f *fakeReplica) { f.requests, f.answer = nil, stream(false, tt.pieces...) })
		}
		a := rt.post(tokenBody(1, 64, 0, 10, `,"stream":true`))
		if a.status != 200 || a.err != nil {
			t.Fatalf("%s: status %d, the body ends with %v", tt.name, a.status, a.err)
		}
		rest, ok := strings.CutPrefix(a.body, tt.kept)
		if !ok {
			t.Fatalf("%s: does not begin with the %d bytes sent: %.100q", tt.name, len(tt.kept), a.body)
		}
		if strings.Contains(rest, "[DONE]") {
			t.Errorf("%s: [DONE] after an error", tt.name)
		}
		_, err := openai.NewStreamReader(strings.NewReader(rest)).NextChunk()
		failure, ok := errors.AsType[*openai.Error](err)
		if !ok || failure.Type != openai.TypeServer || failure.Code != codeUpstream || failure.Message == "" {
			t.Errorf("%s: the stream ends with %.200q: %v", tt.name, rest, err)
		}
		if !strings.HasPrefix(rest, `data: {"error":{`) || !strings.HasSuffix(rest, "}}\n\n") || strings.Count(rest, "\n") != 2 {
			t.Errorf("%s: not one event: %q", tt.name, rest)
		}
		if n := len(rt.fakes[0].got()) + len(rt.fakes[1].got()); n != 1 {
			t.Errorf("%s: sent %d times", tt.name, n)
		}
		rows, _ := rt.ledger.last(1)
		if rows[0].Outcome != OutcomeUpstream || rows[0].Retries != 0 || rows[0].Error == "" {
			t.Errorf("%s: ledger row %+v", tt.name, rows[0])
		}
	}
	rt.idle()
}

// The head of a stream is held back until its first event: a replica that dies before can
// be reported with a status. It is not retried: it may have begun.
func TestReplicaDiesBeforeTheFirstEvent(t *testing.T) {
	rt := newTestRouter(t, 2, nil)
	for _, f := range rt.fakes {
		f.set(func(f *fakeReplica) { f.answer = stream(false, "data: {") })
	}
	a := rt.post(tokenBody(1, 64, 0, 10, `,"stream":true`))
	if _, _, _, code := a.apiError(t); a.status != 502 || code != codeUpstream {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if n := len(rt.fakes[0].got()) + len(rt.fakes[1].got()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestReplicaDiesInAWholeAnswer(t *testing.T) {
	rt := newTestRouter(t, 2, nil)
	for _, f := range rt.fakes {
		f.set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, `{"id":"cmpl-1",`)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		})
	}
	a := rt.post(tokenBody(1, 64, 0, 10, ""))
	if _, kind, _, _ := a.apiError(t); a.status != 502 || kind != openai.TypeServer || a.err != nil {
		t.Errorf("status %d: %s, %v", a.status, a.body, a.err)
	}
	if n := len(rt.fakes[0].got()) + len(rt.fakes[1].got()); n != 1 {
		t.Errorf("sent %d times", n)
	}
	if row := rt.rows(1)[0]; row.Outcome != OutcomeUpstream || row.Status != 502 {
		t.Errorf("ledger row %+v", row)
	}
	rt.idle()
}

// An answer longer than what may be held back passes through; if it breaks off there, the
// client must see that it is not whole.
func TestLongAnswer(t *testing.T) {
	const limit = 1000
	for _, size := range []int{limit - 1, limit, limit + 1, 100 * limit} {
		for _, properly := range []bool{true, false} {
			if !properly && size <= limit {
				continue
			}
			rt := newTestRouter(t, 1, func(c *Config) { c.MaxAnswer = limit })
			text := strings.Repeat("abcdefghij", size/10+1)[:size]
			rt.fakes[0].set(func(f *fakeReplica) {
				f.answer = func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, text)
					_ = http.NewResponseController(w).Flush()
					if !properly {
						panic(http.ErrAbortHandler)
					}
				}
			})
			a := rt.post(tokenBody(1, 64, 0, 10, ""))
			if a.status != 200 || a.body != text || (a.err == nil) != properly {
				t.Errorf("%d bytes, ends properly %v: status %d, %d bytes, %v", size, properly, a.status, len(a.body), a.err)
			}
			want := OutcomeOK
			if !properly {
				want = OutcomeUpstream
			}
			if row := rt.rows(1)[0]; row.Outcome != want || row.AnswerBytes != int64(size) {
				t.Errorf("%d bytes, ends properly %v: ledger row %+v", size, properly, row)
			}
			rt.idle()
		}
	}
}

func TestEventsEnd(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "data: a": 0, "data: a\n": 0, "data: a\n\n": 9, "data: a\n\ndata: b\n": 9,
		"a\r\n\r\nb": 5, "a\r\rb": 3, "\n\n\n": 3, "a\r\n": 0,
	} {
		if got := eventsEnd([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
