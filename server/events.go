package server

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tailor/internal/openai"
	"tailor/server/blocklog"
)

const (
	// heartbeat is how often a reader of events hears something, whatever happens.
	heartbeat = time.Second
	// batchEvents is how many events are taken from the log at once.
	batchEvents = 64
	// A client has its time for each part that is written: of events, which one batch seldom
	// fills, and of a snapshot. In bytes.
	eventsPart, snapshotPart = 64 << 10, 1 << 20
)

// mustReadAll lets those in who may see the prompts of all. Where keys tell several tenants
// apart, that is the operator, whether or not they share prefixes.
func (s *Server) mustReadAll(r *http.Request) error {
	for _, k := range s.Keys {
		if k.Name != s.Keys[0].Name && tenantOf(r.Context()).name != Operator {
			return concernsAll()
		}
	}
	return s.mustBeOperator(r)
}

// cacheEvents streams what happens to the prefix cache: GET /v1/cache/events?epoch=E&from=N
// sends the events after number N of epoch E, one JSON object a line, as they happen:
//
//	{"epoch":"e.0","seq":17,"type":"stored","salt":"","parent":4,"blocks":[{"id":5,"tokens":[1,2]},{"id":9,"tokens":[3,4]}]}
//	{"epoch":"e.0","seq":18,"type":"removed","blocks":[{"id":9},{"id":5}]}
//	{"epoch":"e.0","seq":19,"type":"cleared"}
//	{"epoch":"e.0","seq":18,"type":"heartbeat","digest":"00c5f0a2b1d3e4f5"}
//	{"epoch":"e.1","seq":0,"type":"resync"}
//
// Stored blocks are each the child of the one before, the first of parent; -1 is no block.
// A heartbeat says the last number, and the digest of what is held then: at once where
// nothing has happened, and every second. The stream ends with resync where the events
// after N are gone, or of another epoch: then GET /v1/cache/snapshot has the state to go on
// from. It ends without where the server drains. Without E the present epoch is meant, and
// without N, or with 0, all of it that is known.
func (s *Server) cacheEvents(w http.ResponseWriter, r *http.Request) {
	at, err := s.position(r)
	if err == nil {
		err = s.mustReadAll(r)
	}
	drained := s.drains.next()
	if err == nil && s.draining.Load() {
		err = unavailable("the replica is draining")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	// The ways in which it ends are no errors of this request.
	_ = s.streamEvents(r.Context(), w, at, drained)
}

// position reads where a stream is to begin.
func (s *Server) position(r *http.Request) (blocklog.Position, error) {
	query, log := r.URL.Query(), s.Engine.BlockLog()
	at := blocklog.Position{Epoch: query.Get("epoch")}
	if text := query.Get("from"); text != "" {
		var err error
		if at.Seq, err = strconv.ParseUint(text, 10, 64); err != nil {
			return at, openai.Invalid("from", "%q is not the number of an event", text)
		}
	}
	switch {
	case at.Epoch != "":
	case at.Seq == 0:
		at = log.Oldest()
	default:
		at.Epoch = log.Epoch()
	}
	return at, nil
}

// streamEvents writes until the client is gone, the server drains, or the events are lost.
func (s *Server) streamEvents(ctx context.Context, w http.ResponseWriter, at blocklog.Position, drained <-chan struct{}) error {
	log, control := s.Engine.BlockLog(), http.NewResponseController(w)
	out := bufio.NewWriterSize(timedWriter{s, w}, eventsPart)
	beats := time.NewTicker(heartbeat)
	defer beats.Stop()
	var line []byte
	for due := true; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-drained:
			return nil
		case <-beats.C:
			due = true
		default:
		}
		events, head, lost := log.After(at, batchEvents)
		if lost == nil && len(events) == 0 && !due {
			select {
			case <-ctx.Done():
			case <-drained:
			case <-head.News:
			case <-beats.C:
				due = true
			}
			continue
		}
		for _, e := range events {
			line = appendEvent(line[:0], at.Epoch, e)
			_, _ = out.Write(line) // Flush has the error
			at.Seq = e.Seq
		}
		switch {
		case lost != nil:
			_, _ = out.Write(appendResync(line[:0], head.Position))
		case len(events) == 0:
			_, _ = out.Write(appendHeartbeat(line[:0], head))
			due = false
		}
		if err := errors.Join(out.Flush(), control.Flush(), lost); err != nil {
			return err
		}
	}
}

// cacheSnapshot is all that the prefix cache holds, and the position that it is of:
//
//	{"epoch":"e.0","seq":18,"block_size":2,"model":"m","digest":"00c5f0a2b1d3e4f5",
//	 "salts":[{"salt":"","blocks":[{"id":4,"parent":-1,"tokens":[8,9]}]}]}
func (s *Server) cacheSnapshot(w http.ResponseWriter, r *http.Request) {
	err := s.mustReadAll(r)
	var snapshot blocklog.Snapshot
	if err == nil {
		snapshot, err = s.Engine.BlockSnapshot(r.Context())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// The whole may be large: each part has its own time.
	out := bufio.NewWriterSize(timedWriter{s, w}, snapshotPart)
	_ = writeSnapshot(out, s.ModelName, &snapshot) // the client's affair
}

// timedWriter gives the client its time for each write.
type timedWriter struct {
	server *Server
	w      http.ResponseWriter
}

func (t timedWriter) Write(p []byte) (int, error) {
	t.server.boundWrite(t.w)
	return t.w.Write(p)
}

// A signal tells those that wait for its next time. The zero value is ready to use.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

// next is closed at the next time.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
