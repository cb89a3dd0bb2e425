package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"tailor/internal/openai"
	"tailor/router/policy"
)

// route is how requests to one path are treated.
type route struct {
	policy policy.Policy
	read   func(http.Header, []byte) (prompt, error) // nil: the body is not looked at
	seq    *atomic.Uint64                            // counts the requests that a policy chooses for
	retry  bool                                      // may be sent to another replica after a failure
	ledger bool
}

// exchange is one request on its way through.
type exchange struct {
	router *Router
	route  route
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	prompt prompt
	start  time.Time
	row    Row

	booking  *booking // of the attempt under way
	computed bool     // the replica has had the prompt
	settled  bool
}

// retryAfter is what a client is told to wait when nobody can serve it: two checks.
func (rt *Router) retryAfter() time.Duration { return max(time.Second, 2*rt.config.Health.Interval) }

// serve takes a request through: read, choose, send, relay, record.
func (rt *Router) serve(w http.ResponseWriter, r *http.Request, how route) {
	x := &exchange{router: rt, route: how, w: w, r: r, start: rt.config.Clock.Now()}
	x.row = Row{
		Time: x.start, RequestID: requestID(r.Header), Path: r.URL.Path, Policy: how.policy.Name(),
		Candidates: []policy.Candidate{}, Failures: []Failure{},
	}
	w.Header().Set(headerRequest, x.row.RequestID)
	defer x.settle()
	if !rt.enter() {
		x.refuse(OutcomeNoReplica, &openai.Error{
			Status: http.StatusServiceUnavailable, RetryAfter: rt.retryAfter(), Type: openai.TypeServer,
			Code: openai.CodeUnavailable, Message: "the router is draining",
		})
		return
	}
	defer rt.leave()
	if x.read() {
		x.attempt()
	}
}

// read takes the body in and learns the prompt. False: the request has been refused.
func (x *exchange) read() bool {
	body, err := openai.ReadBody(x.w, x.r, x.router.config.MaxBody)
	if err == nil && x.route.read != nil {
		x.prompt, err = x.route.read(x.r.Header, body)
	}
	x.body = body
	x.row.Model, x.row.Stream, x.row.Salted = x.prompt.model, x.prompt.stream, x.prompt.salted
	x.row.PromptTokens = x.prompt.tokens
	for _, chain := range x.prompt.chains {
		x.row.PromptBlocks += len(chain)
	}
	if err == nil {
		return true
	}
	if x.r.Context().Err() != nil {
		x.cancelled()
		return false
	}
	refusal, ok := errors.AsType[*openai.Error](err)
	if !ok {
		refusal = openai.Invalid("", "%v", err)
	}
	x.refuse(OutcomeInvalid, refusal)
	return false
}

// attempt sends the request to one replica after another until one answers. A request
// that is pinned finds no other to choose.
func (x *exchange) attempt() {
	w := wish{prompt: &x.prompt, policy: x.route.policy, pin: x.r.Header.Get(headerReplica)}
	if w.pin != "" {
		x.row.Policy = string(reasonPinned)
	} else {
		w.seq = x.route.seq.Add(1) - 1
	}
	var last *failure
	for {
		b, err := x.choose(w)
		if err != nil {
			if last != nil {
				x.giveUp(last)
			} else {
				x.nobody(err)
			}
			return
		}
		resp, failed := x.send(b)
		if failed == nil {
			x.booking = b
			x.relay(resp)
			return
		}
		b.end(false)
		if x.r.Context().Err() != nil {
			x.cancelled()
			return
		}
		last = failed
		w.tried = append(w.tried, b.id)
		x.row.Failures = append(x.row.Failures, Failure{Replica: b.id, Status: failed.status, Error: failed.message})
		if !x.route.retry || len(w.tried) > x.router.config.Retries {
			x.giveUp(last)
			return
		}
		x.router.metrics.retries.WithLabelValues(b.id).Inc()
	}
}

// choose books a replica and enters the decision in the row.
func (x *exchange) choose(w wish) (*booking, error) {
	clock := x.router.config.Clock
	start := clock.Now()
	b, d, err := x.router.registry.choose(w)
	seconds := clock.Now().Sub(start).Seconds()
	x.row.DecisionSeconds += seconds
	if err != nil {
		return nil, err
	}
	x.row.Retries = len(w.tried)
	x.row.Replica, x.row.Reason, x.row.SpilledFrom = d.Replica, d.Reason, d.SpilledFrom
	x.row.PredictedCached, x.row.Candidates = d.Cached, d.Candidates
	x.router.metrics.chosen(&x.row, seconds)
	return b, nil
}

