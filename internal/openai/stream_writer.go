package openai

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A StreamWriter writes server-sent events.
//
//   - Headers and status 200 go out with the first event, so that until then
//     the caller may still answer with an error and its status.
//   - Every event is flushed, and must reach the client's socket within the
//     write timeout: a client that stops reading ends its stream, and holds
//     nothing longer than that.
//   - One goroutine uses it.
type StreamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	started bool
}

// NewStreamWriter writes to w. timeout bounds each single event; 0 means none.
func NewStreamWriter(w http.ResponseWriter, timeout time.Duration) *StreamWriter {
	return &StreamWriter{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Started tells whether the status has gone out.
func (s *StreamWriter) Started() bool { return s.started }

// Send writes v as one event. An error means that the client is gone.
func (s *StreamWriter) Send(v any) error {
	data, err := marshal(v)
	if err != nil {
		return fmt.Errorf("openai: %T does not marshal: %w", v, err)
	}
	return s.event(data)
}

// Fail reports an error after the first byte: as an event, since the status is
// gone already. Clients raise on a chunk with "error"; no [DONE] may follow.
func (s *StreamWriter) Fail(e *Error) error { return s.Send(ErrorResponse{e}) }

// Done ends the stream.
func (s *StreamWriter) Done() error { return s.event([]byte("[DONE]")) }

// event writes one event. JSON holds no line break, so one data line will do.
func (s *StreamWriter) event(data []byte) error {
	if !s.started {
		header := s.w.Header()
		header.Set("Content-Type", "text/event-stream; charset=utf-8")
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no") // nginx would collect the events
		s.w.WriteHeader(http.StatusOK)
		s.started = true
	}
	if s.timeout > 0 {
		if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	line := make([]byte, 0, len(data)+8)
	line = append(line, "data: "...)
	line = append(line, data...)
	line = append(line, "\n\n"...)
	if _, err := s.w.Write(line); err != nil {
		return err
	}
	return s.control.Flush()
}
