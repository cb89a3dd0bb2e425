package router

import (
	"context"
	"time"

	"tailor/router/policy"
)

// shadows let other policies choose for the same requests, without effect: each has
// loads, an index and a number of its own, as if the requests had gone where it sent them.
//
//   - One goroutine runs them. A request only leaves word that it has begun and ended; what
//     does not fit into the queue is dropped and counted.
//   - What a policy would find cached is guessed from its own choices with the same bounds
//     as the router's guess; how long a request takes is what it took in reality.
type shadows struct {
	registry *registry
	metrics  *metrics
	queue    chan shadowEvent
	list     []*shadow
	traffic  *traffic
}

type shadowEvent struct {
	request uint64  // its number
	prompt  *prompt // nil: the request has ended
	chosen  string  // by the policy in charge
	served  bool
}

// shadow is one policy and where it stands.
type shadow struct {
	policy   policy.Policy
	replicas map[string]*shadowReplica
	flying   map[uint64]shadowBooking
}

type shadowReplica struct {
	forgets uint64 // how often the real one was forgotten
	index   *prefixIndex
	load    policy.Load
	active  int
	recent  int
}

type shadowBooking struct {
	replica *shadowReplica
	index   *prefixIndex
	prompt  *prompt
	tokens  int
}

const shadowQueue = 4096

func newShadows(g *registry, m *metrics, policies []policy.Policy) *shadows {
	s := &shadows{registry: g, metrics: m, queue: make(chan shadowEvent, shadowQueue), traffic: newTraffic()}
	for _, p := range policies {
		s.list = append(s.list, &shadow{
			policy: p, replicas: map[string]*shadowReplica{}, flying: map[uint64]shadowBooking{},
		})
	}
	return s
}

// tell leaves word. It never waits.
func (s *shadows) tell(e shadowEvent) {
	if len(s.list) == 0 {
		return
	}
	select {
	case s.queue <- e:
	default:
		s.metrics.shadowDropped.Inc()
	}
}

// run takes events in until ctx ends.
func (s *shadows) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.queue:
			s.take(e)
		}
	}
}

func (s *shadows) take(e shadowEvent) {
	now := s.registry.clock.Now()
	if e.prompt == nil {
		for _, sh := range s.list {
			sh.end(e, now)
		}
		return
	}
	fleet := s.registry.fleet(e.prompt.model)
	halve := false
	q := e.prompt.request(s.registry.blockTokens, e.request)
	if len(q.Blocks) > 0 {
		halve = s.traffic.add(q.Blocks, len(fleet))
	}
	q.Depth = s.traffic.depth
	for _, sh := range s.list {
		d, err := sh.begin(e, q, fleet, s, now)
		if err != nil {
			continue // nobody is ready
		}
		name := sh.policy.Name()
		s.metrics.shadowRequests.WithLabelValues(name, d.Replica).Inc()
		s.metrics.shadowPrompt.WithLabelValues(name).Add(float64(e.prompt.tokens))
		s.metrics.shadowCached.WithLabelValues(name).Add(float64(d.Cached))
		if d.Replica == e.chosen {
			s.metrics.shadowAgreed.WithLabelValues(name).Inc()
		}
		if halve {
			for _, r := range sh.replicas {
				r.recent /= 2
			}
		}
	}
}

// fleetMember is what shadows need to know of a real replica.
type fleetMember struct {
	id      string
	ready   bool
	forgets uint64
}

// fleet is who there is for a model.
func (g *registry) fleet(model string) []fleetMember {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]fleetMember, len(g.replicas))
	for i, r := range g.replicas {
		out[i] = fleetMember{id: r.id, ready: r.ready() && r.offers(model), forgets: r.forgets}
	}
	return out
}

func (sh *shadow) begin(e shadowEvent, q policy.Request, fleet []fleetMember, s *shadows, now time.Time) (policy.Decision, error) {
	states := make([]policy.Replica, len(fleet))
	longest := 0
	for i, m := range fleet {
		r := sh.replicas[m.id]
		if r == nil {
			r = &shadowReplica{forgets: m.forgets, index: s.registry.newIndex()}
			sh.replicas[m.id] = r
		}
		if r.forgets != m.forgets {
			r.forgets, r.index = m.forgets, s.registry.newIndex()
		}
		cached := 0
		for c, chain := range e.prompt.chains {
			n := r.index.match(chain.blocks, now)
			cached += n
			if c == 0 && m.ready {
				longest = max(longest, n)
			}
		}
		states[i] = policy.Replica{
			ID: m.id, Ready: m.ready, Held: len(r.index.blocks), Active: r.active, Recent: r.recent, Load: r.load,
			Cached: max(0, min(cached*s.registry.blockTokens, e.prompt.tokens-len(e.prompt.chains))),
		}
	}
	q.Heat = s.traffic.share(q.Blocks, min(longest, len(q.Blocks)))
	d, err := sh.policy.Choose(q, states)
	if err != nil {
		return d, err
	}
	r := sh.replicas[d.Replica]
	b := shadowBooking{replica: r, index: r.index, prompt: e.prompt, tokens: e.prompt.tokens - d.Cached}
	r.load.Requests++
	r.load.Tokens += b.tokens
	r.active += e.prompt.tokens
	r.recent++
	for _, chain := range e.prompt.chains {
		b.index.begin(chain.blocks, now)
	}
	sh.flying[e.request] = b
	return d, nil
}

func (sh *shadow) end(e shadowEvent, now time.Time) {
	b, ok := sh.flying[e.request]
	if !ok {
		return
	}
	delete(sh.flying, e.request)
	b.replica.load.Requests--
	b.replica.load.Tokens -= b.tokens
	b.replica.active -= b.prompt.tokens
	for _, chain := range b.prompt.chains {
		b.index.end(chain.blocks, e.served, now)
	}
}
