package router

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"tailor/router/policy"
)

// registry knows the replicas, what they are doing and what they are expected to hold.
//
//   - replicas is in ascending order of ID.
//   - Choosing and booking are one critical section: no two requests see the same load
//     and both go to the least loaded replica.
//   - Every booking is ended exactly once; then load and index are as if the request had
//     not been there, but for the blocks it has had computed.
//   - A booking keeps the index it was entered in. If the replica was forgotten in the
//     meantime, its end changes an index nobody looks at.
//   - Safe for concurrent use.
type registry struct {
	blockTokens int
	indexBlocks int
	indexAge    time.Duration
	health      Health
	clock       Clock
	log         *slog.Logger

	mu       sync.Mutex
	replicas []*replica
	news     chan struct{} // closed, and replaced, when a replica's state changes
}

// wish is what a request asks of the choice.
type wish struct {
	prompt *prompt
	policy policy.Policy
	pin    string   // the one replica it will have, or empty
	tried  []string // replicas that have failed it
	seq    uint64   // the request's number
}

// booking is a request's place on a replica.
type booking struct {
	registry *registry
	replica  *replica
	id       string
	base     *url.URL
	index    *prefixIndex
	chains   [][]policy.Hash
	tokens   int
	ended    bool
}

// add takes a replica in. It is unready until a check has passed.
func (g *registry) add(r Replica) error {
	base, err := r.parse()
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i, found := g.search(r.ID)
	if found {
		return fmt.Errorf("%w: ID %q is taken", ErrReplica, r.ID)
	}
	g.replicas = slices.Insert(g.replicas, i, &replica{
		id: r.ID, base: base, state: StateUnready, since: g.clock.Now(), index: g.newIndex(),
	})
	return nil
}

// remove lets a replica go. Requests it is serving run to their end.
func (g *registry) remove(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, found := g.search(id)
	if !found {
		return fmt.Errorf("%w %q", ErrUnknownReplica, id)
	}
	g.replicas = slices.Delete(g.replicas, i, i+1)
	return nil
}

func (g *registry) search(id string) (int, bool) {
	return slices.BinarySearchFunc(g.replicas, id, func(r *replica, id string) int { return strings.Compare(r.id, id) })
}

func (g *registry) newIndex() *prefixIndex { return newPrefixIndex(g.indexBlocks, g.indexAge) }

// choose picks a replica and books the request on it. Its errors wrap
// policy.ErrNoReplica, ErrUnknownReplica or ErrNotReady.
func (g *registry) choose(w wish) (*booking, policy.Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	states := make([]policy.Replica, len(g.replicas))
	for i, r := range g.replicas {
		states[i] = policy.Replica{
			ID:     r.id,
			Ready:  r.state == StateReady && !slices.Contains(w.tried, r.id),
			Cached: g.predict(r, w.prompt, now),
			Held:   len(r.index.blocks),
			Load:   r.load,
		}
	}
	var (
		d   policy.Decision
		err error
	)
	if w.pin == "" {
		d, err = w.policy.Choose(w.prompt.request(g.blockTokens, w.seq), states)
	} else {
		d, err = g.pinned(w.pin, states)
	}
	if err != nil {
		return nil, d, err
	}
	i, _ := g.search(d.Replica)
	r := g.replicas[i]
	b := &booking{
		registry: g, replica: r, id: r.id, base: r.base, index: r.index,
		chains: w.prompt.chains, tokens: w.prompt.tokens - d.Cached,
	}
	r.load.Requests++
	r.load.Tokens += b.tokens
	for _, chain := range b.chains {
		b.index.begin(chain, now)
	}
	return b, d, nil
}

// predict is how many of the prompt's tokens a replica need not compute. The last token
// of a prompt is always computed: it gives the first answer token.
func (g *registry) predict(r *replica, q *prompt, now time.Time) int {
	blocks := 0
	for _, chain := range q.chains {
		blocks += r.index.match(chain, now)
	}
	return max(0, min(blocks*g.blockTokens, q.tokens-len(q.chains)))
}

const reasonPinned policy.Reason = "pinned"

// pinned is the choice that the client has made.
func (g *registry) pinned(id string, states []policy.Replica) (policy.Decision, error) {
	i, found := g.search(id)
	if !found {
		return policy.Decision{}, fmt.Errorf("%w %q", ErrUnknownReplica, id)
	}
	s := states[i]
	if !s.Ready {
		return policy.Decision{}, fmt.Errorf("%w: %s is %s", ErrNotReady, id, g.replicas[i].state)
	}
	return policy.Decision{
		Replica: id, Reason: reasonPinned, Cached: s.Cached,
		Candidates: []policy.Candidate{{ID: id, Cached: s.Cached, Held: s.Held, Load: s.Load}},
	}, nil
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
	if computed {
		b.replica.served++
	}
	now := g.clock.Now()
	for _, chain := range b.chains {
		b.index.end(chain, computed, now)
	}
}

// saw takes in what has been seen of the booking's replica. One that has been removed is
// of no interest any more.
func (b *booking) saw(s sighting) { b.registry.saw(b.replica, s) }

func (g *registry) saw(r *replica, s sighting) {
	g.mu.Lock()
	before := r.state
	changed, forget := r.see(s, g.health, g.clock.Now())
	if forget {
		r.index = g.newIndex()
	}
	state := r.state
	if changed {
		close(g.news)
		g.news = make(chan struct{})
	}
	g.mu.Unlock()
	if changed {
		g.log.Info("replica changed state", "replica", r.id, "from", before, "to", state, "error", s.err)
	}
}

// awaitReady returns when all replicas are ready at one time, or with ctx's error.
func (g *registry) awaitReady(ctx context.Context) error {
	for {
		g.mu.Lock()
		news := g.news
		waiting := slices.ContainsFunc(g.replicas, func(r *replica) bool { return r.state != StateReady })
		g.mu.Unlock()
		if !waiting {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// ReplicaStatus is a replica's state as the router reports it.
type ReplicaStatus struct {
	ID             string     `json:"id"`
	URL            string     `json:"url"`
	State          State      `json:"state"`
	Since          time.Time  `json:"since"`
	InFlight       int        `json:"in_flight"`
	InFlightTokens int        `json:"in_flight_tokens"` // of prompts, without those expected to be cached
	Served         uint64     `json:"served"`
	IndexBlocks    int        `json:"index_blocks"`
	FailedChecks   int        `json:"failed_checks"` // in a row
	LastError      string     `json:"last_error"`
	LastErrorAt    *time.Time `json:"last_error_at"`
}

func (g *registry) status() []ReplicaStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]ReplicaStatus, len(g.replicas))
	for i, r := range g.replicas {
		out[i] = ReplicaStatus{
			ID: r.id, URL: r.base.Redacted(), State: r.state, Since: r.since,
			InFlight: r.load.Requests, InFlightTokens: r.load.Tokens, Served: r.served,
			IndexBlocks: len(r.index.blocks), FailedChecks: r.fails, LastError: r.lastError,
		}
		if !r.lastErrorAt.IsZero() {
			out[i].LastErrorAt = &r.lastErrorAt
		}
	}
	return out
}
