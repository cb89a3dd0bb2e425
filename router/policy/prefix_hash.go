package policy

// PrefixHash sends a prefix to replica hash mod N, where N is the number of ready
// replicas. It is the textbook's sticky routing with the textbook's two faults, kept to
// be measured: a popular prefix makes a hot spot, and when N changes nearly every prefix
// moves.
type PrefixHash struct{ depth int }

// NewPrefixHash returns a PrefixHash over the first depth blocks. Requests that share
// fewer blocks than that are told apart; requests that differ only later are not.
func NewPrefixHash(depth int) *PrefixHash { return &PrefixHash{depth: depth} }

// Name implements Policy.
func (*PrefixHash) Name() string { return "prefix_hash" }

// Choose implements Policy.
func (p *PrefixHash) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	key, ok := r.key(p.depth)
	if !ok {
		return decide(candidates, leastLoaded(candidates, r.fallbackKey()), ReasonNoPrefix), nil
	}
	return decide(candidates, int(uint64(key)%uint64(len(candidates))), ReasonHash), nil
}
