package kvcache

import (
	"fmt"
	"time"
)

// Miss says why a token that could be cached is not.
type Miss uint8

const (
	// MissNone: all is cached that a repetition of the same tokens would find.
	MissNone Miss = iota
	// MissCold: the tokens were never computed, or left the cache so long ago that it is
	// forgotten: more blocks have left since than the pool has.
	MissCold
	// MissEvicted: they were cached, and made room for others.
	MissEvicted
	// MissReset: they were cached, and dropped by a Reset.
	MissReset
	// MissSalt: they are cached, under another salt only. Whoever is told so learns what
	// others ask: see ForTenant.
	MissSalt
)

var missNames = [...]string{MissNone: "none", MissCold: "cold", MissEvicted: "evicted", MissReset: "reset", MissSalt: "salt"}

// String returns a word for logs and metrics.
func (m Miss) String() string {
	if int(m) >= len(missNames) {
		return fmt.Sprintf("Miss(%d)", uint8(m))
	}
	return missNames[m]
}

// MarshalText writes that word.
func (m Miss) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Explanation says how many tokens of a prompt are cached, and why the others are not: the
// sum of all its counts is the length of the prompt.
type Explanation struct {
	Cached  int `json:"cached"` // tokens that Allocate would reuse
	Cold    int `json:"cold"`
	Evicted int `json:"evicted"`
	Reset   int `json:"reset"`
	Salt    int `json:"salt"`
	// Tail tokens are not cached and could not be after a repetition either: those that
	// fill no block, and the last one of all, which is always computed.
	Tail int `json:"tail"`

	Miss Miss          `json:"miss"` // of the first token that is not cached and could be
	Age  time.Duration `json:"age"`  // of that token's eviction or reset, to the tenth of a second
}

// ForTenant returns what a tenant may be told: that tokens are cached under another salt
// looks as if they were cold. Answers to tenants must be made from nothing else; the rest
// is for the operator's logs and metrics.
func (e Explanation) ForTenant() Explanation {
	e.Cold, e.Salt = e.Cold+e.Salt, 0
	if e.Miss == MissSalt {
		e.Miss = MissCold
	}
	return e
}

// Explain says why Allocate, called now, would not find more of the tokens than it does.
// It changes nothing, and takes time for each block of the prompt. It is a diagnosis: it
// goes by hashes of tokens, as nothing else here does.
func (m *Manager) Explain(salt string, tokens []int32) Explanation {
	size := m.cfg.BlockSize
	e := Explanation{Cached: m.Match(salt, tokens)}
	repeat := min(len(tokens)-len(tokens)%size, max(0, len(tokens)-1)) // what a repetition would find
	e.Tail = len(tokens) - max(repeat, e.Cached)

	under, chain := m.past.salt(salt), uint64(0)
	for from := 0; from < repeat; from += size {
		chain = m.past.hash(chain, tokens[from:from+size])
		missing := min(from+size, repeat) - max(from, e.Cached)
		if missing <= 0 {
			continue
		}
		miss, age := m.missOf(chain, under)
		switch miss {
		case MissCold:
			e.Cold += missing
		case MissEvicted:
			e.Evicted += missing
		case MissReset:
			e.Reset += missing
		case MissSalt:
			e.Salt += missing
		}
		if e.Miss == MissNone {
			e.Miss, e.Age = miss, age
		}
	}
	return e
}

// missOf says why a block that is not cached under a salt is not. What happened under that
// salt itself comes first.
func (m *Manager) missOf(chain, under uint64) (Miss, time.Duration) {
	if d, known := m.past.find(chain ^ under); known {
		age := time.Duration(m.clock.tick()-d.tick) * tickLength
		if d.reset {
			return MissReset, age
		}
		return MissEvicted, age
	}
	if m.past.present[chain] > 0 {
		return MissSalt, 0
	}
	return MissCold, 0
}
