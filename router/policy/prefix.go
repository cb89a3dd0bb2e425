package policy

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Hash stands for a prefix: the scope it was seen in and everything up to a block's end.
type Hash uint64

// Unit is what a block is made of. Prefixes in different units never compare equal.
type Unit byte

const (
	UnitTokens Unit = 't' // token ids
	UnitBytes  Unit = 'b' // text, where the router has no tokenizer
)

// Root is the hash every chain of one scope starts from. Two prompts can share blocks only
// within the same unit and model (and salt: see [Salted]).
func Root(unit Unit, model string) Hash {
	b := make([]byte, 0, 64)
	b = append(b, byte(unit))
	b = append(b, model...)
	return Hash(xxhash.Sum64(b))
}

// Salted returns the chain as it is under a salt: prompts share blocks only where their
// salts are equal too. It costs no second look at the prompt, and the chain without the
// salt still tells what would be shared if there were none. No salt: the chain itself.
func Salted(chain []Hash, salt string) []Hash {
	if salt == "" {
		return chain
	}
	s := SaltHash(salt)
	out := make([]Hash, len(chain))
	for i, h := range chain {
		out[i] = SaltedHash(h, s)
	}
	return out
}

// SaltHash is what stands for a salt in [SaltedHash].
func SaltHash(salt string) Hash { return Hash(xxhash.Sum64String(salt)) }

// SaltedHash is one element of [Salted].
func SaltedHash(h, salt Hash) Hash { return Hash(mix(uint64(h ^ salt))) }

// Next extends a chain by one block of tokens.
func Next(h Hash, block []int32) Hash {
	var stack [8 + 4*32]byte
	b := binary.LittleEndian.AppendUint64(stack[:0], uint64(h))
	for _, t := range block {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return Hash(xxhash.Sum64(b))
}

// ChainTokens hashes the whole blocks of a token sequence, at most limit of them. Element
// i stands for tokens[:(i+1)*blockTokens].
func ChainTokens(root Hash, tokens []int32, blockTokens, limit int) []Hash {
	n := min(len(tokens)/blockTokens, limit)
	chain := make([]Hash, n)
	for i := range chain {
		root = Next(root, tokens[i*blockTokens:(i+1)*blockTokens])
		chain[i] = root
	}
	return chain
}

// ChainBytes hashes the whole chunks of a text, at most limit of them. Element i stands
// for text[:(i+1)*chunk].
func ChainBytes(root Hash, text string, chunk, limit int) []Hash {
	n := min(len(text)/chunk, limit)
	chain := make([]Hash, n)
	b := make([]byte, 0, 8+chunk)
	for i := range chain {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(root))
		b = append(b, text[i*chunk:(i+1)*chunk]...)
		root = Hash(xxhash.Sum64(b))
		chain[i] = root
	}
	return chain
}

// key is the hash of the prompt's first depth blocks, or of as many as it has. Never of
// the whole prompt: that differs between any two requests, which is to route at random.
// So the last block counts only where something follows it. False if nothing is left.
func (r Request) key(depth int) (Hash, bool) {
	n := len(r.Blocks)
	if n > 0 && n*r.BlockTokens >= r.Tokens {
		n--
	}
	if n = min(n, depth); n < 1 {
		return 0, false
	}
	return r.Blocks[n-1], true
}

// fallbackKey stands in for the prefix of a prompt that has none: the session, whose next
// prompt will begin with this one, else the request's number, which spreads.
func (r Request) fallbackKey() Hash {
	if r.Session != "" {
		return sessionKey(r.Session)
	}
	return Hash(mix(r.Seq))
}

func sessionKey(session string) Hash { return Hash(xxhash.Sum64String(session)) }

// byRendezvous compares two replicas in the order that is the key's own (highest random
// weight: Thaler and Ravishankar 1998).
func byRendezvous(key Hash, a, b Candidate) int {
	wa, wb := weight(key, a.ID), weight(key, b.ID)
	switch {
	case wa > wb:
		return 1
	case wa < wb:
		return -1
	}
	return strings.Compare(b.ID, a.ID)
}

func weight(key Hash, id string) uint64 {
	return mix(uint64(key) ^ xxhash.Sum64String(id))
}

// mix is SplitMix64's step: every bit of x reaches every bit of the result, and no two x
// meet.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
