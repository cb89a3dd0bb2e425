package router

// Lost says where the reuse of a prompt's tokens was lost: every token that was computed
// has one cause, so the causes add up to the computed tokens.
//
// The tokens of a prompt are shared from its beginning on, so each cause is a stretch: what
// was delivered; beyond it what was predicted for the replica chosen; beyond that what
// another replica was predicted to have; then what was once asked for and nobody has any
// more; then what was asked for under another salt; the rest is new. Apart from the first
// they are known in whole blocks.
type Lost struct {
	Cold         int `json:"cold"`                     // never asked for before
	Elsewhere    int `json:"elsewhere"`                // on another replica: affinity lost to load, or to the policy
	Evicted      int `json:"evicted"`                  // gone from all caches before the choice
	EvictedSince int `json:"evicted_after_prediction"` // gone between choice and arrival
	InFlight     int `json:"in_flight"`                // being computed by another request, and not done
	Salt         int `json:"salt"`                     // asked for under another salt only
	Stale        int `json:"stale_index"`              // predicted, and not there
}

// Sum is the number of tokens lost.
func (l Lost) Sum() int {
	return l.Cold + l.Elsewhere + l.Evicted + l.EvictedSince + l.InFlight + l.Salt + l.Stale
}

// reach is how far into a prompt, in tokens, one may look for reuse.
type reach struct {
	prompt    int
	delivered int
	predicted int // for the replica chosen
	best      int // for any that was ready
	seen      int // asked for before, under this salt
	anySalt   int // or under any
}

// split gives every token that was not delivered its cause. reason is the replica's own
// for the first of them; empty if it gave none.
func (r reach) split(reason string) Lost {
	var l Lost
	at := r.delivered
	stretch := func(to int) int {
		to = min(to, r.prompt)
		n := max(0, to-at)
		at += n
		return n
	}
	switch n := stretch(r.predicted); reason {
	case missEvicted:
		l.EvictedSince = n
	case missInFlight:
		l.InFlight = n
	default:
		l.Stale = n
	}
	l.Elsewhere = stretch(r.best)
	l.Evicted = stretch(r.seen)
	l.Salt = stretch(r.anySalt)
	l.Cold = stretch(r.prompt)
	return l
}
