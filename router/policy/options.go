package policy

import (
	"fmt"
	"strings"
)

// Options are the parameters of all policies; each reads its own. Start from
// [DefaultOptions].
type Options struct {
	// Seed is that of the policies that draw: random, power_of_two, and cost at a
	// temperature.
	Seed uint64
	// Depth is how many blocks of the prefix make the key of the hash policies and of
	// prefix_affinity's tie break. 0 is automatic: consistent_hash and rendezvous_hash
	// follow [Request.Depth], the others take 4.
	Depth int
	// VirtualNodes is the number of points each replica has on consistent_hash's ring.
	VirtualNodes int
	// Ratio bounds loads: of consistent_hash against the mean, of prefix_affinity
	// against the least loaded replica. At least 1.
	Ratio float64
	// MarginRequests and MarginTokens are what a load may exceed that reference by even
	// where the ratio says less: a pure ratio misfires when few requests are in flight.
	MarginRequests int
	// MarginTokens is prefix_affinity's alone; consistent_hash counts requests.
	MarginTokens int
	// MinShare is the share of the prompt (0..1) that must be cached somewhere before
	// prefix_affinity calls the prefix known.
	MinShare float64
	// BySession makes consistent_hash use the session, where there is one, as the key.
	BySession bool
	// CacheThreshold, BalanceAbs and BalanceRel are cache_aware's: the share of the
	// prompt above which it follows the cache, and by how many requests and by what
	// factor the busiest replica must exceed the idlest before it only balances.
	CacheThreshold float64
	BalanceAbs     int
	BalanceRel     float64
	// CostCredit, CostRequests and Temperature are cost's: what a cached block is worth
	// in blocks to compute, what a request in flight costs in blocks, and how far from
	// the least cost it draws (0: never).
	CostCredit   float64
	CostRequests float64
	Temperature  float64
}

// DefaultOptions returns the values used where nothing else is asked for. Those of
// cache_aware are its original's on the command line.
func DefaultOptions() Options {
	return Options{
		VirtualNodes:   256,
		Ratio:          1.25,
		MarginRequests: 4,
		MarginTokens:   2048,
		MinShare:       0.1,
		CacheThreshold: 0.3,
		BalanceAbs:     64,
		BalanceRel:     1.5,
		CostCredit:     1,
		CostRequests:   1,
	}
}

func (o Options) validate() error {
	switch {
	case o.Depth < 0:
		return fmt.Errorf("%w: depth %d, want at least 1 block, or 0 for automatic", ErrOptions, o.Depth)
	case o.VirtualNodes < 1:
		return fmt.Errorf("%w: %d virtual nodes, want at least 1", ErrOptions, o.VirtualNodes)
	case !(o.Ratio >= 1):
		return fmt.Errorf("%w: ratio %v, want at least 1", ErrOptions, o.Ratio)
	case o.MarginRequests < 0:
		return fmt.Errorf("%w: margin of %d requests, want at least 0", ErrOptions, o.MarginRequests)
	case o.MarginTokens < 0:
		return fmt.Errorf("%w: margin of %d tokens, want at least 0", ErrOptions, o.MarginTokens)
	case !(o.MinShare >= 0 && o.MinShare <= 1):
		return fmt.Errorf("%w: minimum share %v, want 0 to 1", ErrOptions, o.MinShare)
	case !(o.CacheThreshold >= 0 && o.CacheThreshold <= 1):
		return fmt.Errorf("%w: cache threshold %v, want 0 to 1", ErrOptions, o.CacheThreshold)
	case o.BalanceAbs < 0:
		return fmt.Errorf("%w: balance threshold of %d requests, want at least 0", ErrOptions, o.BalanceAbs)
	case !(o.BalanceRel >= 1):
		return fmt.Errorf("%w: balance factor %v, want at least 1", ErrOptions, o.BalanceRel)
	case !(o.CostCredit >= 0):
		return fmt.Errorf("%w: credit %v for a cached block, want at least 0", ErrOptions, o.CostCredit)
	case !(o.CostRequests >= 0):
		return fmt.Errorf("%w: cost %v of a request in flight, want at least 0", ErrOptions, o.CostRequests)
	case !(o.Temperature >= 0):
		return fmt.Errorf("%w: temperature %v, want at least 0", ErrOptions, o.Temperature)
	}
	return nil
}

// defaultDepth is the depth of keys where none is asked for and none was observed.
const defaultDepth = 4

// fixedDepth is the depth of keys that must not move with the traffic.
func (o Options) fixedDepth() int {
	if o.Depth == 0 {
		return defaultDepth
	}
	return o.Depth
}

// observedDepth is depth, or where that is 0 what the traffic asks for.
func (r Request) observedDepth(depth int) int {
	switch {
	case depth > 0:
		return depth
	case r.Depth > 0:
		return r.Depth
	}
	return defaultDepth
}

// Default is the name of the policy used where none is asked for.
const Default = "prefix_affinity"

// Names returns the names of all policies, baselines first.
func Names() []string {
	return []string{
		"random", "round_robin", "least_loaded", "power_of_two", "session",
		"prefix_hash", "consistent_hash", "rendezvous_hash", "cache_aware", "cost", "prefix_affinity",
	}
}

// New returns the policy of that name; ErrUnknown or ErrOptions otherwise.
func New(name string, o Options) (Policy, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	switch name {
	case "random":
		return NewRandom(o.Seed), nil
	case "round_robin":
		return NewRoundRobin(), nil
	case "least_loaded":
		return NewLeastLoaded(), nil
	case "power_of_two":
		return NewPowerOfTwo(o.Seed), nil
	case "session":
		return NewSession(), nil
	case "prefix_hash":
		return NewPrefixHash(o.fixedDepth()), nil
	case "consistent_hash":
		return NewConsistentHash(o), nil
	case "rendezvous_hash":
		return NewRendezvousHash(o), nil
	case "cache_aware":
		return NewCacheAware(o), nil
	case "cost":
		return NewCost(o), nil
	case "prefix_affinity":
		return NewPrefixAffinity(o), nil
	}
	return nil, fmt.Errorf("%w %q: want one of %s", ErrUnknown, name, strings.Join(Names(), ", "))
}
