package router

import (
	"context"
	"errors"
	"fmt"
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
	router  *Router
	route   route
	w       http.ResponseWriter
	control *http.ResponseController
	r       *http.Request
	body    []byte
	prompt  prompt
	start   time.Time
	row     Row
	number  uint64 // of the request, among those that a policy chose for
	shadows bool   // have been told of it

	booking   *booking // of the attempt that is answered
	computed  bool     // the replica has had the prompt
	delivered delivered
	reach     reach
	deadline  time.Time // for the client, as last set
	settled   bool
}

// retryAfter is what a client is told to wait when nobody can serve it: two checks.
func (rt *Router) retryAfter() time.Duration { return max(time.Second, 2*rt.config.Health.Interval) }

// serve takes a request through: read, choose, send, relay, record.
func (rt *Router) serve(w http.ResponseWriter, r *http.Request, how route) {
	x := &exchange{
		router: rt, route: how, w: w, control: http.NewResponseController(w), r: r, start: rt.config.Clock.Now(),
	}
	x.row = Row{
		Time: x.start, RequestID: w.Header().Get(headerRequest), Path: r.URL.Path, Policy: how.policy.Name(),
		Candidates: []policy.Candidate{}, Failures: []Failure{},
	}
	defer x.settle()
	if !rt.enter() {
		x.refuse(OutcomeNoReplica, &openai.Error{
			Status: http.StatusServiceUnavailable, RetryAfter: rt.retryAfter(), Type: openai.TypeServer,
			Code: openai.CodeUnavailable, Message: "the router is draining",
		})
		return
	}
	defer rt.leave()
	if e := rt.cameRound(r.Header); e != nil {
		x.refuse(OutcomeInvalid, e)
		return
	}
	if x.read() {
		x.attempt()
	}
}

// read takes the body in and learns the prompt. False: the request has been refused.
func (x *exchange) read() bool {
	body, err := readBody(x.w, x.r, x.router.config.MaxBody)
	if err == nil && x.route.read != nil {
		x.prompt, err = x.route.read(x.r.Header, body)
	}
	x.body = body
	x.row.Model, x.row.Stream, x.row.Salted = x.prompt.model, x.prompt.stream, x.prompt.salted
	x.row.PromptTokens = x.prompt.tokens
	for _, chain := range x.prompt.chains {
		x.row.PromptBlocks += len(chain.blocks)
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

// giveUp passes on the last failure: the replica's own words where it had any.
func (x *exchange) giveUp(f *failure) {
	x.w.Header().Set(headerReplica, f.replica)
	if f.status == 0 {
		x.refuse(OutcomeUpstream, badGateway("replica %s could not be reached: %s", f.replica, f.message))
		return
	}
	x.row.Outcome, x.row.Error = OutcomeUpstream, f.message
	if f.status == http.StatusTooManyRequests {
		x.row.Outcome = OutcomeRejected
	}
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
	if e, ok := errors.AsType[*unknownModelError](err); ok {
		x.refuse(OutcomeInvalid, e.openAI())
		return
	}
	message := "no replica is ready"
	switch {
	case errors.Is(err, ErrNotReady):
		message = "the replica asked for is not ready"
	case x.prompt.model != "" && x.router.registry.anyServes():
		message = fmt.Sprintf("no replica that serves model %q is ready", x.prompt.model)
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

// cut is why this process ended the request's context before the client did; nil: it did not.
func (x *exchange) cut() error {
	cause := context.Cause(x.r.Context())
	if cause == nil || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return nil
	}
	return cause
}

// stopped tells a client that its answer was cut.
func (x *exchange) stopped(cut error) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, RetryAfter: x.router.retryAfter(), Type: openai.TypeServer,
		Code: openai.CodeUnavailable, Message: cut.Error(),
	}
}

// cancelled ends a request of which nothing has been written and whose context has ended:
// mostly the client has gone, and there is nobody to answer.
func (x *exchange) cancelled() {
	if cut := x.cut(); cut != nil {
		x.refuse(OutcomeCut, x.stopped(cut))
		return
	}
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
	if x.route.ledger {
		x.account()
	}
	if x.shadows {
		x.router.shadows.tell(shadowEvent{request: x.number, served: x.computed})
	}
	x.row.Seconds = x.router.config.Clock.Now().Sub(x.start).Seconds()
	x.router.metrics.requests.WithLabelValues(x.row.Replica, x.row.Policy, string(x.row.Outcome)).Inc()
	if x.route.ledger {
		x.router.ledger.add(x.row)
	}
}

// account enters what became of the prompt's tokens.
func (x *exchange) account() {
	if !x.computed {
		return
	}
	d, row, block := x.delivered, &x.row, x.router.config.BlockTokens
	if d.from == "" {
		d.from, d.matched = CachedFromPredicted, row.PredictedCached
	}
	if d.prompt > 0 {
		row.PromptTokens = d.prompt
	}
	row.CachedFrom, row.MissReason = d.from, d.reason
	row.CachedTokens = min(d.matched, row.PromptTokens)
	row.ComputedTokens = row.PromptTokens - row.CachedTokens
	row.Drift = (row.PredictedCached/block - row.CachedTokens/block) * block
	r := x.reach
	r.prompt, r.delivered, r.predicted = row.PromptTokens, row.CachedTokens, row.PredictedCached
	for _, c := range row.Candidates {
		r.best = max(r.best, c.Cached)
	}
	row.Lost = r.split(d.reason)
	x.router.metrics.answered(row)
}
