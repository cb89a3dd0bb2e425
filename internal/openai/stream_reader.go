package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxEvent bounds one event's data, so that a server cannot fill a client's
// memory: the largest chunk of a completion takes some kilobytes.
const maxEvent = 8 << 20

// A StreamReader reads server-sent events as the HTML standard describes them:
// lines end in LF, CR or CR LF, comments and fields other than data are passed
// over, several data lines of one event are joined by LF. One goroutine uses it.
type StreamReader struct {
	in      *bufio.Reader
	line    []byte
	data    []byte
	begun   bool // a line has been read: only the first may open with a BOM
	afterCR bool // the last line ended in CR: a LF that follows belongs to it
	ended   error
}

// NewStreamReader reads from an answer's body, which the caller closes.
func NewStreamReader(body io.Reader) *StreamReader {
	return &StreamReader{in: bufio.NewReader(body)}
}

// Next returns the data of the next event, valid until the call after it. After
// [DONE] it returns io.EOF; a stream that ends before is io.ErrUnexpectedEOF.
func (s *StreamReader) Next() ([]byte, error) {
	if s.ended != nil {
		return nil, s.ended
	}
	data, err := s.next()
	if err == nil && string(data) == "[DONE]" {
		data, err = nil, io.EOF
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	s.ended = err
	return data, err
}

func (s *StreamReader) next() ([]byte, error) {
	s.data = s.data[:0]
	seen := false
	for {
		line, err := s.readLine()
		if err != nil {
			return nil, err // an event without its empty line does not count
		}
		if len(line) == 0 {
			if seen {
				return s.data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if seen {
			s.data = append(s.data, '\n')
		}
		seen = true
		s.data = append(s.data, bytes.TrimPrefix(value, []byte(" "))...)
		if len(s.data) > maxEvent {
			return nil, fmt.Errorf("openai: an event is longer than %d bytes", maxEvent)
		}
	}
}

// readLine returns a line without its end. It goes on at once when a CR comes:
// waiting for the LF that may follow would delay the event.
func (s *StreamReader) readLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return nil, err
		}
		afterCR := s.afterCR
		s.afterCR = c == '\r'
		if c == '\n' && afterCR {
			continue
		}
		if c == '\n' || c == '\r' {
			break
		}
		if len(s.line) > maxEvent {
			return nil, fmt.Errorf("openai: a line is longer than %d bytes", maxEvent)
		}
		s.line = append(s.line, c)
	}
	line := s.line
	if !s.begun {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		s.begun = true
	}
	return line, nil
}

// NextChunk reads the next event as a chunk of a completion. A chunk that
// carries an error is returned as *Error, and the stream is over.
func (s *StreamReader) NextChunk() (*Chunk, error) {
	data, err := s.Next()
	if err != nil {
		return nil, err
	}
	var in struct {
		chunkWithUsage
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		s.ended = fmt.Errorf("openai: event %s: %w", shorten(string(data), 200), err)
		return nil, s.ended
	}
	if in.Error != nil {
		s.ended = in.Error
		return nil, s.ended
	}
	return &Chunk{ID: in.ID, Object: in.Object, Created: in.Created, Model: in.Model, Choices: in.Choices, Usage: in.Usage}, nil
}
