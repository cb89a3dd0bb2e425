package router

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
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

// wireConn is a connection and its buffers.
type wireConn struct {
	wire    *wire
	address string
	conn    net.Conn
	in      *bufio.Reader
	out     bytes.Buffer
	left    int64 // bytes that may yet be read: of an answer's head there is a limit
	since   time.Time
}

func newWireConn(t *wire, address string, conn net.Conn) *wireConn {
	c := &wireConn{wire: t, address: address, conn: conn}
	c.in = bufio.NewReaderSize(c, wireBufferLen)
	return c
}

// Read reads from the connection, within the limit.
func (c *wireConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("router: the head of an answer is longer than %d bytes", maxWireHead)
	}
	n, err := c.conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// long ago is a deadline that ends what is waiting.
var longAgo = time.Unix(1, 0)

// exchange sends the request and reads the answer's head.
func (c *wireConn) exchange(ctx context.Context, r *http.Request, sent func()) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(longAgo) })
	resp, err := c.ask(r, sent)
	if err != nil {
		stop()
		return nil, err
	}
	keep := !resp.Close
	if resp.Body == http.NoBody {
		c.done(stop, keep)
		return resp, nil
	}
	resp.Body = &wireBody{conn: c, ctx: ctx, stop: stop, keep: keep, from: resp.Body}
	return resp, nil
}

func (c *wireConn) ask(r *http.Request, sent func()) (*http.Response, error) {
	if err := c.write(r); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	sent()
	c.left = maxWireHead
	if _, err := c.in.Peek(1); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	for {
		resp, err := http.ReadResponse(c.in, r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// write sends the request in one piece.
func (c *wireConn) write(r *http.Request) error {
	c.out.Reset()
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	for _, part := range []string{r.Method, " ", r.URL.RequestURI(), " HTTP/1.1\r\nHost: ", host, "\r\n"} {
		c.out.WriteString(part)
	}
	if err := r.Header.Write(&c.out); err != nil {
		return err
	}
	if r.ContentLength > 0 || r.Method == http.MethodPost {
		c.out.WriteString("Content-Length: ")
		c.out.Write(strconv.AppendInt(c.out.AvailableBuffer(), max(r.ContentLength, 0), 10))
		c.out.WriteString("\r\n")
	}
	c.out.WriteString("\r\n")
	if r.GetBody != nil && r.ContentLength > 0 {
		body, err := r.GetBody()
		if err != nil {
			return err
		}
		n, err := c.out.ReadFrom(body)
		if err == nil && n != r.ContentLength {
			err = fmt.Errorf("router: the body has %d bytes, not %d", n, r.ContentLength)
		}
		_ = body.Close()
		if err != nil {
			return err
		}
	}
	_, err := c.conn.Write(c.out.Bytes())
	if c.out.Cap() > 2*wireBufferLen {
		c.out = bytes.Buffer{}
	}
	return err
}

// done ends an exchange.
func (c *wireConn) done(stop func() bool, keep bool) {
	if !stop() || !keep || c.in.Buffered() > 0 { // cancelled, or it has said more than it was asked
		_ = c.conn.Close()
		return
	}
	c.wire.keep(c)
}

// wireBody is an answer's body. Reading it to its end keeps the connection, closing it
// before that closes the connection.
type wireBody struct {
	conn *wireConn
	ctx  context.Context
	stop func() bool
	keep bool
	from io.ReadCloser
	end  error // why there is nothing more to read
}

func (b *wireBody) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err := b.from.Read(p)
	switch {
	case err == nil:
	case err == io.EOF:
		b.end = io.EOF
		b.conn.done(b.stop, b.keep)
	case b.ctx.Err() != nil:
		err = context.Cause(b.ctx)
	}
	return n, err
}

func (b *wireBody) Close() error {
	if b.end != nil {
		return nil
	}
	b.end = http.ErrBodyReadAfterClose
	b.stop()
	return b.conn.conn.Close()
}
