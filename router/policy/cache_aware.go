package policy

// CacheAware is SGLang's rule. While the loads are balanced, a prompt of which more than
// a threshold is cached goes to the replica that has the most of it, any other to the
// least loaded. Once the busiest replica exceeds the idlest both by an absolute number of
// requests and by a factor, affinity does not count at all until that is over: which
// gives the reuse away in exactly the moments in which computing is dearest.
//
// Other than the original, dead replicas are not in the comparison, and what is equal is
// spread.
type CacheAware struct {
	threshold float64
	abs       int
	rel       float64
}

// NewCacheAware returns a CacheAware. It panics if an option is out of its range.
func NewCacheAware(o Options) *CacheAware {
	if err := o.validate(); err != nil {
		panic(err)
	}
	return &CacheAware{threshold: o.CacheThreshold, abs: o.BalanceAbs, rel: o.BalanceRel}
}

// Name implements Policy.
func (*CacheAware) Name() string { return "cache_aware" }

// Choose implements Policy.
func (p *CacheAware) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	key, ok := r.key(defaultDepth)
	if !ok {
		key = r.fallbackKey()
	}
	least := best(candidates, func(a, b Candidate) int {
		switch {
		case a.Load.Requests != b.Load.Requests:
			return b.Load.Requests - a.Load.Requests
		case a.Held != b.Held:
			return b.Held - a.Held
		}
		return byRendezvous(key, a, b)
	})
	low := candidates[least].Load.Requests
	high, longest := low, least
	for i, c := range candidates {
		high = max(high, c.Load.Requests)
		switch top := candidates[longest]; {
		case c.Cached > top.Cached:
			longest = i
		case c.Cached == top.Cached && c.Load.Requests < top.Load.Requests:
			longest = i
		}
	}
	switch {
	case high-low > p.abs && float64(high) > p.rel*float64(low):
		return decide(candidates, least, ReasonBalance), nil
	case candidates[longest].Cached > 0 && float64(candidates[longest].Cached) > p.threshold*float64(r.Tokens):
		return decide(candidates, longest, ReasonLongestPrefix), nil
	case !ok:
		return decide(candidates, least, ReasonNoPrefix), nil
	}
	return decide(candidates, least, ReasonCold), nil
}
