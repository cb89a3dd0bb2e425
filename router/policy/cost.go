package policy

import "math"

// Cost is Dynamo's rule: the replica on which the request costs least, in blocks,
//
//	max(0, prefill - credit*cached) + decode + w*requests
//
// where prefill are the blocks to compute there, those of this prompt and those in flight;
// cached are this prompt's blocks that are there already; decode are the blocks that the
// requests in flight keep, with this one; requests are the requests in flight. Affinity
// and load so trade against each other with no threshold between them.
//
// At a temperature above 0 it draws, with the softmax of the negative costs scaled to
// 0..1: near equals then share.
type Cost struct {
	credit, requests float64
	temperature      float64
	seed             uint64
}

// NewCost returns a Cost. It panics if an option is out of its range.
func NewCost(o Options) *Cost {
	if err := o.validate(); err != nil {
		panic(err)
	}
	return &Cost{credit: o.CostCredit, requests: o.CostRequests, temperature: o.Temperature, seed: o.Seed}
}

// Name implements Policy.
func (*Cost) Name() string { return "cost" }

// Choose implements Policy.
func (p *Cost) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	key, ok := r.key(defaultDepth)
	if !ok {
		key = r.fallbackKey()
	}
	if p.temperature > 0 {
		return decide(candidates, p.draw(r, candidates), ReasonCost), nil
	}
	return decide(candidates, best(candidates, func(a, b Candidate) int {
		ca, cb := p.cost(r, a), p.cost(r, b)
		switch {
		case ca < cb:
			return 1
		case ca > cb:
			return -1
		case a.Held != b.Held: // nobody busy and nothing cached: prefixes must not pile up
			return b.Held - a.Held
		}
		return byRendezvous(key, a, b)
	}), ReasonCost), nil
}

func (p *Cost) cost(r Request, c Candidate) float64 {
	block := float64(max(1, r.BlockTokens))
	prefill := math.Ceil(float64(c.Load.Tokens+r.Tokens) / block)
	cached := math.Floor(float64(c.Cached) / block)
	decode := math.Ceil(float64(c.Active+r.Tokens) / block)
	return max(0, prefill-p.credit*cached) + decode + p.requests*float64(c.Load.Requests)
}

// draw takes candidate i with probability proportional to exp(-scaled cost / temperature).
func (p *Cost) draw(r Request, candidates []Candidate) int {
	costs := make([]float64, len(candidates))
	low, high := math.Inf(1), math.Inf(-1)
	for i, c := range candidates {
		costs[i] = p.cost(r, c)
		low, high = min(low, costs[i]), max(high, costs[i])
	}
	sum := 0.0
	for i, c := range costs {
		scaled := 0.0
		if high > low {
			scaled = (c - low) / (high - low)
		}
		costs[i] = math.Exp(-scaled / p.temperature)
		sum += costs[i]
	}
	at := sum * float64(mix(mix(p.seed)^r.Seq)>>11) / (1 << 53)
	for i, w := range costs {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(costs) - 1
}
