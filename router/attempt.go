package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"tailor/internal/openai"
	"tailor/router/policy"
)

// attempt sends the request to one replica after another until one answers. A request
// that is pinned finds no other to choose.
func (x *exchange) attempt() {
	w := wish{prompt: &x.prompt, policy: x.route.policy, pin: x.r.Header.Get(headerReplica)}
	if w.pin != "" {
		x.row.Policy = string(reasonPinned)
	}
	if w.pin == "" || x.route.ledger {
		w.seq = x.route.seq.Add(1) - 1
	}
	x.number = w.seq
	var last *failure
	for {
		c, err := x.choose(w)
		if err != nil {
			if last != nil {
				x.giveUp(last)
			} else {
				x.nobody(err)
			}
			return
		}
		a := x.race(c, &w)
		if a.failed == nil {
			x.booking = a.choice.booking
			x.enter(a.choice)
			x.relay(a.resp)
			a.cancel(nil)
			return
		}
		if x.r.Context().Err() != nil {
			x.cancelled()
			return
		}
		last = a.failed
		if !x.route.retry || len(w.tried) > x.router.config.Retries {
			x.giveUp(last)
			return
		}
		x.router.metrics.retries.WithLabelValues(last.replica).Inc()
		if !x.pause(len(w.tried)) {
			x.cancelled()
			return
		}
	}
}

// pause waits before another replica is tried, if it is not the first. False: the client
// has gone.
func (x *exchange) pause(tried int) bool {
	wait := x.router.config.RetryWait
	if tried < 2 || wait <= 0 {
		return true
	}
	wait <<= min(tried-2, 6)
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.r.Context().Done():
		return false
	}
}

// choice is a decision and the place booked by it.
type choice struct {
	booking  *booking
	decision policy.Decision
	tried    int // replicas before it
	seconds  float64
}

// choose books a replica and enters the decision in the row.
func (x *exchange) choose(w wish) (choice, error) {
	clock := x.router.config.Clock
	start := clock.Now()
	b, d, err := x.router.registry.choose(w)
	seconds := clock.Now().Sub(start).Seconds()
	x.row.DecisionSeconds += seconds
	if err != nil {
		return choice{}, err
	}
	c := choice{booking: b, decision: d, tried: len(w.tried), seconds: seconds}
	x.enter(c)
	return c, nil
}

// tell counts a choice, and remembers what was asked for: all that the choice itself did not
// need, so that it may be done once the request has been sent.
func (x *exchange) tell(c choice) {
	x.router.metrics.chosen(&x.row, c.seconds)
	if !x.route.ledger || c.tried > 0 {
		return
	}
	x.router.registry.count(&x.prompt)
	seen, anySalt := x.router.past.look(&x.prompt)
	x.reach.seen, x.reach.anySalt = seen*x.router.config.BlockTokens, anySalt*x.router.config.BlockTokens
	x.shadows = true
	x.router.shadows.tell(shadowEvent{request: x.number, prompt: &x.prompt, chosen: c.decision.Replica})
}

// enter writes a decision into the row.
func (x *exchange) enter(c choice) {
	d := c.decision
	x.row.Retries = c.tried
	x.row.Replica, x.row.Reason, x.row.SpilledFrom = d.Replica, d.Reason, d.SpilledFrom
	x.row.PredictedCached, x.row.Candidates = d.Cached, d.Candidates
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

// attempt is one request to one replica, and what came of it: an answer or a failure.
type attempt struct {
	choice choice
	resp   *http.Response
	failed *failure
	cancel context.CancelCauseFunc // once the answer has been read
}

// send asks a replica. A connection that fails, a 502, a 503 and a 508 are failures: in no
// such case has an answer begun. So is a 429, though not the replica's fault: its queue is
// full, another one's may not be; if all are, the client gets the last one's word for it.
// Whoever goes down while it is waited for has failed too.
//
// sent, if not nil, is called when the request is out, before the answer is waited for.
func (x *exchange) send(ctx context.Context, cancel context.CancelCauseFunc, c choice, sent func()) attempt {
	a := attempt{choice: c, cancel: cancel}
	a.resp, a.failed = x.exchangeHead(ctx, c.booking, cancel, sent)
	if a.failed != nil {
		cancel(nil)
		c.booking.end(false)
	}
	return a
}

func (x *exchange) exchangeHead(ctx context.Context, b *booking, cancel context.CancelCauseFunc, sent func()) (*http.Response, *failure) {
	req := (&http.Request{
		Method: x.r.Method, URL: targetOf(b.base, x.r.URL), Host: b.base.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: requestHeader(x.r.Header, x.row.RequestID, b.replica.hop),
	}).WithContext(ctx)
	if len(x.body) > 0 {
		req.ContentLength = int64(len(x.body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
		req.Body, _ = req.GetBody()
	}
	if x.route.retry {
		// Tells the transport, and nobody else, that the request may be repeated on a new
		// connection if a kept one was closed under it: that is no failure of the replica.
		req.Header["X-Idempotency-Key"] = nil
	}
	b.await(cancel)
	resp, err := roundTrip(x.router.config.Transport, req, sent)
	b.arrived()
	if err != nil {
		if errors.Is(context.Cause(ctx), errReplicaDown) {
			err = errReplicaDown
		} else if ctx.Err() == nil {
			b.saw(failed(seenBroken, err))
		}
		return nil, &failure{replica: b.id, message: err.Error()}
	}
	epoch := resp.Header.Get(headerEpoch)
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusLoopDetected:
	case http.StatusTooManyRequests:
		if x.route.retry {
			break
		}
		fallthrough
	default:
		b.saw(sighting{kind: seenAlive, epoch: epoch, fault: resp.StatusCode >= 500})
		return resp, nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailureBody)) // whatever of it there is
	resp.Body.Close()
	said := openai.ReadError(resp.StatusCode, bytes.NewReader(body))
	message := said.Message
	switch resp.StatusCode {
	case http.StatusLoopDetected:
		// Of a request that came through other routers, or says so, it is theirs to see.
		if said.Code == codeLoop && len(x.r.Header[headerVia]) == 0 {
			b.saw(sighting{kind: seenLoop, err: "request: " + message})
		}
	case http.StatusServiceUnavailable:
		b.saw(unavailable("request", epoch, body))
	case http.StatusBadGateway:
		b.saw(sighting{kind: seenBroken, err: "request: status 502: " + message, epoch: epoch})
	default:
		b.saw(sighting{kind: seenBusy, epoch: epoch})
	}
	return nil, &failure{replica: b.id, status: resp.StatusCode, message: message, header: resp.Header, body: body}
}
