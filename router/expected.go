package router

import (
	"time"

	"tailor/router/policy"
)

// storeGrace is how long after the first byte of an answer the replica's word that it has
// stored the prompt may take.
const storeGrace = 2 * time.Second

// expectations are the blocks that a followed replica does not hold yet but will, since a
// request with them is on its way: they count as cached until the replica says that it has
// stored them, until every request that had them has failed, or until an answer has begun
// and the grace is over.
//
//   - An expectation that was fulfilled is out of the table; bookings that still have it
//     change nothing any more.
//   - Not safe for concurrent use: the registry's lock covers it.
type expectations struct {
	blocks  map[policy.Hash]*expectation
	overdue []*expectation // answered and no longer in flight, the first to run out first
}

type expectation struct {
	hash    policy.Hash
	pending int       // requests in flight with it
	until   time.Time // zero until an answer has begun
	settled bool      // fulfilled, or given up
}

func newExpectations() *expectations {
	return &expectations{blocks: map[policy.Hash]*expectation{}}
}

// begin expects the blocks of a request that goes out; the caller gives the result back
// to answered and end.
func (x *expectations) begin(blocks []policy.Hash, now time.Time) []*expectation {
	x.trim(now)
	booked := make([]*expectation, len(blocks))
	fresh := make([]expectation, len(blocks))
	for i, h := range blocks {
		e := x.blocks[h]
		if e == nil {
			e = &fresh[i]
			e.hash = h
			x.blocks[h] = e
		}
		e.pending++
		booked[i] = e
	}
	return booked
}

// answered says that the replica has had the whole prompt.
func (x *expectations) answered(booked []*expectation, now time.Time) {
	for _, e := range booked {
		if e.until.IsZero() {
			e.until = now.Add(storeGrace)
		}
	}
}

// end says that the request is over.
func (x *expectations) end(booked []*expectation, now time.Time) {
	for _, e := range booked {
		if e.pending--; e.pending > 0 || e.settled {
			continue
		}
		if e.until.IsZero() {
			x.settle(e)
		} else {
			x.overdue = append(x.overdue, e)
		}
	}
	x.trim(now)
}

// stored says that the replica holds the block now.
func (x *expectations) stored(h policy.Hash) {
	if e := x.blocks[h]; e != nil {
		x.settle(e)
	}
}

func (x *expectations) settle(e *expectation) {
	e.settled = true
	if x.blocks[e.hash] == e {
		delete(x.blocks, e.hash)
	}
}

// extend is how many blocks of the chain are held or expected, given that the first held
// are held.
func (x *expectations) extend(chain []policy.Hash, held int, now time.Time) int {
	if len(x.blocks) == 0 {
		return held
	}
	for held < len(chain) {
		e := x.blocks[chain[held]]
		if e == nil || (!e.until.IsZero() && now.After(e.until)) {
			break
		}
		held++
	}
	return held
}

// trim forgets what was not stored in time.
func (x *expectations) trim(now time.Time) {
	n := 0
	for n < len(x.overdue) && (x.overdue[n].settled || now.After(x.overdue[n].until)) {
		if e := x.overdue[n]; !e.settled && e.pending == 0 {
			x.settle(e)
		}
		n++
	}
	x.overdue = x.overdue[n:]
}
