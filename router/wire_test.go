package router

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// repeatable is a request of the kind that the wire carries itself.
func repeatable(ctx context.Context, t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		r.Body, r.GetBody = nil, nil
	}
	r.Header["X-Idempotency-Key"] = nil
	if !newTransport().takes(r) {
		t.Fatalf("%s %s is not taken", method, url)
	}
	return r
}

// scriptedServer is one that answers each request on a connection with the next text; after
// "!" the connection is closed. It counts connections and keeps what it was sent.
func scriptedServer(t *testing.T, answers ...string) (url string, conns *atomic.Int64, heard func() string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns = new(atomic.Int64)
	var mu sync.Mutex
	var all strings.Builder
	next := 0
	var serving sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			fmt.Fprintf(&all, "%s %s %s %v %s|", r.Method, r.RequestURI, r.Host, r.Header, body)
			answer := answers[min(next, len(answers)-1)]
			next++
			mu.Unlock()
			text, cut := strings.CutSuffix(answer, "!")
			if _, err := io.WriteString(conn, text); err != nil || cut {
				return
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return "http://" + listener.Addr().String(), conns, func() string { mu.Lock(); defer mu.Unlock(); return all.String() }
}

const (
	answerA       = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"
	answerChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
)

// Whatever a server answers, what comes of it is what net/http's transport makes of it, and
// the connection is used again where it may be.
func TestWireReadsWhatNetHTTPReads(t *testing.T) {
	for name, tt := range map[string]struct {
		method string
		answer string
		keeps  bool
	}{
		"length":           {"POST", answerA, true},
		"chunked":          {"POST", answerChunked, true},
		"trailer":          {"POST", "HTTP/1.1 200 OK\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n", true},
		"nothing":          {"POST", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true},
		"no content":       {"POST", "HTTP/1.1 204 No Content\r\n\r\n", true},
		"not modified":     {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", true},
		"head":             {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", true},
		"continue":         {"POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answerA, true},
		"close":            {"POST", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", false},
		"until the end":    {"POST", "HTTP/1.1 200 OK\r\n\r\nabc!", false},
		"HTTP/1.0":         {"POST", "HTTP/1.0 200 OK\r\n\r\nabc!", false},
		"more than asked":  {"POST", answerA + "HTTP/1.1 200 OK\r\n\r\n", false},
		"error":            {"POST", "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno", true},
		"cut body":         {"POST", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab!", false},
		"cut chunk":        {"POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab!", false},
		"cut head":         {"POST", "HTTP/1.1 200 OK\r\nContent-Le!", false},
		"no answer":        {"POST", "!", false},
		"not HTTP":         {"POST", "SSH-2.0-x\r\n\r\n!", false},
		"two lengths":      {"POST", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab!", false},
		"no end of a head": {"POST", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 1200) + "!", false},
	} {
		type outcome struct {
			status          int
			body            string
			failed, bodyBad bool
			header          string
		}
		do := func(transport http.RoundTripper) (o outcome, conns int64, heard string) {
			url, count, sent := scriptedServer(t, tt.answer)
			body := "hello"
			if tt.method != "POST" {
				body = ""
			}
			for range 2 {
				resp, err := transport.RoundTrip(repeatable(t.Context(), t, tt.method, url+"/p%20q?x=1", body))
				if o = (outcome{failed: err != nil}); err != nil {
					break
				}
				data, err := io.ReadAll(resp.Body)
				o.status, o.body, o.bodyBad, o.header = resp.StatusCode, string(data), err != nil, fmt.Sprint(resp.Header, resp.Trailer, resp.ContentLength)
				resp.Body.Close()
			}
			transport.(interface{ CloseIdleConnections() }).CloseIdleConnections()
			return o, count.Load(), strings.ReplaceAll(strings.ReplaceAll(sent(), url[len("http://"):], "HOST"), "User-Agent:[Go-http-client/1.1]", "")
		}
		got, conns, sent := do(newTransport())
		want, _, sentBy := do(newTransport().other)
		if name == "no end of a head" { // net/http's limit is another one
			want = outcome{failed: true}
		}
		if got != want {
			t.Errorf("%s: %+v, net/http has %+v", name, got, want)
		}
		if !got.failed && (conns == 1) != tt.keeps {
			t.Errorf("%s: %d connections for two requests, kept: %v", name, conns, tt.keeps)
		}
		if clean := strings.NewReplacer(" ", "", "Accept-Encoding:[gzip]", "").Replace; !got.failed && clean(sent) != clean(sentBy) {
			t.Errorf("%s: sent %s, net/http %s", name, sent, sentBy)
		}
	}
}

// A kept connection that turns out to be closed is no failure; a new one is.
func TestWireRepeatsOnKeptConnectionsOnly(t *testing.T) {
	url, conns, _ := scriptedServer(t, answerA, "!", answerA, "!", "!")
	w := newTransport()
	defer w.CloseIdleConnections()
	ask := func() error {
		resp, err := w.RoundTrip(repeatable(t.Context(), t, "POST", url, "x"))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	if err := errors.Join(ask(), ask()); err != nil || conns.Load() != 2 {
		t.Errorf("%v on %d connections, want 2", err, conns.Load())
	}
	// The kept one is closed, and so is the new one.
	if err := ask(); !errors.Is(err, errNoAnswer) || conns.Load() != 3 {
		t.Errorf("%v on %d connections, want 3", err, conns.Load())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	_, err = w.RoundTrip(repeatable(t.Context(), t, "POST", "http://"+listener.Addr().String(), "x"))
	if s := failed(seenBroken, err); s.kind != seenRefused {
		t.Errorf("nobody listens: %v", err)
	}
}

// A request that is cancelled ends at once, wherever it is, and its connection with it.
func TestWireCancel(t *testing.T) {
	arrived, gone := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // so that the end of the connection shows
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer server.Close()
	w := newTransport()
	defer w.CloseIdleConnections()
	why := errors.New("the client has gone")
	for _, path := range []string{"/head", "/body", "/closed"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-arrived
			if path != "/closed" {
				cancel(why)
			}
		}()
		target := path
		if path == "/closed" {
			target = "/body"
		}
		resp, err := w.RoundTrip(repeatable(ctx, t, "POST", server.URL+target, "x"))
		if err == nil {
			if path == "/closed" {
				err = resp.Body.Close()
			} else {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if _, again := resp.Body.Read(make([]byte, 1)); again == nil {
				t.Errorf("%s: the body can be read after its end", path)
			}
		}
		if path == "/closed" && err != nil || path != "/closed" && !errors.Is(err, why) {
			t.Errorf("%s: %v", path, err)
		}
		<-gone
		if n := len(w.idle[strings.TrimPrefix(server.URL, "http://")]); n != 0 {
			t.Errorf("%s: %d connections are kept", path, n)
		}
		cancel(nil)
	}
}

// Connections that nobody uses any more are closed in time, and there is a limit to them.
func TestWireForgetsConnections(t *testing.T) {
	url, _, _ := scriptedServer(t, answerA)
	w := newTransport()
	address := strings.TrimPrefix(url, "http://")
	conns := make([]*wireConn, maxIdle+5)
	for i := range conns {
		near, far := net.Pipe()
		defer far.Close()
		conns[i] = newWireConn(w, address, near)
		w.keep(conns[i])
	}
	if n := len(w.idle[address]); n != maxIdle {
		t.Errorf("%d are kept", n)
	}
	for _, c := range w.idle[address][:100] {
		c.since = time.Now().Add(-2 * maxIdleTime)
	}
	w.swept = time.Time{}
	w.keep(w.kept(address))
	if n := len(w.idle[address]); n != maxIdle-100 {
		t.Errorf("%d are kept after 100 were not used for long", n)
	}
	w.CloseIdleConnections()
	if len(w.idle) != 0 {
		t.Errorf("%d addresses left", len(w.idle))
	}
}

// What is not repeatable, long or private goes another way, and arrives.
func TestWireLeavesTheRestToNetHTTP(t *testing.T) {
	w := newTransport()
	defer w.CloseIdleConnections()
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(out, n)
	}))
	defer server.Close()
	for name, change := range map[string]func(*http.Request){
		"not repeatable": func(r *http.Request) { r.Header = http.Header{} },
		"long":           func(r *http.Request) { r.ContentLength = maxWireBody + 1 },
		"of any length":  func(r *http.Request) { r.ContentLength, r.GetBody = -1, nil },
		"one use":        func(r *http.Request) { r.Close = true },
		"private":        func(r *http.Request) { r.URL.Scheme = "https" },
	} {
		r := repeatable(t.Context(), t, "POST", server.URL, "hello")
		if change(r); w.takes(r) {
			t.Errorf("%s: it is taken", name)
		}
	}
	for _, length := range []int{0, 5, maxWireBody, maxWireBody + 1, 1 << 20} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL, strings.NewReader(strings.Repeat("x", length)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Idempotency-Key"] = nil
		resp, err := w.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != fmt.Sprint(length) {
			t.Errorf("%d bytes: %s arrived, %v", length, body, err)
		}
		resp.Body.Close()
	}
}
