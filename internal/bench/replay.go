package bench

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"tailor/internal/bench/workload"
)

// giveUpAfter is how many failures in a row end a run, and giveUpAtFirst how many before
// any answer. A 429 is not among them: it is what a server past its limit should say.
// refusedAtFirst bounds those too, as long as nothing has been answered.
const (
	giveUpAfter    = 20
	giveUpAtFirst  = 5
	refusedAtFirst = 50
)

// errNothingWorks ends a run whose requests all fail.
var errNothingWorks = errors.New("nothing works any more")

// replay is one run of a workload against one server.
//
//   - One goroutine, run, decides what is sent when; all fields but those it passes to a
//     request's own goroutine are its alone.
//   - A request is in ready from the moment at which it depends on no answer any more until
//     it is sent. In a closed loop ready is in the workload's order, so that with one client
//     the order never depends on time; in an open loop in the order of when it is due.
//   - Every request is sent at most once and ends in done, whatever becomes of it.
type replay struct {
	client   *client
	messages *messages
	arrival  Arrival
	times    []time.Duration // of arrival, open loops only
	change   func(context.Context, workload.Change) error
	churn    []workload.Change // not yet made
	pin      func(i int) string
	progress func(done int)                                  // may be nil
	settle   func(ctx context.Context, replica string) error // may be nil

	began    time.Time
	children map[int][]int
	ready    readyQueue
	inFlight int
	sent     int
	full     time.Duration // until when the bound of an open loop was reached
	prompts  []prompt
	answers  []*answer
	hash     uint64 // over all bodies

	held    int64
	streak  int // failures since the last answer, without 429s
	failed  int
	good    int
	samples []Sample
	ended   []bool // by index: its sample is final
}

// result of one request.
type outcome struct {
	index   int
	sample  Sample
	prompt  prompt
	body    uint64
	answer  *answer // nil: failed
	refused bool    // by a 429
	unsent  bool    // the request it goes on from failed
}

func newReplay(c *client, w *workload.Workload, model string, arrival Arrival) *replay {
	n := len(w.Requests)
	r := &replay{
		client: c, messages: newMessages(w.Requests, model), arrival: arrival, churn: w.Churn,
		children: map[int][]int{}, prompts: make([]prompt, n), answers: make([]*answer, n),
		samples: make([]Sample, n), ended: make([]bool, n),
	}
	r.ready.inOrder = arrival.Kind == Closed
	r.times = arrivals(w, arrival)
	return r
}

// run sends everything and returns when all that was sent has ended. It fails if ctx ends,
// if nothing works or if a change of replicas does; the samples say what was done until then.
func (r *replay) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.began = time.Now()
	for i := range r.messages.requests {
		if after := r.messages.requests[i].After; after >= 0 {
			r.children[after] = append(r.children[after], i)
		} else {
			heap.Push(&r.ready, readyRequest{i, r.times[i]})
		}
	}
	done := make(chan outcome)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var changes sync.WaitGroup // open loops only
	defer changes.Wait()
	last := make(chan struct{}) // closed when the change before has been made
	close(last)

	for left := len(r.messages.requests); left > 0; {
		for r.mayStart() && ctx.Err() == nil {
			if c := r.nextChange(); c != nil {
				if r.arrival.Kind == Closed {
					if err := r.change(ctx, *c); err != nil {
						cancel(err)
					}
					continue
				}
				before, made := last, make(chan struct{})
				last = made
				changes.Go(func() {
					defer close(made)
					<-before
					if err := r.change(ctx, *c); err != nil {
						cancel(err)
					}
				})
				continue
			}
			r.start(ctx, done)
		}
		if ctx.Err() != nil && r.inFlight == 0 {
			return context.Cause(ctx)
		}
		var due <-chan time.Time
		if wait, ok := r.untilNext(); ok && ctx.Err() == nil {
			timer.Reset(wait)
			due = timer.C
		}
		var stopped <-chan struct{}
		if ctx.Err() == nil {
			stopped = ctx.Done()
		}
		select {
		case <-due:
		case <-stopped:
		case o := <-done:
			left--
			r.end(o, ctx.Err() != nil)
			if r.settle != nil && r.limit() == 1 && o.sample.Replica != "" && ctx.Err() == nil {
				if err := r.settle(ctx, o.sample.Replica); err != nil {
					cancel(err)
				}
			}
			if r.nothingWorks() {
				cancel(fmt.Errorf("%w: %d requests failed, the last with: %s", errNothingWorks, r.failed, o.sample.Error))
			}
		}
	}
	// A stop that came after the last answer has stopped nothing.
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) || r.good+r.failed < len(r.samples) {
		return cause
	}
	return nil
}

