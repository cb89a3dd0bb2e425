package router

import (
	"net/url"
	"time"

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
	kind  sightingKind
	err   string // why, unless all is well
	epoch string // of the process and its cache; empty if not told
}

type sightingKind int

const (
	seenOK       sightingKind = iota // a health check passed
	seenAlive                        // a request was answered
	seenFailure                      // a health check failed: a timeout, an unexpected status
	seenBroken                       // a request failed: a broken connection, a 502
	seenRefused                      // nobody listens
	seenUnready                      // says that it cannot serve
	seenDraining                     // says that it is about to leave
)

// replica is one replica as the registry knows it.
//
//   - A refused connection puts it down at once, other failures only Fails in a row.
//     Checks and requests are counted apart: answers do not excuse a failing health check.
//   - It comes back from down after Passes good checks in a row: one might be luck. From
//     unready and draining, which it announced itself, it comes back with the first.
//   - While it is down, nothing is known of its cache: whoever comes back may be a new
//     process. A changed epoch says the same of one that was never seen down.
//   - Not safe for concurrent use: the registry's lock covers it.
type replica struct {
	id   string
	base *url.URL

	state       State
	since       time.Time
	fails       int // health checks failed in a row
	passes      int // health checks passed in a row
	broken      int // requests broken in a row, since the last good check
	lastError   string
	lastErrorAt time.Time
	epoch       string
	checking    bool // a health check is under way

	load   policy.Load
	served uint64 // answers begun
	index  *prefixIndex
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
		if r.state != StateDown || r.passes >= h.Passes {
			r.state = StateReady
		}
	case seenAlive:
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
	case seenUnready, seenDraining:
		r.fails, r.passes = 0, 0
		r.state = StateUnready
		if s.kind == seenDraining {
			r.state = StateDraining
		}
	}
	changed = r.state != before
	if changed {
		r.since = now
	}
	forget = changed && r.state == StateDown
	if s.epoch != "" {
		forget = forget || (r.epoch != "" && r.epoch != s.epoch)
		r.epoch = s.epoch
	}
	return changed, forget
}
