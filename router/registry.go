package router

import (
	"context"
	"fmt"
	"log/slog"
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
//   - What a replica holds is read from its own copy in the block index where it is
//     followed, and from a guess made of the requests sent to it otherwise. Prompts that
//     are not known in tokens are always a guess.
//   - Safe for concurrent use.
type registry struct {
	router      string // its name
	blockTokens int
	indexBlocks int
	indexAge    time.Duration
	health      Health
	breaker     Breaker
	clock       Clock
	log         *slog.Logger

	mu       sync.Mutex
	replicas []*replica
	news     chan struct{} // closed, and replaced, when replicas change, come, go or are forgotten
	blocks   *blockIndex
	retired  []*cacheCopy // to be cleared
	traffic  *traffic

	// Scratch of choose.
	states  []policy.Replica
	lengths [maxFollowed]int
	matched []int // blocks of the first chain, by position of the replica
}

// wish is what a request asks of the choice.
type wish struct {
	prompt *prompt
	policy policy.Policy
	pin    string   // the one replica it will have, or empty
	tried  []string // replicas that have failed it
	seq    uint64   // the request's number
}

// add takes a replica in. It is unready until a check has passed. source is who named it.
func (g *registry) add(r Replica, source string) error {
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
	g.replicas = slices.Insert(g.replicas, i, g.newReplica(r.ID, base, source))
	g.announce()
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
	g.removeAt(i)
	return nil
}

func (g *registry) removeAt(i int) {
	r := g.replicas[i]
	r.removed = true
	g.forget(r)
	g.replicas = slices.Delete(g.replicas, i, i+1)
	g.announce()
}

// hold keeps new requests from a replica, or lets them come again.
func (g *registry) hold(id string, held bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, found := g.search(id)
	if !found {
		return fmt.Errorf("%w %q", ErrUnknownReplica, id)
	}
	g.replicas[i].held = held
	return nil
}

func (g *registry) search(id string) (int, bool) {
	return slices.BinarySearchFunc(g.replicas, id, func(r *replica, id string) int { return strings.Compare(r.id, id) })
}

// announce wakes those that wait for news.
func (g *registry) announce() {
	close(g.news)
	g.news = make(chan struct{})
}

func (g *registry) newIndex() *prefixIndex { return newPrefixIndex(g.indexBlocks, g.indexAge) }

// asked are the replicas that a request may go to: all, or the one that it will have; the
// lock is held.
func (g *registry) asked(pin string) []*replica {
	if pin == "" {
		return g.replicas
	}
	i, found := g.search(pin)
	if !found {
		return nil
	}
	return g.replicas[i : i+1]
}

// choose picks a replica and books the request on it. Its errors wrap
// policy.ErrNoReplica, ErrUnknownReplica or ErrNotReady, or are an *unknownModelError.
func (g *registry) choose(w wish) (*booking, policy.Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if err := g.mustOffer(w.prompt.model, g.asked(w.pin)); err != nil {
		return nil, policy.Decision{}, err
	}
	states := g.takeStock(w, now)
	q := w.prompt.request(g.blockTokens, w.seq)
	if len(q.Blocks) > 0 {
		longest := 0
		for i, s := range states {
			if s.Ready {
				longest = max(longest, g.matched[i])
			}
		}
		q.Heat, q.Depth = g.traffic.share(q.Blocks, longest), g.traffic.depth
	}
	var (
		d   policy.Decision
		err error
	)
	if w.pin == "" {
		d, err = w.policy.Choose(q, states)
	} else {
		d, err = g.pinned(w.pin, states)
	}
	if err != nil {
		return nil, d, err
	}
	i, _ := g.search(d.Replica)
	return g.book(g.replicas[i], w.prompt, d.Cached, now), d, nil
}

// count enters a request into the traffic that choices go by.
func (g *registry) count(q *prompt) {
	if len(q.chains) == 0 || len(q.chains[0].blocks) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.traffic.add(q.chains[0].blocks, len(g.replicas)) {
		for _, r := range g.replicas {
			r.recent /= 2
		}
	}
}

// takeStock is the state of all replicas as a policy sees them, valid until the lock is
// given back.
func (g *registry) takeStock(w wish, now time.Time) []policy.Replica {
	g.states, g.matched = g.states[:0], g.matched[:0]
	model := w.prompt.model
	heed := slices.ContainsFunc(g.replicas, func(r *replica) bool { return r.ready() && r.offers(model) })
	for _, r := range g.replicas {
		g.matched = append(g.matched, 0)
		g.states = append(g.states, policy.Replica{
			ID: r.id, Ready: r.serves() && r.offers(model) && (!heed || r.trusted()) && !slices.Contains(w.tried, r.id),
			Held: r.heldBlocks(), Active: r.active, Recent: r.recent, Load: r.load,
		})
	}
	for c, chain := range w.prompt.chains {
		if chain.unit == policy.UnitTokens && g.blocks.active != (holders{}) {
			g.blocks.match(chain.blocks, &g.lengths)
		}
		for i, r := range g.replicas {
			n := 0
			if r.copy != nil && chain.unit == policy.UnitTokens {
				n = r.expected.extend(chain.blocks, g.lengths[r.copy.number], now)
			} else {
				n = r.index.match(chain.blocks, now)
			}
			if c == 0 {
				g.matched[i] = n
			}
			g.states[i].Cached += n
		}
	}
	// The last token of a prompt is always computed: it gives the first answer token.
	most := w.prompt.tokens - len(w.prompt.chains)
	for i := range g.states {
		g.states[i].Cached = max(0, min(g.states[i].Cached*g.blockTokens, most))
	}
	return g.states
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
	d := policy.Decision{Replica: id, Reason: reasonPinned, Cached: s.Cached}
	for _, s := range states { // the others are what it might have had
		if s.Ready {
			d.Candidates = append(d.Candidates, policy.Candidate{
				ID: s.ID, Cached: s.Cached, Held: s.Held, Active: s.Active, Recent: s.Recent, Load: s.Load,
			})
		}
	}
	return d, nil
}

// saw takes in what has been seen of a replica. One that has been removed is of no
// interest any more.
func (g *registry) saw(r *replica, s sighting) {
	g.mu.Lock()
	before := r.state
	changed, forget := r.see(s, g.health, g.clock.Now())
	if forget {
		g.forget(r)
	}
	state := r.state
	var waiting []*booking
	if changed {
		if state == StateDown {
			waiting = r.takeWaiting()
		}
	}
	if changed || forget {
		g.announce()
	}
	g.mu.Unlock()
	for _, b := range waiting {
		b.cancel(errReplicaDown)
	}
	if changed {
		g.log.Info("replica changed state", "replica", r.id, "from", before, "to", state, "error", s.err)
	}
}

// forget drops all that is known of a replica's cache.
func (g *registry) forget(r *replica) {
	r.forgets++
	r.index = g.newIndex()
	g.retire(r)
}

// retire stops using a replica's copy at once; sweep clears it.
func (g *registry) retire(r *replica) {
	if r.copy == nil {
		return
	}
	g.blocks.retire(r.copy)
	g.retired = append(g.retired, r.copy)
	r.copy, r.expected = nil, nil
}

// sweepBlocks is how many blocks are cleared before others may have the lock.
const sweepBlocks = 512

// sweep clears what is left of retired copies.
func (g *registry) sweep() {
	for done := false; !done; {
		g.mu.Lock()
		if done = len(g.retired) == 0; !done && g.blocks.clear(g.retired[0], sweepBlocks) {
			g.retired = slices.Delete(g.retired, 0, 1)
		}
		g.mu.Unlock()
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
