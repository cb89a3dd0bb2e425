package router

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"tailor/internal/openai"
)

// payload is a request's body in a buffer that is used again.
//
//   - The transport may still read a body after it has answered; it says by Close when it
//     does not. So the buffer goes back when the request and all readers of it are done.
type payload struct {
	data []byte
	refs atomic.Int32
}

var payloads = sync.Pool{New: func() any { return new(payload) }}

// maxPooled keeps a rare long body from staying around for good.
const maxPooled = 256 << 10

// readPayload reads a request's body of at most limit bytes. Its errors are *openai.Error.
func readPayload(w http.ResponseWriter, r *http.Request, limit int64) (*payload, error) {
	p := payloads.Get().(*payload)
	p.refs.Store(1)
	size := r.ContentLength
	if size < 0 || size > min(limit, maxPooled) {
		data, err := openai.ReadBody(w, r, limit)
		if err != nil {
			p.release()
			return nil, err
		}
		p.data = data
		return p, nil
	}
	if int64(cap(p.data)) < size {
		p.data = make([]byte, size)
	}
	p.data = p.data[:size]
	if _, err := io.ReadFull(r.Body, p.data); err != nil {
		p.release()
		return nil, openai.Invalid("", "the request body could not be read: %v", err)
	}
	return p, nil
}

func (p *payload) release() {
	if p.refs.Add(-1) == 0 && cap(p.data) <= maxPooled {
		payloads.Put(p)
	}
}

// reader returns another reader of the body. It must be closed.
func (p *payload) reader() io.ReadCloser {
	p.refs.Add(1)
	r := &payloadReader{payload: p}
	r.Reset(p.data)
	return r
}

type payloadReader struct {
	bytes.Reader
	payload *payload
	closed  atomic.Bool
}

// Close may be called more than once.
func (r *payloadReader) Close() error {
	if !r.closed.Swap(true) {
		r.payload.release()
	}
	return nil
}
