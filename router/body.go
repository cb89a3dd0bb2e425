package router

import (
	"io"
	"net/http"

	"tailor/internal/openai"
)

// maxAtOnce is how long a body may claim to be and get a buffer of its length at once.
const maxAtOnce = 256 << 10

// readBody reads a request's body of at most limit bytes, into a buffer of its length where
// that is known. Its errors are *openai.Error.
//
// The buffer is not used again: the transport may read it for as long as it likes, and only
// of a plain bytes.Reader does it know that the body is here, so that it sends head and body
// in one packet.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > min(limit, maxAtOnce) {
		return openai.ReadBody(w, r, limit)
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, openai.Invalid("", "the request body could not be read: %v", err)
	}
	return body, nil
}
