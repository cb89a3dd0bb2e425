package policy

// LeastLoaded takes the replica with the fewest tokens in flight, then the fewest
// requests. Among equals it draws by the request's number: the first of the list would
// get every request while all are idle.
type LeastLoaded struct{}

// NewLeastLoaded returns a LeastLoaded.
func NewLeastLoaded() *LeastLoaded { return &LeastLoaded{} }

// Name implements Policy.
func (*LeastLoaded) Name() string { return "least_loaded" }

// Choose implements Policy.
func (*LeastLoaded) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	return decide(candidates, leastLoaded(candidates, Hash(mix(r.Seq))), ReasonLeastLoaded), nil
}
