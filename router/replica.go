package router

import (
	"errors"
	"net/url"
	"time"

	"github.com/sony/gobreaker/v2"

	"tailor/router/policy"
)

// State is what a replica can be.
type State string

const (
	StateReady    State = "ready"    // may be chosen
	StateUnready  State = "unready"  // not checked yet, or says itself that it cannot serve
	StateDraining State = "draining" // says that it is about to leave; finishes what it has
	StateDown     State = "down"     // cannot be reached
)

// sighting is one thing seen of a replica: a health check's result, or what a request met.
type sighting struct {
	kind   sightingKind
	err    string        // why, unless all is well
	epoch  string        // of the process and its cache; empty if not told
	asked  bool          // it was asked which models it serves, and
	models []servedModel // answered so; nil: not at all
	fault  bool          // an answer of 5xx: alive, but the breaker counts it
}

type sightingKind int

const (
	seenOK       sightingKind = iota // a health check passed
	seenAlive                        // a request was answered
	seenFailure                      // a health check failed: a timeout, an unexpected status
	seenBroken                       // a request failed: a broken connection, a 502
	seenRefused                      // nobody listens
	seenBusy                         // a request was turned away because too many wait
	seenUnready                      // says that it cannot serve
	seenDraining                     // says that it is about to leave
	seenLoop                         // a request came back from it: it leads to this router
)

// replica is one replica as the registry knows it.
//
//   - A refused connection puts it down at once, other failures only Fails in a row.
//     Checks and requests are counted apart: answers do not excuse a failing health check.
//   - It comes back from down after Passes good checks in a row: one might be luck. From
//     unready and draining, which it announced itself, it comes back with the first.
//   - While it is down, nothing is known of its cache: whoever comes back may be a new
//     process. A changed epoch says the same of one that was never seen down.
//   - Health checks say nothing of requests that fail on a replica that is well: those the
//     breaker counts, and opens. Where that would leave nobody, breakers are not heeded:
//     requests that fail everywhere are probably the requests' fault.
//   - One that leads back to this router is unready, and where only a request could show it,
//     for a while.
//   - expected is there if and only if copy is.
//   - Not safe for concurrent use: the registry's lock covers it.
type replica struct {
	id      string
	base    *url.URL
	hop     string // what is added to the header X-Tailor-Via of requests to it
	source  string
	held    bool // by an operator
	removed bool

	state       State
	since       time.Time
	fails       int // health checks failed in a row
	passes      int // health checks passed in a row
	broken      int // requests broken in a row, since the last good check
	lastError   string
	lastErrorAt time.Time
	epoch       string
	pastEpoch   string        // the one before
	checking    bool          // a health check is under way
	loopUntil   time.Time     // taken to lead back here
	models      []servedModel // sorted by ID; nil: it does not say
	modelsAt    time.Time     // when it was asked

	load    policy.Load
	active  int // prompt tokens of requests in flight, cached or not
	recent  int // requests sent lately
	served  uint64
	waiting map[*booking]struct{} // attempts without an answer yet
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	tripped bool // the breaker is not closed
	trials  int  // attempts that a half-open breaker lets through

	index    *prefixIndex  // the guess
	copy     *cacheCopy    // nil: not followed
	expected *expectations // on the way, beyond the copy
	resyncs  uint64
	forgets  uint64 // how often all that was known of its cache was dropped
}

var (
	// errFault is what the breaker is told of an attempt that failed.
	errFault = errors.New("router: the replica failed the request")
	// errUnknown is what it is told of one that says nothing about the replica.
	errUnknown = errors.New("router: the request says nothing about the replica")
)

func (g *registry) newReplica(id string, base *url.URL, source string) *replica {
	r := &replica{
		id: id, base: base, hop: hopOf(g.router, id), source: source, state: StateUnready, since: g.clock.Now(),
		trials: g.breaker.Successes, waiting: map[*booking]struct{}{}, index: g.newIndex(),
	}
	r.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        id,
		MaxRequests: uint32(g.breaker.Successes),
		Timeout:     g.breaker.Open,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(g.breaker.Failures) },
		IsExcluded:  func(err error) bool { return errors.Is(err, errUnknown) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			r.tripped = to != gobreaker.StateClosed
			g.log.Warn("breaker changed state", "replica", id, "from", from.String(), "to", to.String())
		},
	})
	return r
}

// serves says whether new requests may be sent to it, as far as its health goes.
func (r *replica) serves() bool { return r.state == StateReady && !r.held }

// trusted says whether the breaker lets a request through.
func (r *replica) trusted() bool {
	if !r.tripped {
		return true
	}
	switch r.breaker.State() { // which may end the open state
	case gobreaker.StateOpen:
		return false
	case gobreaker.StateHalfOpen:
		return int(r.breaker.Counts().Requests) < r.trials
	}
	return true
}

// ready says whether new requests may be sent to it.
func (r *replica) ready() bool { return r.serves() && r.trusted() }

// heldBlocks is how many blocks it is expected to hold.
func (r *replica) heldBlocks() int {
	n := len(r.index.blocks)
	if r.copy != nil {
		n += len(r.copy.ids) + len(r.expected.blocks)
	}
	return n
}

// takeWaiting returns the attempts that have no answer yet and forgets them.
func (r *replica) takeWaiting() []*booking {
	out := make([]*booking, 0, len(r.waiting))
	for b := range r.waiting {
		out = append(out, b)
	}
	clear(r.waiting)
	return out
}

// see takes a sighting in. changed: the state is another one; forget: what the index says
// of this replica no longer holds.
func (r *replica) see(s sighting, h Health, now time.Time) (changed, forget bool) {
	before := r.state
	if s.err != "" {
		r.lastError, r.lastErrorAt = s.err, now
	}
	switch s.kind {
	case seenOK:
		r.fails, r.broken = 0, 0
		r.passes++
		switch {
		case now.Before(r.loopUntil):
			r.state = StateUnready
		case r.state != StateDown || r.passes >= h.Passes:
			r.state = StateReady
		}
		if s.asked {
			r.models, r.modelsAt = s.models, now
		}
	case seenAlive, seenBusy:
		r.broken = 0
	case seenFailure:
		r.passes = 0
		if r.fails++; r.fails >= h.Fails {
			r.state = StateDown
		}
	case seenBroken:
		if r.broken++; r.broken >= h.Fails {
			r.state, r.passes = StateDown, 0
		}
	case seenRefused:
		r.state, r.passes = StateDown, 0
	case seenUnready, seenDraining, seenLoop:
		r.fails, r.passes = 0, 0
		r.state = StateUnready
		if s.kind == seenLoop {
			r.loopUntil = now.Add(loopWait)
		}
		if s.kind == seenDraining {
			r.state = StateDraining
		}
	}
	changed = r.state != before
	if changed {
		r.since = now
	}
	forget = changed && r.state == StateDown
	// A word from the epoch before may come late: it is none of a new one.
	if s.epoch != "" && s.epoch != r.pastEpoch && s.epoch != r.epoch {
		known := r.copy != nil && r.copy.epoch == s.epoch // the events were faster
		forget = forget || (r.epoch != "" && !known)
		r.pastEpoch, r.epoch = r.epoch, s.epoch
	}
	return changed, forget
}
