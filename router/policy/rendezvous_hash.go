package policy

// RendezvousHash gives every pair of prefix and replica a weight and takes the replica of
// the highest one (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit
// Rates", 1998). No ring, no state: when a replica leaves, its keys spread evenly over all
// others, and no other key moves. Loads are not looked at; consistent_hash bounds them.
type RendezvousHash struct{ depth int }

// NewRendezvousHash returns a RendezvousHash. It panics if an option is out of its range.
func NewRendezvousHash(o Options) *RendezvousHash {
	if err := o.validate(); err != nil {
		panic(err)
	}
	return &RendezvousHash{depth: o.Depth}
}

// Name implements Policy.
func (*RendezvousHash) Name() string { return "rendezvous_hash" }

// Choose implements Policy.
func (p *RendezvousHash) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	key, ok := r.key(r.observedDepth(p.depth))
	if !ok {
		return decide(candidates, leastLoaded(candidates, r.fallbackKey()), ReasonNoPrefix), nil
	}
	return decide(candidates, heaviest(candidates, key), ReasonHash), nil
}

// heaviest is the position of the candidate that comes first in the key's own order.
func heaviest(candidates []Candidate, key Hash) int {
	return best(candidates, func(a, b Candidate) int { return byRendezvous(key, a, b) })
}
