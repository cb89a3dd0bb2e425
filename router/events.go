package router

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Block events, as a replica sends them on GET /v1/cache/events?epoch=E&from=SEQ: one JSON
// object a line, for as long as the connection lasts. Events of an epoch are numbered from
// 1 without holes; a heartbeat repeats the last number.
const (
	eventStored    = "stored"
	eventRemoved   = "removed"
	eventCleared   = "cleared"
	eventHeartbeat = "heartbeat"
	eventResync    = "resync" // what was asked for is gone: the snapshot has the state
)

type wireEvent struct {
	Epoch  string      `json:"epoch"`
	Seq    uint64      `json:"seq"`
	Type   string      `json:"type"`
	Salt   string      `json:"salt"`
	Parent int64       `json:"parent"`
	Blocks []wireBlock `json:"blocks"`
	Digest hexDigest   `json:"digest"` // of the state after Seq; heartbeats carry it
}

type wireBlock struct {
	ID     int64   `json:"id"`
	Parent int64   `json:"parent"` // in a snapshot
	Tokens []int32 `json:"tokens"`
}

// wireSnapshot is the answer of GET /v1/cache/snapshot: the state after event Seq.
type wireSnapshot struct {
	Epoch     string    `json:"epoch"`
	Seq       uint64    `json:"seq"`
	BlockSize int       `json:"block_size"`
	Model     string    `json:"model"`
	Digest    hexDigest `json:"digest"`
	Salts     []struct {
		Salt   string      `json:"salt"`
		Blocks []wireBlock `json:"blocks"` // parents first
	} `json:"salts"`
}

// hexDigest is 16 hex digits on the wire, or absent.
type hexDigest struct {
	sum   uint64
	known bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *hexDigest) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || text == "" {
		return err
	}
	sum, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return fmt.Errorf("digest %q is not 16 hex digits", text)
	}
	*d = hexDigest{sum: sum, known: true}
	return nil
}

// maxEventLine bounds a line: 4,096 blocks of 256 tokens with room to spare.
const maxEventLine = 16 << 20

// eventReader reads events line by line.
type eventReader struct{ lines *bufio.Scanner }

func newEventReader(r io.Reader) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 16<<10), maxEventLine)
	return &eventReader{lines}
}

// next returns the next event; io.EOF where the stream ends.
func (r *eventReader) next() (wireEvent, error) {
	for r.lines.Scan() {
		if len(r.lines.Bytes()) == 0 {
			continue
		}
		e := wireEvent{Parent: -1}
		if err := json.Unmarshal(r.lines.Bytes(), &e); err != nil {
			return e, fmt.Errorf("%w: %w", errEvent, err)
		}
		return e, nil
	}
	if err := r.lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("%w: a line is longer than %d bytes", errEvent, maxEventLine)
		}
		return wireEvent{}, err
	}
	return wireEvent{}, io.EOF
}
