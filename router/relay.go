package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tailor/internal/openai"
)

// relay passes a replica's answer on.
func (x *exchange) relay(resp *http.Response) {
	defer resp.Body.Close()
	if d, ok := readCacheHeader(resp.Header); ok {
		x.delivered = d
	}
	body := &firstRead{from: resp.Body, on: func() {
		x.computed = resp.StatusCode/100 == 2
		x.row.FirstByte = x.router.config.Clock.Now().Sub(x.start).Seconds()
	}}
	switch {
	case resp.StatusCode >= 500:
		x.row.Outcome = OutcomeUpstream
	case resp.StatusCode >= 400:
		x.row.Outcome = OutcomeRejected
	default:
		x.row.Outcome = OutcomeOK
	}
	if isEventStream(resp.Header) {
		x.relayStream(resp, body)
	} else {
		x.relayWhole(resp, body)
	}
}

// isEventStream says whether an answer comes in events. Parameters may follow the type.
func isEventStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// firstRead tells when the first byte has been read.
type firstRead struct {
	from io.Reader
	on   func()
}

func (f *firstRead) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if n > 0 && f.on != nil {
		f.on()
		f.on = nil
	}
	return n, err
}

// relayWhole holds an answer back until it is complete, up to a bound: then a replica
// that dies half way can still be reported with a status.
func (x *exchange) relayWhole(resp *http.Response, body io.Reader) {
	limit := x.router.config.MaxAnswer
	held, err := io.ReadAll(io.LimitReader(body, limit))
	if err != nil {
		if x.broken(err) {
			x.refuse(OutcomeUpstream, x.brokeOff(err))
		}
		return
	}
	x.learn(held)
	complete, size := int64(len(held)) < limit, resp.ContentLength
	if complete && x.r.Method != http.MethodHead {
		size = int64(len(held))
	}
	x.writeHead(resp.StatusCode, resp.Header, x.booking.id, size)
	if !x.write(held, complete) || complete {
		return
	}
	buffers := relays.Get().(*relayBuffers)
	defer relays.Put(buffers)
	buffer := buffers.read
	for {
		n, err := body.Read(buffer)
		if n > 0 && !x.write(buffer[:n], false) {
			return
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			x.broken(err)
			// The status is gone: all that is left to say is not to end properly.
			panic(http.ErrAbortHandler)
		}
	}
}

// maxHeldEvent bounds what is held back of an event that is not complete.
const maxHeldEvent = 1 << 20

// relayStream passes events on as they come, each as a whole, so that the stream can end
// with an error event wherever the replica breaks off. The head goes out with the first
// event: until then a failure still has a status.
func (x *exchange) relayStream(resp *http.Response, body io.Reader) {
	buffers := relays.Get().(*relayBuffers)
	defer relays.Put(buffers)
	held, buffer := buffers.held[:0], buffers.read
	started, whole := false, true // whole: what has been sent ends with an event's end
	send := func(p []byte, last bool) bool {
		if started {
			return x.write(p, last)
		}
		started = true
		x.writeHead(resp.StatusCode, resp.Header, x.booking.id, -1)
		if !x.write(p, last) {
			return false
		}
		if x.computed && !x.settled { // only now: the client waits for its first event
			x.booking.answered()
		}
		return true
	}
	for {
		n, err := body.Read(buffer)
		held = append(held, buffer[:n]...)
		cut := eventsEnd(held)
		switch {
		case err == io.EOF:
			cut = len(held)
		case cut > 0:
			whole = true
		case !whole || len(held) > maxHeldEvent:
			cut, whole = len(held), false
		}
		x.learn(held[:cut])
		if cut > 0 && !send(held[:cut], isDone(held[:cut])) {
			return
		}
		held = append(held[:0], held[cut:]...)
		if err == io.EOF {
			if !started {
				send(nil, true)
			}
			return
		}
		if err == nil {
			continue
		}
		switch e := x.brokeOff(err); {
		case !x.broken(err):
		case started:
			send(errorEvent(e, whole), true)
		default:
			x.refuse(OutcomeUpstream, e)
		}
		return
	}
}

// relayBuffers are used by one answer after another.
type relayBuffers struct{ read, held []byte }

