package policy

// RoundRobin takes the ready replicas in turn. The turn is the request's number: the
// policy keeps no counter of its own.
type RoundRobin struct{}

// NewRoundRobin returns a RoundRobin.
func NewRoundRobin() *RoundRobin { return &RoundRobin{} }

// Name implements Policy.
func (*RoundRobin) Name() string { return "round_robin" }

// Choose implements Policy.
func (*RoundRobin) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	return decide(candidates, int(r.Seq%uint64(len(candidates))), ReasonTurn), nil
}
