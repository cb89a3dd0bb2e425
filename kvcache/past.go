package kvcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"

	"tailor/paging"
)

// past remembers what the cache held, and why it does not any more, for Explain.
//
// It goes by hashes and compares no tokens. That is good enough for a diagnosis, which a
// collision of 64 bits would merely falsify, and for nothing else: rows are only ever
// reused out of the tree, which compares tokens.
//
// Invariants:
//   - traces[id] is about the tokens of block id for as long as the tree holds it.
//   - present counts the tree's blocks by their chain. No entry is 0.
//   - departed holds the latest departures, one per block of the pool at most; so it knows
//     what a pool of twice the size would still have had, or more. latest finds the last
//     departure of a path, as long as that is among them.
//
// That is 16 bytes per block for the traces, 16 for the departures and up to 40 for each
// of the two maps.
type past struct {
	hash     func(chain uint64, tokens []int32) uint64
	salt     func(salt string) uint64
	size     int
	traces   []trace
	present  map[uint64]int32
	departed []departure // a ring, once it is full
	next     int         // the one to overwrite then
	latest   map[uint64]int32
}

// trace identifies the tokens up to the end of a block: chain by themselves, path under
// their salt.
type trace struct{ chain, path uint64 }

// departure is a block that left the tree.
type departure struct {
	path  uint64
	tick  uint32
	reset bool // dropped by a Reset; otherwise evicted
}

func newPast(cfg Config) *past {
	// The seed is random, so that nobody can prepare prompts that collide.
	seed, buffer := maphash.MakeSeed(), make([]byte, 8+4*cfg.BlockSize)
	return &past{
		hash: func(chain uint64, tokens []int32) uint64 {
			binary.LittleEndian.PutUint64(buffer, chain)
			for i, token := range tokens {
				binary.LittleEndian.PutUint32(buffer[8+4*i:], uint32(token))
			}
			return maphash.Bytes(seed, buffer)
		},
		salt:    func(salt string) uint64 { return maphash.String(seed, salt) },
		size:    cfg.BlockSize,
		traces:  make([]trace, cfg.Blocks),
		present: make(map[uint64]int32),
		latest:  make(map[uint64]int32),
	}
}

// enter notes that the tree takes blocks with the tokens that follow those of above, which
// is NoBlock if they begin a path.
func (p *past) enter(salt string, above paging.BlockID, tokens []int32, blocks []paging.BlockID) {
	under, chain := p.salt(salt), uint64(0)
	if above != paging.NoBlock {
		chain = p.traces[above].chain
	}
	for i, id := range blocks {
		chain = p.hash(chain, tokens[i*p.size:(i+1)*p.size])
		p.traces[id] = trace{chain: chain, path: chain ^ under}
		p.present[chain]++
	}
}

// withdraw notes that the tree does not have a block that entered.
func (p *past) withdraw(id paging.BlockID) {
	chain := p.traces[id].chain
	if p.present[chain]--; p.present[chain] == 0 {
		delete(p.present, chain)
	}
}

// leave notes how and when a block left the tree.
func (p *past) leave(id paging.BlockID, d departure) {
	p.withdraw(id)
	d.path = p.traces[id].path
	if len(p.departed) < len(p.traces) {
		p.departed = append(p.departed, d)
	} else {
		if old := p.departed[p.next].path; p.latest[old] == int32(p.next) {
			delete(p.latest, old)
		}
		p.departed[p.next] = d
	}
	p.latest[d.path] = int32(p.next)
	p.next = (p.next + 1) % len(p.traces)
}

// find returns the last departure of a path, if it is remembered.
func (p *past) find(path uint64) (departure, bool) {
	at, known := p.latest[path]
	if !known {
		return departure{}, false
	}
	return p.departed[at], true
}

// check proves the invariants, given how often the tree holds each block.
func (p *past) check(inTree []int) error {
	present := make(map[uint64]int32)
	for id, n := range inTree {
		if n > 0 {
			present[p.traces[id].chain]++
		}
	}
	if len(present) != len(p.present) {
		return fmt.Errorf("%d different blocks are in the tree, %d are counted", len(present), len(p.present))
	}
	for chain, n := range present {
		if p.present[chain] != n {
			return fmt.Errorf("chain %#x is %d times in the tree, counted %d times", chain, n, p.present[chain])
		}
	}
	if len(p.departed) > len(p.traces) || p.next != len(p.departed)%len(p.traces) && len(p.departed) < len(p.traces) {
		return fmt.Errorf("%d departures of %d, the next one is %d", len(p.departed), len(p.traces), p.next)
	}
	paths := make(map[uint64]bool)
	for _, d := range p.departed {
		paths[d.path] = true
	}
	for path, at := range p.latest {
		if int(at) >= len(p.departed) || p.departed[at].path != path {
			return fmt.Errorf("departure %d is not of path %#x", at, path)
		}
	}
	if len(paths) != len(p.latest) {
		return errors.New("a departure is not found by its path")
	}
	return nil
}
