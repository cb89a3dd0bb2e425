package router

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"tailor/router/policy"
)

// errReplicaDown is why an attempt that waits for its answer is given up.
var errReplicaDown = errors.New("router: the replica is down")

// booking is a request's place on a replica.
//
//   - It is ended exactly once; then load and index are as if the request had not been
//     there, but for the blocks it has had computed.
//   - It keeps the index and the expectations it was entered in. If the replica was
//     forgotten in the meantime, its end changes ones that nobody looks at.
type booking struct {
	registry *registry
	replica  *replica
	id       string
	base     *url.URL
	tokens   int // of the prompt, without those predicted to be cached
	active   int // of the prompt

	index    *prefixIndex
	indexed  [][]policy.Hash
	expects  *expectations
	expected []*expectation

	cancel  context.CancelCauseFunc // of the attempt, while it waits for its answer's head
	allowed func(error)             // tells the breaker how it went
	fault   error                   // what to tell it
	ended   bool
}

// book enters a request on a replica.
func (g *registry) book(r *replica, q *prompt, cached int, now time.Time) *booking {
	allowed, err := r.breaker.Allow()
	if err != nil { // it is not heeded
		allowed = func(error) {}
	}
	b := &booking{
		registry: g, replica: r, id: r.id, base: r.base, tokens: q.tokens - cached, active: q.tokens,
		index: r.index, expects: r.expected, allowed: allowed, fault: errUnknown,
	}
	r.load.Requests++
	r.load.Tokens += b.tokens
	r.active += b.active
	r.recent++
	for _, chain := range q.chains {
		if b.expects == nil || chain.unit != policy.UnitTokens {
			b.index.begin(chain.blocks, now)
			b.indexed = append(b.indexed, chain.blocks)
			continue
		}
		if len(q.chains) > 1 { // else the lengths are still those of taking stock
			g.blocks.match(chain.blocks, &g.lengths)
		}
		b.expected = append(b.expected, b.expects.begin(chain.blocks[g.lengths[r.copy.number]:], now)...)
	}
	return b
}

// await says whom to tell if the replica goes down before its answer begins.
func (b *booking) await(cancel context.CancelCauseFunc) {
	b.registry.mu.Lock()
	defer b.registry.mu.Unlock()
	b.cancel = cancel
	b.replica.waiting[b] = struct{}{}
}

// arrived says that the answer's head is here, or will never be.
func (b *booking) arrived() {
	b.registry.mu.Lock()
	defer b.registry.mu.Unlock()
	delete(b.replica.waiting, b)
}

// answered says that the replica has had the whole prompt, which the first byte of an
// answer shows.
func (b *booking) answered() {
	g := b.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.expects != nil {
		b.expects.answered(b.expected, g.clock.Now())
	}
}

// end gives the place back. computed says that an answer had begun.
func (b *booking) end(computed bool) {
	g := b.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.ended {
		panic(fmt.Sprintf("router: a booking on replica %q of %d tokens ended twice", b.id, b.tokens))
	}
	b.ended = true
	b.replica.load.Requests--
	b.replica.load.Tokens -= b.tokens
	b.replica.active -= b.active
	if computed {
		b.replica.served++
	}
	b.allowed(b.fault)
	now := g.clock.Now()
	for _, chain := range b.indexed {
		b.index.end(chain, computed, now)
	}
	if b.expects != nil {
		if computed {
			b.expects.answered(b.expected, now)
		}
		b.expects.end(b.expected, now)
	}
}

// saw takes in what has been seen of the booking's replica.
func (b *booking) saw(s sighting) {
	switch {
	case s.fault || s.kind == seenBroken || s.kind == seenRefused:
		b.fault = errFault
	case s.kind == seenAlive:
		b.fault = nil
	}
	b.registry.saw(b.replica, s)
}
