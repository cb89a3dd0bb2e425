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
	"time"
)

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
