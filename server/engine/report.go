package engine

import (
	"time"

	"tailor/kvcache"
)

// CacheReport says how much of a request's prompt was found in the prefix cache at its
// first admission, and why not more.
type CacheReport struct {
	Matched int // tokens reused
	// InFlight is how many of them others computed while this request waited.
	InFlight int
	Missed   int // tokens computed; the prompt's last is always one of them
	// Reason says why the first token after the matched ones was not there.
	Reason MissReason
	// EvictedAgo is how long the row had been gone, after MissEvicted and MissReset.
	EvictedAgo time.Duration
}

// MissReason says why a token's row was not in the cache. It is empty where all that could
// be cached was: the last token is always computed, and what fills no block never enters.
// MissSalt says what others have asked: it is the operator's alone.
type MissReason string

const (
	MissCold     MissReason = "cold"      // never seen, or too long ago to be remembered
	MissEvicted  MissReason = "evicted"   // was there, and gave way
	MissSalt     MissReason = "salt"      // is there under another salt
	MissReset    MissReason = "reset"     // was there before the cache was reset
	MissInFlight MissReason = "in_flight" // another request was computing it
	MissScored   MissReason = "scored"    // not looked for: Request.PromptLogprobs
)

// explain reports on the prompt of a sequence that is about to be admitted for the first
// time.
func (s *scheduler) explain(seq *sequence) CacheReport {
	if seq.admitted {
		return CacheReport{}
	}
	findable := seq.findable()
	r := CacheReport{Matched: s.kv.Match(seq.salt, findable)}
	r.Missed = seq.prompt - r.Matched
	r.InFlight = max(r.Matched-seq.found, 0)
	switch {
	case seq.isScoring():
		r.Reason = MissScored
	case r.Missed == 1:
	case s.inFlight(seq, r.Matched):
		r.Reason = MissInFlight
	default:
		why := s.kv.Explain(seq.salt, seq.tokens)
		r.Reason, r.EvictedAgo = missReasons[why.Miss], why.Age
	}
	return r
}

var missReasons = map[kvcache.Miss]MissReason{
	kvcache.MissNone: "", kvcache.MissCold: MissCold, kvcache.MissEvicted: MissEvicted,
	kvcache.MissReset: MissReset, kvcache.MissSalt: MissSalt,
}

// inFlight says that a running sequence has the token after the matched ones too, its row
// computed or not: it is not for others before its block is full.
func (s *scheduler) inFlight(seq *sequence, matched int) bool {
	for _, r := range s.running {
		if r.salt == seq.salt && commonPrefix(r.tokens, seq.tokens) > matched {
			return true
		}
	}
	return false
}
