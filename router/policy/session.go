package policy

// Session keeps a conversation or user on one replica, whatever the prompts say: the
// sticky sessions of a plain load balancer. The replica is the one of highest weight for
// the session (see [RendezvousHash]), so one that leaves moves its own sessions only.
// Requests that name no session go to the least loaded replica.
type Session struct{}

// NewSession returns a Session.
func NewSession() *Session { return &Session{} }

// Name implements Policy.
func (*Session) Name() string { return "session" }

// Choose implements Policy.
func (*Session) Choose(r Request, replicas []Replica) (Decision, error) {
	candidates, err := ready(replicas)
	if err != nil {
		return Decision{}, err
	}
	if r.Session == "" {
		return decide(candidates, leastLoaded(candidates, Hash(mix(r.Seq))), ReasonLeastLoaded), nil
	}
	return decide(candidates, heaviest(candidates, sessionKey(r.Session)), ReasonSession), nil
}
