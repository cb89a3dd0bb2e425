package policy

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrNoReplica says that no replica of the given ones may be chosen.
	ErrNoReplica = errors.New("policy: no replica is ready")
	// ErrUnknown says that no policy has the given name.
	ErrUnknown = errors.New("policy: unknown policy")
	// ErrOptions says that an option is out of its range.
	ErrOptions = errors.New("policy: option out of range")
)

// Policy chooses a replica. Implementations are safe for concurrent use and depend on
// nothing but their arguments and their own parameters.
type Policy interface {
	// Name is the policy's name as [New] knows it.
	Name() string
	// Choose picks one of the ready replicas; ErrNoReplica if there is none. The
	// replicas must be in strictly ascending order of ID, so that policies that count
	// positions agree between routers; Choose panics if they are not.
	Choose(r Request, replicas []Replica) (Decision, error)
}

// Request is what a policy may know about a request.
type Request struct {
	// Blocks are the chained hashes of the prompt's whole blocks; the tail that fills no
	// block is not in them. For several prompts in one request: of the first.
	Blocks []Hash
	// BlockTokens is how many tokens a block stands for.
	BlockTokens int
	// Tokens counts the prompt's tokens, of all prompts in the request.
	Tokens int
	// Session names the conversation or user; empty if the client names none.
	Session string
	// Seq numbers the requests of one router: 0, 1, 2, ...
	Seq uint64
	// Depth is how many blocks deep the prefixes seen lately spread; 0 if not known.
	Depth int
	// Heat is the share (0..1) of recent requests that begin with the longest prefix of
	// this one that any replica holds.
	Heat float64
}

// Load is the work a replica has in hand.
type Load struct {
	// Tokens are prompt tokens of requests in flight that the replica is expected to
	// compute, that is without those predicted to be cached.
	Tokens int `json:"tokens"`
	// Requests are requests in flight.
	Requests int `json:"requests"`
}

// less orders loads: tokens, then requests.
func (l Load) less(m Load) bool {
	if l.Tokens != m.Tokens {
		return l.Tokens < m.Tokens
	}
	return l.Requests < m.Requests
}

// Replica is a replica's state at the moment of the choice.
type Replica struct {
	ID string
	// Ready says that it may be chosen.
	Ready bool
	// Cached is how many of the request's prompt tokens it is expected not to compute.
	Cached int
	// Held is how many blocks of any prefix it is expected to hold.
	Held int
	// Active counts the prompt tokens of the requests in flight, cached or not.
	Active int
	// Recent is how many requests it was sent lately; the older ones count less.
	Recent int
	Load   Load
}

// Candidate is a replica that could have been chosen, as the policy saw it.
type Candidate struct {
	ID     string `json:"id"`
	Cached int    `json:"cached"`
	Held   int    `json:"held_blocks"`
	Active int    `json:"active_tokens"`
	Recent int    `json:"recent"`
	Load   Load   `json:"load"`
}

// Reason says in one word why a replica was chosen.
type Reason string

const (
	ReasonRandom        Reason = "random"         // drawn
	ReasonTurn          Reason = "turn"           // its turn
	ReasonLeastLoaded   Reason = "least_loaded"   // fewest tokens in flight
	ReasonHash          Reason = "hash"           // owns the prefix's hash
	ReasonNoPrefix      Reason = "no_prefix"      // the prompt fills no block: least loaded
	ReasonCold          Reason = "cold"           // nobody holds enough of the prefix: least loaded
	ReasonLongestPrefix Reason = "longest_prefix" // holds the longest prefix
	ReasonSpill         Reason = "spill"          // the preferred replica is too busy
	ReasonReplicate     Reason = "replicate"      // the prefix is so popular that it gets another home
	ReasonTwoChoices    Reason = "two_choices"    // the less loaded of two drawn
	ReasonSession       Reason = "session"        // owns the session
	ReasonBalance       Reason = "balance"        // loads are so unequal that nothing else counts
	ReasonCost          Reason = "cost"           // the least cost
)

// Decision is a choice and its grounds.
type Decision struct {
	// Replica is the chosen replica's ID.
	Replica string
	Reason  Reason
	// Cached is the chosen replica's predicted number of cached tokens.
	Cached int
	// SpilledFrom is the replica that was passed over because of its load, if Reason is
	// ReasonSpill or ReasonReplicate; else empty.
	SpilledFrom string
	// Candidates are the ready replicas in order of ID.
	Candidates []Candidate
}

// ready returns the replicas that may be chosen.
func ready(replicas []Replica) ([]Candidate, error) {
	candidates := make([]Candidate, 0, len(replicas))
	for i, r := range replicas {
		if i > 0 && replicas[i-1].ID >= r.ID {
			panic(fmt.Sprintf("policy: replica %d is %q after %q: want strictly ascending IDs", i, r.ID, replicas[i-1].ID))
		}
		if r.Ready {
			candidates = append(candidates, Candidate{
				ID: r.ID, Cached: r.Cached, Held: r.Held, Active: r.Active, Recent: r.Recent, Load: r.Load,
			})
		}
	}
	if len(candidates) == 0 {
		return nil, ErrNoReplica
	}
	return candidates, nil
}

// decide puts a decision together.
func decide(candidates []Candidate, chosen int, why Reason) Decision {
	c := candidates[chosen]
	return Decision{Replica: c.ID, Reason: why, Cached: c.Cached, Candidates: candidates}
}

// leastLoaded is the position of the least loaded candidate. Among equals the rendezvous
// hash decides: every key has its own order of the replicas, so equal loads spread, and
// a replica that leaves moves its own keys only.
func leastLoaded(candidates []Candidate, key Hash) int {
	return best(candidates, func(a, b Candidate) int {
		switch {
		case a.Load.less(b.Load):
			return 1
		case b.Load.less(a.Load):
			return -1
		}
		return byRendezvous(key, a, b)
	})
}

// emptiest is the position of the least loaded candidate, of equals the one that holds the
// fewest blocks: while requests come one at a time load says nothing, and prefixes placed
// by chance alone pile up.
func emptiest(candidates []Candidate, key Hash) int {
	return best(candidates, func(a, b Candidate) int {
		switch {
		case a.Load.less(b.Load):
			return 1
		case b.Load.less(a.Load):
			return -1
		case a.Held != b.Held:
			return b.Held - a.Held
		}
		return byRendezvous(key, a, b)
	})
}

// best is the position of the greatest candidate, the first of equals.
func best(candidates []Candidate, compare func(a, b Candidate) int) int {
	top := 0
	for i := 1; i < len(candidates); i++ {
		if compare(candidates[i], candidates[top]) > 0 {
			top = i
		}
	}
	return top
}

// find is the position of the candidate with that ID, or -1.
func find(candidates []Candidate, id string) int {
	return slices.IndexFunc(candidates, func(c Candidate) bool { return c.ID == id })
}
