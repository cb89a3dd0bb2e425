package policy

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// ConsistentHash places replicas and keys on a ring; a key belongs to the next replica
// clockwise (Karger et al., "Consistent Hashing and Random Trees", 1997). When a replica
// leaves, its own keys move on and no others. Loads are bounded (Mirrokni, Thorup and
// Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016): a key whose replica is
// full walks on to the next that is not.
//
// A replica is full when one more request would lift it above both
//
//	ceil(ratio * (total+1)/n)   and   ceil((total+1)/n) + margin
//
// with total the requests in flight on the n ready replicas. The ratio alone, as in the
// paper, turns requests away at a mean of one or two in flight, where a single request
// more is 50 or 100 %: hence the margin.
//
// A fixed depth sees one key where all requests share their first blocks, and none twice
// where it reaches into what differs in every request. So by default the depth is the one
// at which the traffic's keys spread and still come again ([Request.Depth]).
type ConsistentHash struct {
	depth     int
	nodes     int // points per replica
	ratio     float64
	margin    int
	bySession bool

	// The ring of the last set of replicas: a memo of a pure function, so a race costs a
	// ring built twice.
	memo atomic.Pointer[ring]
}

// NewConsistentHash returns a ConsistentHash. It panics if an option is out of its range.
func NewConsistentHash(o Options) *ConsistentHash {
	if err := o.validate(); err != nil {
		panic(err)
	}
	return &ConsistentHash{depth: o.Depth, nodes: o.VirtualNodes, ratio: o.Ratio, margin: o.MarginRequests, bySession: o.BySession}
}

// Name implements Policy.
func (*ConsistentHash) Name() string { return "consistent_hash" }

// Choose implements Policy.
func (p *ConsistentHash) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	key, ok := r.key(r.observedDepth(p.depth))
	if p.bySession && r.Session != "" {
		key, ok = sessionKey(r.Session), true
	}
	if !ok {
		return decide(candidates, leastLoaded(candidates, r.fallbackKey()), ReasonNoPrefix), nil
	}

	total := 0
	for _, c := range candidates {
		total += c.Load.Requests
	}
	mean := float64(total+1) / float64(len(candidates))
	full := max(int(math.Ceil(p.ratio*mean)), int(math.Ceil(mean))+p.margin)

	// The ring holds the replicas that are not ready too: one that comes back finds its
	// keys where they were, and nobody else's move in the meantime.
	owner, chosen := "", -1
	p.ring(replicas).walk(key, func(i int) bool {
		if !replicas[i].Ready {
			return false
		}
		if owner == "" {
			owner = replicas[i].ID
		}
		if replicas[i].Load.Requests+1 > full {
			return false
		}
		chosen = find(candidates, replicas[i].ID)
		return true
	})
	if chosen < 0 {
		panic("policy: every replica is above the mean of all")
	}
	d := decide(candidates, chosen, ReasonHash)
	if d.Replica != owner {
		d.Reason, d.SpilledFrom = ReasonSpill, owner
	}
	return d, nil
}

// ring returns the ring of the given replicas, ready or not.
func (p *ConsistentHash) ring(replicas []Replica) *ring {
	if g := p.memo.Load(); g != nil && g.of(replicas) {
		return g
	}
	g := newRing(replicas, p.nodes)
	p.memo.Store(g)
	return g
}

type point struct {
	at      uint64
	replica int
}

// ring is immutable.
type ring struct {
	ids    []string
	points []point // ascending
}

func newRing(replicas []Replica, nodes int) *ring {
	g := &ring{points: make([]point, 0, nodes*len(replicas))}
	for i, r := range replicas {
		g.ids = append(g.ids, r.ID)
		h := xxhash.Sum64String(r.ID)
		for range nodes {
			h = mix(h)
			g.points = append(g.points, point{at: h, replica: i})
		}
	}
	slices.SortFunc(g.points, func(a, b point) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return cmp.Compare(a.replica, b.replica)
	})
	return g
}

// of says whether g is the ring of these replicas.
func (g *ring) of(replicas []Replica) bool {
	return slices.EqualFunc(g.ids, replicas, func(id string, r Replica) bool { return id == r.ID })
}

// walk calls visit with the replicas from the key's point on clockwise, each of them at
// least once, until it returns true or the ring has been walked round.
func (g *ring) walk(key Hash, visit func(replica int) bool) {
	at := mix(uint64(key))
	start, _ := slices.BinarySearchFunc(g.points, at, func(p point, at uint64) int { return cmp.Compare(p.at, at) })
	for i := range g.points {
		if visit(g.points[(start+i)%len(g.points)].replica) {
			return
		}
	}
}