var relays = sync.Pool{New: func() any {
	return &relayBuffers{read: make([]byte, 32<<10), held: make([]byte, 0, 32<<10)}
}}

// learn looks for what a part of the answer says of the cache, for the ledger alone: the
// index never learns from answers.
func (x *exchange) learn(p []byte) {
	if x.route.ledger && x.delivered.from != CachedFromReplica {
		x.delivered.readUsage(p)
	}
}

// isDone says whether p ends with the event after which nothing of interest comes.
func isDone(p []byte) bool {
	p = bytes.TrimRight(p, "\r\n")
	return bytes.HasSuffix(p, []byte("data: [DONE]")) || bytes.HasSuffix(p, []byte("data:[DONE]"))
}

// eventsEnd is the length of the whole events at the beginning of p. An event ends with an
// empty line.
func eventsEnd(p []byte) int {
	if bytes.HasSuffix(p, []byte("\n\n")) {
		return len(p)
	}
	end := 0
	for _, blank := range []string{"\n\n", "\n\r\n", "\r\r"} {
		if i := bytes.LastIndex(p, []byte(blank)); i >= 0 {
			end = max(end, i+len(blank))
		}
	}
	return end
}

// errorEvent ends a stream that has begun. Clients raise on an event with "error"; no
// [DONE] follows.
func errorEvent(e *openai.Error, whole bool) []byte {
	data, err := json.Marshal(openai.ErrorResponse{Error: e})
	if err != nil {
		panic("router: an error does not marshal: " + err.Error())
	}
	event := append([]byte("data: "), data...)
	event = append(event, "\n\n"...)
	if !whole {
		event = append([]byte("\n\n"), event...)
	}
	return event
}

// broken notes that an answer broke off. False: it is the client who has gone.
func (x *exchange) broken(err error) bool {
	if cut := x.cut(); cut != nil {
		x.row.Outcome, x.row.Error = OutcomeCut, cut.Error()
		return true
	}
	if x.r.Context().Err() != nil {
		x.cancelled()
		return false
	}
	x.booking.saw(failed(seenBroken, err))
	x.row.Outcome, x.row.Error = OutcomeUpstream, err.Error()
	return true
}

func (x *exchange) brokeOff(err error) *openai.Error {
	if cut := x.cut(); cut != nil {
		return x.stopped(cut)
	}
	return badGateway("replica %s broke off its answer: %v", x.booking.id, err)
}

// writeHead sends status and headers. size -1: unknown.
func (x *exchange) writeHead(status int, from http.Header, replica string, size int64) {
	header := x.w.Header()
	if len(x.router.config.AllowedOrigins) > 0 {
		from = withoutOrigins(header, from)
	}
	forward(header, from)
	delete(header, "Content-Length")
	if size >= 0 {
		header["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	}
	header[headerReplica] = []string{replica}
	header[headerRequest] = []string{x.row.RequestID}
	x.row.Status = status
	x.w.WriteHeader(status)
}

// withoutOrigins leaves off what a replica says of the pages that browsers may let in: the
// router has said so in own.
func withoutOrigins(own, from http.Header) http.Header {
	out := http.Header{}
	for name, values := range from {
		switch {
		case strings.HasPrefix(name, "Access-Control-"):
		case name == "Vary":
			out[name] = slices.Concat(own[name], values)
		default:
			out[name] = values
		}
	}
	return out
}

// write sends bytes to the client now. last: the replica has nothing more to say. False:
// the client does not take them any more.
func (x *exchange) write(p []byte, last bool) bool {
	x.row.AnswerBytes += int64(len(p))
	if last {
		x.settle()
	}
	// By the socket's clock, not the router's. Not for every event: a deadline that is a
	// little shorter than asked for does as well.
	var err error
	if now, patience := time.Now(), x.router.config.WriteTimeout; x.deadline.Sub(now) < patience*7/8 {
		x.deadline = now.Add(patience)
		err = x.control.SetWriteDeadline(x.deadline)
	}
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		_, err = x.w.Write(p)
	}
	if err == nil {
		err = x.control.Flush()
	}
	if err != nil {
		x.row.Outcome, x.row.Error = OutcomeCancelled, err.Error()
	}
	return err == nil
}