// failure is an attempt after which another replica may be tried.
type failure struct {
	replica string
	status  int // 0: the connection failed
	message string
	header  http.Header
	body    []byte
}

// maxFailureBody bounds what is kept of a 502 or 503 in case nobody does better.
const maxFailureBody = 64 << 10

// send asks a replica. A connection that fails, a 502 and a 503 are failures: in neither
// case has an answer begun.
func (x *exchange) send(b *booking) (*http.Response, *failure) {
	target := b.base.JoinPath(x.r.URL.EscapedPath())
	target.RawQuery = x.r.URL.RawQuery
	req, err := http.NewRequestWithContext(x.r.Context(), x.r.Method, target.String(), bytes.NewReader(x.body))
	if err != nil {
		return nil, &failure{replica: b.id, message: err.Error()}
	}
	req.Header = requestHeader(x.r.Header, x.row.RequestID)
	if x.route.retry {
		// Tells the transport, and nobody else, that the request may be repeated on a new
		// connection if a kept one was closed under it: that is no failure of the replica.
		req.Header["X-Idempotency-Key"] = nil
	}
	resp, err := x.router.config.Transport.RoundTrip(req)
	if err != nil {
		if x.r.Context().Err() == nil {
			b.saw(failed(seenBroken, err))
		}
		return nil, &failure{replica: b.id, message: err.Error()}
	}
	epoch := resp.Header.Get(headerEpoch)
	if resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusServiceUnavailable {
		b.saw(sighting{kind: seenAlive, epoch: epoch})
		return resp, nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailureBody)) // whatever of it there is
	resp.Body.Close()
	message := openai.ReadError(resp.StatusCode, bytes.NewReader(body)).Message
	if resp.StatusCode == http.StatusServiceUnavailable {
		b.saw(unavailable("request", epoch, body))
	} else {
		b.saw(sighting{kind: seenBroken, err: "request: status 502: " + message, epoch: epoch})
	}
	return nil, &failure{replica: b.id, status: resp.StatusCode, message: message, header: resp.Header, body: body}
}

// giveUp passes on the last failure: the replica's own words where it had any.
func (x *exchange) giveUp(f *failure) {
	x.w.Header().Set(headerReplica, f.replica)
	if f.status == 0 {
		x.refuse(OutcomeUpstream, badGateway("replica %s could not be reached: %s", f.replica, f.message))
		return
	}
	x.row.Outcome, x.row.Error = OutcomeUpstream, f.message
	x.writeHead(f.status, f.header, f.replica, int64(len(f.body)))
	x.write(f.body, true)
}

// nobody refuses a request for which there is no replica.
func (x *exchange) nobody(err error) {
	if errors.Is(err, ErrUnknownReplica) {
		e := openai.Invalid("", "header %s: there is no replica %q", headerReplica, x.r.Header.Get(headerReplica))
		x.refuse(OutcomeInvalid, e)
		return
	}
	message := "no replica is ready"
	if errors.Is(err, ErrNotReady) {
		message = "the replica asked for is not ready"
	}
	x.refuse(OutcomeNoReplica, &openai.Error{
		Status: http.StatusServiceUnavailable, RetryAfter: x.router.retryAfter(), Type: openai.TypeServer,
		Code: openai.CodeUnavailable, Message: message,
	})
}

func badGateway(format string, args ...any) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: codeUpstream, Message: fmt.Sprintf(format, args...),
	}
}

const codeUpstream = "upstream_error"

// refuse answers with an error of the router's own. Nothing must have been written.
func (x *exchange) refuse(outcome Outcome, e *openai.Error) {
	x.row.Outcome, x.row.Status, x.row.Error = outcome, e.Status, e.Message
	x.settle()
	openai.WriteError(x.w, e)
}

// cancelled notes that the client has gone; there is nobody to answer.
func (x *exchange) cancelled() {
	x.row.Outcome, x.row.Error = OutcomeCancelled, context.Cause(x.r.Context()).Error()
}

// settle gives the place on the replica back, writes the ledger row and counts the
// request, once. It comes before the answer's last bytes go out: a client that has its
// answer finds the row, and its next request does not meet the load of this one.
func (x *exchange) settle() {
	if x.settled {
		return
	}
	x.settled = true
	if x.booking != nil {
		x.booking.end(x.computed)
	}
	x.row.Seconds = x.router.config.Clock.Now().Sub(x.start).Seconds()
	x.router.metrics.requests.WithLabelValues(x.row.Replica, x.row.Policy, string(x.row.Outcome)).Inc()
	if x.route.ledger {
		x.router.ledger.add(x.row)
	}
}
