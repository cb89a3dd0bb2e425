package radixattn

import "fmt"

// Eviction says in which order unlocked blocks leave a tree that is short of them. Under
// either, leaves go before what they hang from, and the last block of a leaf first.
type Eviction uint8

const (
	// LRU evicts what was unlocked longest ago.
	LRU Eviction = iota
	// LFU evicts what was hit least often and, among equals, was unlocked longest ago.
	// A hit is a [Tree.Lock] that covers the node.
	//
	// Hits do not age: a prefix that was hit often and is not asked for any more stays
	// until everything hit less has gone. That keeps the rule one sentence long and the
	// same as in SGLang, so that a comparison with it means something. What leaves the
	// tree is forgotten with its hits, and comes back with none.
	LFU
)

var evictionNames = [...]string{LRU: "lru", LFU: "lfu"}

// String returns "lru" or "lfu".
func (e Eviction) String() string {
	if int(e) >= len(evictionNames) {
		return fmt.Sprintf("Eviction(%d)", uint8(e))
	}
	return evictionNames[e]
}

// MarshalText writes the name, for JSON and flags.
func (e Eviction) MarshalText() ([]byte, error) {
	if int(e) >= len(evictionNames) {
		return nil, fmt.Errorf("radixattn: no eviction order %d", uint8(e))
	}
	return []byte(e.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (e *Eviction) UnmarshalText(text []byte) error {
	for i, name := range evictionNames {
		if name == string(text) {
			*e = Eviction(i)
			return nil
		}
	}
	return fmt.Errorf("radixattn: eviction order %q, must be lru or lfu", text)
}
