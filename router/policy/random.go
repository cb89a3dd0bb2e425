package policy

// Random draws a replica. The draw is a function of the seed and the request's number, so
// a run can be repeated.
type Random struct{ seed uint64 }

// NewRandom returns a Random with that seed.
func NewRandom(seed uint64) *Random { return &Random{seed: seed} }

// Name implements Policy.
func (*Random) Name() string { return "random" }

// Choose implements Policy.
func (p *Random) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	draw := mix(mix(p.seed) ^ r.Seq)
	return decide(candidates, int(draw%uint64(len(candidates))), ReasonRandom), nil
}
