package router

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// wire carries requests over HTTP/1.1 in the goroutine that asks. net/http's own transport
// has two goroutines for each connection and hands every request and every answer from one
// to the other: on a busy machine that waits for a processor four times.
//
//   - It takes what nearly all requests are: plain HTTP, a short body that is at hand, and
//     repeatable, since a kept connection may turn out to have been closed. All else goes
//     through net/http's transport.
//   - A connection is used by one exchange at a time. It is kept if the answer has been read
//     to its end and nothing was cancelled.
//   - Safe for concurrent use.
type wire struct {
	dialer *net.Dialer
	other  *http.Transport

	mu    sync.Mutex
	idle  map[string][]*wireConn // by address, the last used last
	swept time.Time
}

const (
	maxWireBody   = 64 << 10 // so much a socket takes without being read from
	maxWireHead   = 1 << 20  // of an answer
	maxIdle       = 256      // connections for each replica
	maxIdleTime   = 90 * time.Second
	wireBufferLen = 8 << 10
)

func newWire(dialer *net.Dialer, other *http.Transport) *wire {
	return &wire{dialer: dialer, other: other, idle: map[string][]*wireConn{}}
}

// errNoAnswer says that the connection broke before the answer's first byte: if it was a kept
// one, it had been closed before the request came.
var errNoAnswer = errors.New("router: the connection broke before an answer")

// takes says whether a request is of the kind that is carried here.
func (*wire) takes(r *http.Request) bool {
	_, repeatable := r.Header["X-Idempotency-Key"]
	return r.URL.Scheme == "http" && r.URL.User == nil && !r.Close && len(r.TransferEncoding) == 0 &&
		(repeatable || r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.Body == nil || r.Body == http.NoBody || r.GetBody != nil && r.ContentLength > 0 && r.ContentLength <= maxWireBody)
}

// roundTrip is t's, which calls sent, if that is not nil, once, in the caller's goroutine:
// when the request is out, if t can tell, and in any case before it returns.
func roundTrip(t http.RoundTripper, r *http.Request, sent func()) (*http.Response, error) {
	if sent == nil {
		return t.RoundTrip(r)
	}
	if w, ok := t.(*wire); ok {
		return w.roundTrip(r, sent)
	}
	sent()
	return t.RoundTrip(r)
}

// RoundTrip implements http.RoundTripper.
func (t *wire) RoundTrip(r *http.Request) (*http.Response, error) { return t.roundTrip(r, func() {}) }

func (t *wire) roundTrip(r *http.Request, sent func()) (*http.Response, error) {
	if !t.takes(r) {
		sent()
		return t.other.RoundTrip(r)
	}
	told := false
	tell := func() {
		if !told {
			told = true
			sent()
		}
	}
	defer tell() // where it was not sent at all
	if r.Body != nil {
		defer r.Body.Close() // what is sent is another copy of it
	}
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	ctx := r.Context()
	for {
		c := t.kept(address)
		kept := c != nil
		if !kept {
			conn, err := t.dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			c = newWireConn(t, address, conn)
		}
		resp, err := c.exchange(ctx, r, tell)
		if err == nil {
			return resp, nil
		}
		_ = c.conn.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !kept || !errors.Is(err, errNoAnswer) {
			return nil, err
		}
	}
}

// kept takes a kept connection, nil if there is none.
func (t *wire) kept(address string) *wireConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[address]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	t.idle[address] = list[:len(list)-1]
	return c
}

// keep puts a connection by, and closes those that nobody has used for long.
func (t *wire) keep(c *wireConn) {
	now := time.Now()
	c.since = now
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) > maxIdleTime/4 {
		t.swept = now
		for address, list := range t.idle {
			n := 0
			for n < len(list) && now.Sub(list[n].since) > maxIdleTime {
				_ = list[n].conn.Close()
				n++
			}
			if t.idle[address] = append(list[:0:0], list[n:]...); n == len(list) {
				delete(t.idle, address)
			}
		}
	}
	if list := t.idle[c.address]; len(list) < maxIdle {
		t.idle[c.address] = append(list, c)
		return
	}
	_ = c.conn.Close()
}

// CloseIdleConnections closes the kept connections.
func (t *wire) CloseIdleConnections() {
	t.mu.Lock()
	for _, list := range t.idle {
		for _, c := range list {
			_ = c.conn.Close()
		}
	}
	clear(t.idle)
	t.mu.Unlock()
	t.other.CloseIdleConnections()
}
