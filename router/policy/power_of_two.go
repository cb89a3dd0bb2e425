package policy

// PowerOfTwo draws two replicas and takes the less loaded one: nearly the balance of
// looking at all of them, without their all being looked at (Mitzenmacher, "The Power of
// Two Choices in Randomized Load Balancing", 2001). It does not look at prefixes.
type PowerOfTwo struct{ seed uint64 }

// NewPowerOfTwo returns a PowerOfTwo that draws with that seed.
func NewPowerOfTwo(seed uint64) *PowerOfTwo { return &PowerOfTwo{seed: seed} }

// Name implements Policy.
func (*PowerOfTwo) Name() string { return "power_of_two" }

// Choose implements Policy.
func (p *PowerOfTwo) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	n := uint64(len(candidates))
	draw := mix(mix(p.seed) ^ r.Seq)
	first := draw % n
	chosen := first
	if n > 1 {
		second := mix(draw) % (n - 1)
		if second >= first { // two different ones, all pairs alike
			second++
		}
		if candidates[second].Load.less(candidates[first].Load) {
			chosen = second
		}
	}
	return decide(candidates, int(chosen), ReasonTwoChoices), nil
}