// mayStart tells whether a request is ready, due, and there is room for it.
func (r *replay) mayStart() bool {
	if r.ready.Len() == 0 || r.inFlight >= r.limit() {
		return false
	}
	return r.arrival.Kind == Closed || r.ready.list[0].due <= r.now()
}

// untilNext is how long until the next request is due, if there is room for it.
func (r *replay) untilNext() (time.Duration, bool) {
	if r.ready.Len() == 0 || r.inFlight >= r.limit() {
		return 0, false
	}
	return max(0, r.ready.list[0].due-r.now()), true
}

func (r *replay) limit() int {
	if r.arrival.Kind == Closed {
		return max(1, r.arrival.Concurrency)
	}
	return max(1, r.arrival.MaxInFlight)
}

func (r *replay) now() time.Duration { return time.Since(r.began) }

// nextChange takes the change of replicas that comes before the next request.
func (r *replay) nextChange() *workload.Change {
	if len(r.churn) == 0 || r.churn[0].Sent > r.sent {
		return nil
	}
	c := &r.churn[0]
	r.churn = r.churn[1:]
	return c
}

// start takes the next request out of ready and has it sent.
func (r *replay) start(ctx context.Context, done chan<- outcome) {
	next := heap.Pop(&r.ready).(readyRequest)
	i, due := next.index, next.due
	switch {
	case r.arrival.Kind == Closed:
		due = max(due, r.now()) // a client's time before it has picked the request is nobody's wait
	case due < r.full:
		r.held++
	}
	request := &r.messages.requests[i]
	o := outcome{index: i, sample: Sample{Index: i, Due: due, Session: request.Session, Prompt: -1, Cached: -1, Output: -1}}
	var before *prompt
	var said *answer
	if request.Continues {
		before, said = &r.prompts[request.After], r.answers[request.After]
	}
	pin := r.pin(i)
	r.inFlight++
	r.sent++
	go func() { done <- r.one(ctx, o, before, said, pin) }()
}

// one waits until a request is due, sends it and reads its answer.
func (r *replay) one(ctx context.Context, o outcome, before *prompt, said *answer, pin string) outcome {
	fail := func(err error) outcome {
		o.sample.Error = err.Error()
		return o
	}
	if before != nil && said == nil {
		o.unsent = true
		return fail(errParent)
	}
	var err error
	if o.prompt, err = r.messages.prompt(o.index, before, said); err != nil {
		return fail(err)
	}
	m, err := r.messages.write(o.index, o.prompt)
	if err != nil {
		return fail(err)
	}
	m.replica = pin
	o.body = hashBody(o.index, m.body)
	if wait := o.sample.Due - r.now(); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
	o.sample.Sent = r.now()
	a, replica, err := r.client.send(ctx, m)
	o.sample.Replica = replica
	if err != nil {
		if s, ok := errors.AsType[*statusError](err); ok {
			o.refused = s.status == http.StatusTooManyRequests
		}
		o.sample.E2E = r.now() - o.sample.Due
		return fail(err)
	}
	o.answer = &a
	o.sample.TTFT = a.first.Sub(r.began) - o.sample.Due
	o.sample.E2E = a.end.Sub(r.began) - o.sample.Due
	o.sample.Prompt, o.sample.Cached, o.sample.Output = a.prompt, a.cached, a.output
	return o
}

// end takes in what became of a request; what waited for it becomes ready. cut: it may
// have failed only because everything was stopped.
func (r *replay) end(o outcome, cut bool) {
	now := r.now()
	if r.inFlight == r.limit() && r.arrival.Kind != Closed {
		r.full = now
	}
	r.inFlight--
	if cut && o.answer == nil {
		return
	}
	r.samples[o.index], r.ended[o.index] = o.sample, true
	r.prompts[o.index], r.answers[o.index] = o.prompt, o.answer
	r.hash += o.body
	switch {
	case o.answer != nil:
		r.good++
		r.streak = 0
	default:
		r.failed++
		if !o.refused && !o.unsent {
			r.streak++
		}
	}
	for _, child := range r.children[o.index] {
		think := r.messages.requests[child].Think
		if r.arrival.Kind == Trace {
			think = time.Duration(float64(think) / r.arrival.Speed)
		}
		heap.Push(&r.ready, readyRequest{child, max(r.times[child], now+think)})
	}
	if r.progress != nil {
		r.progress(r.good + r.failed)
	}
}

func (r *replay) nothingWorks() bool {
	return r.streak >= giveUpAfter || r.good == 0 && (r.streak >= giveUpAtFirst || r.failed >= refusedAtFirst)
}

// hashBody tells apart both what is asked and for which request of the workload.
func hashBody(i int, body []byte) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:", i)
	h.Write(body)
	return h.Sum64()
}
