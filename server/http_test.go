package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tailor/server/engine"
)

// A pipeListener accepts connections in memory, so that a test's clock may be synctest's:
// minutes pass in no time, and exactly.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// dial connects and sends text.
func (l *pipeListener) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	l.conns <- server
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	return client
}

// post is a completion request on the wire.
func post(body string) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// serve runs a server for e in the test's bubble until stop is called, which returns what
// Serve returned.
func serve(t *testing.T, e Engine, grace time.Duration) (s *Server, l *pipeListener, stop func() error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s = New(Config{Engine: e, Tokenizer: tokens(t), ModelName: testModel, Context: testContext, Log: log})
	l = newPipeListener()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, NewHTTPServer(s.Handler(), log), l, func() { s.SetDraining(true) }, grace)
	}()
	return s, l, func() error {
		cancel()
		return <-served
	}
}

// every makes an engine generate one token per interval, n in all.
func every(interval time.Duration, n int, id int32) *scriptedEngine {
	return &scriptedEngine{script: func(ctx context.Context, r engine.Request, out chan<- engine.Event) {
		for i := range n {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				waitForAbort(ctx, r, out)
				return
			}
			event := engine.Event{Token: id}
			if i == n-1 {
				event.Finish = engine.FinishLength
			}
			out <- event
		}
	}}
}

func TestLongStreamIsNotCut(t *testing.T) {
	id := spell(t, "a")[0]
	synctest.Test(t, func(t *testing.T) {
		_, l, stop := serve(t, every(10*time.Minute, 6, id), time.Minute)
		start := time.Now()
		c := l.dial(t, post(request(`"stream":true`)))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || strings.Count(string(body), `"text":"a"`) != 6 || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
			t.Errorf("%q, %v", body, err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("took %v, want an hour", took)
		}
		_ = c.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// An answer that outlasts the grace ends with a word on why, whole or streamed.
func TestCutAnswersSaySo(t *testing.T) {
	id := spell(t, "a")[0]
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			_, l, stop := serve(t, every(10*time.Minute, 6, id), time.Minute)
			c := l.dial(t, post(request(fmt.Sprintf(`"stream":%v`, stream))))
			answered := make(chan string, 1)
			go func() {
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					answered <- err.Error()
					return
				}
				body, err := io.ReadAll(res.Body)
				answered <- fmt.Sprint(res.StatusCode, err, string(body))
			}()
			time.Sleep(25 * time.Minute) // of the bubble's clock
			start := time.Now()
			if err := stop(); err == nil || time.Since(start) > time.Minute+lastWord {
				t.Errorf("stopped after %v with %v, want an error after a minute", time.Since(start), err)
			}
			want := map[bool]string{true: "200<nil>data:", false: "503<nil>{"}[stream]
			if got := <-answered; !strings.HasPrefix(strings.ReplaceAll(got, " ", ""), want) || !strings.Contains(got, ErrCut.Error()) {
				t.Errorf("stream %v: %s", stream, got)
			}
		})
	}
}

func TestSlowSendersAreCut(t *testing.T) {
	tests := []struct {
		name, sent string
		after      time.Duration
	}{
		{"headers", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le", 10 * time.Second},
		{"body", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", 30 * time.Second},
		{"idle", "GET /version HTTP/1.1\r\nHost: x\r\n\r\n", 2 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := says(nil, 0)
			synctest.Test(t, func(t *testing.T) {
				_, l, stop := serve(t, e, time.Minute)
				c := l.dial(t, tt.sent)
				start := time.Now()
				_, err := io.ReadAll(c) // until the server closes
				// A server that closes waits half a second for the client to read.
				if took := time.Since(start); err != nil || took < tt.after || took > tt.after+time.Second {
					t.Errorf("cut after %v (%v), want %v", took, err, tt.after)
				}
				_ = c.Close()
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
			if len(e.submitted()) != 0 {
				t.Error("the engine got a request")
			}
		})
	}
}

// A client that keeps its connection and reads nothing ends its own request, no other.
func TestClientThatStopsReading(t *testing.T) {
	id := spell(t, "a")[0]
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := every(time.Second, 100, id)
				_, l, stop := serve(t, e, time.Minute)
				start := time.Now()
				c := l.dial(t, post(request(fmt.Sprintf(`"stream":%v,"max_tokens":100`, stream))))
				synctest.Wait()  // the engine has begun
				e.running.Wait() // and its work has ended
				want := 100 * time.Second
				if stream {
					want = time.Second + 30*time.Second // the first token, and the write timeout
				}
				if took := time.Since(start); took != want {
					t.Errorf("the engine worked for %v, want %v", took, want)
				}
				if err := stop(); err != nil { // with the client still connected
					t.Error(err)
				}
				_ = c.Close()
			})
		})
	}
}

func TestServeDrains(t *testing.T) {
	id := spell(t, "a")[0]
	for _, tt := range []struct {
		name       string
		grace      time.Duration
		cut        bool
		tookAtMost time.Duration
	}{
		{"within the grace", time.Minute, false, 25 * time.Second},
		{"past the grace", 5 * time.Second, true, 5*time.Second + lastWord},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := every(10*time.Second, 2, id)
				s, l, stop := serve(t, e, tt.grace)
				c := l.dial(t, post(request(`"stream":true`)))
				body := make(chan string)
				go func() {
					all, _ := io.ReadAll(c)
					body <- string(all)
				}()
				synctest.Wait() // the request is under way
				start := time.Now()
				stopped := make(chan error)
				go func() { stopped <- stop() }()
				synctest.Wait()
				if !s.draining.Load() {
					t.Error("not draining")
				}
				if _, open := <-l.closed; open {
					t.Error("the listener is open")
				}
				err := <-stopped
				if (err != nil) != tt.cut {
					t.Errorf("Serve returned %v", err)
				}
				if took := time.Since(start); took > tt.tookAtMost {
					t.Errorf("took %v", took)
				}
				if got := <-body; strings.Contains(got, "[DONE]") == tt.cut {
					t.Errorf("the client got %q", got)
				}
				e.running.Wait()
				_ = c.Close()
			})
		})
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	l := newPipeListener()
	_ = l.Close()
	err := Serve(t.Context(), NewHTTPServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), l, func() {}, time.Second)
	if err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("got %v", err)
	}
}
