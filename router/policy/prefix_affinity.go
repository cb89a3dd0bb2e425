package policy

// PrefixAffinity takes the replica with the longest predicted prefix, among those whose
// load is within a margin of the least loaded one's. Affinity so never makes a hot spot:
// a popular prefix spills to another replica, which then holds it too and shares the
// traffic from then on.
//
// A prefix that nobody holds goes to the least loaded replica, and among equals to the one
// that holds the fewest blocks: while requests come one at a time, load says nothing, and
// prefixes placed by chance alone pile up. What is still equal the rendezvous hash of the
// prefix decides, so that two routers that have seen nothing agree.
//
// A margin alone lets a popular prefix keep its few homes at the margin's edge while the
// others idle. So a prefix whose traffic ([Request.Heat]), shared among its homes, is too
// far above a replica's fair share gets another home as soon as all of them have more in
// flight than somebody else: it costs computing the prefix once. Among homes that are
// equally loaded the one that was sent the fewest requests lately is next.
//
// A prefix counts as held if it covers a minimum share of the prompt. Otherwise a short
// opening common to all prompts would, while loads are low, draw every conversation to
// the replica that saw the first one.
type PrefixAffinity struct {
	depth    int
	ratio    float64
	margin   Load
	minShare float64
}

// NewPrefixAffinity returns a PrefixAffinity. It panics if an option is out of its range.
func NewPrefixAffinity(o Options) *PrefixAffinity {
	if err := o.validate(); err != nil {
		panic(err)
	}
	return &PrefixAffinity{
		depth:    o.fixedDepth(),
		ratio:    o.Ratio,
		margin:   Load{Tokens: o.MarginTokens, Requests: o.MarginRequests},
		minShare: o.MinShare,
	}
}

// Name implements Policy.
func (*PrefixAffinity) Name() string { return "prefix_affinity" }

// Choose implements Policy.
func (p *PrefixAffinity) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	longest := 0
	for _, c := range candidates {
		longest = max(longest, c.Cached)
	}
	if !p.held(r, longest) {
		// One block beyond what is known anywhere: conversations that only share their
		// opening get different keys.
		depth := p.depth
		if r.BlockTokens > 0 {
			depth = max(depth, longest/r.BlockTokens+1)
		}
		if key, ok := r.key(depth); ok {
			return decide(candidates, emptiest(candidates, key), ReasonCold), nil
		}
		return decide(candidates, leastLoaded(candidates, r.fallbackKey()), ReasonNoPrefix), nil
	}

	key, ok := r.key(p.depth)
	if !ok {
		key = r.fallbackKey()
	}
	least := leastLoaded(candidates, key)
	chosen, preferred, homes := least, -1, 0
	for i, c := range candidates {
		if c.Cached == longest {
			homes++
		}
		if c.Cached == longest && (preferred < 0 || better(c, candidates[preferred], key)) {
			preferred = i
		}
		if p.held(r, c.Cached) && p.within(c.Load, candidates[least].Load) &&
			(!p.held(r, candidates[chosen].Cached) || better(c, candidates[chosen], key)) {
			chosen = i
		}
	}
	why := ReasonSpill
	if p.hot(r, homes, len(candidates)) && candidates[least].Load.Requests < candidates[preferred].Load.Requests {
		chosen, why = least, ReasonReplicate
	}
	if candidates[chosen].Cached == longest {
		return decide(candidates, chosen, ReasonLongestPrefix), nil
	}
	d := decide(candidates, chosen, why)
	d.SpilledFrom = candidates[preferred].ID
	return d, nil
}

// held says whether cached tokens are enough of the prompt to follow them.
func (p *PrefixAffinity) held(r Request, cached int) bool {
	return cached > 0 && float64(cached) >= p.minShare*float64(r.Tokens)
}

// hot says whether a prefix's homes get too much of the fair share of one of n replicas:
// half of what the ratio allows above it, since they get other requests as well.
func (p *PrefixAffinity) hot(r Request, homes, n int) bool {
	return homes < n && r.Heat*float64(n) > (1+p.ratio)/2*float64(homes)
}

// within says whether a load is close enough to the least one, in requests and in tokens.
func (p *PrefixAffinity) within(l, least Load) bool {
	return l.Requests <= allowance(least.Requests, p.margin.Requests, p.ratio) &&
		l.Tokens <= allowance(least.Tokens, p.margin.Tokens, p.ratio)
}

func allowance(least, margin int, ratio float64) int {
	return max(least+margin, int(ratio*float64(least)))
}

// better orders candidates: longer prefix, then lower load, then fewer requests lately,
// then the prefix's own order.
func better(a, b Candidate, key Hash) bool {
	switch {
	case a.Cached != b.Cached:
		return a.Cached > b.Cached
	case a.Load.less(b.Load):
		return true
	case b.Load.less(a.Load):
		return false
	case a.Recent != b.Recent:
		return a.Recent < b.Recent
	}
	return byRendezvous(key, a, b) > 0
}
