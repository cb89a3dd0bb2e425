package router

import (
	"sort"
	"time"

	"tailor/router/policy"
)

// prefixIndex is what one replica is expected to hold: the chained hashes of the blocks
// that were sent to it. It is a guess, made from requests alone.
//
//   - Closed under prefixes: if a block is present, so are all before it in its chain.
//     So the longest match is found by binary search.
//   - A block is in flight while a request that contains it is (pending > 0), or idle.
//     Idle blocks were computed by some request that got an answer; a block whose
//     requests all failed before that is gone.
//   - The idle blocks form a list, the most recently used first. A block is at least as
//     recent as those after it in a chain, so that the list's end may always be dropped.
//   - At most capacity blocks, or, where requests in flight alone have more, those.
//   - Not safe for concurrent use: the registry's lock covers it.
type prefixIndex struct {
	capacity int
	age      time.Duration
	blocks   map[policy.Hash]*indexedBlock
	idle     indexedBlock // the list's ends: idle.next is the most recent, idle.prev the oldest
}

type indexedBlock struct {
	hash       policy.Hash
	pending    int
	computed   bool
	used       time.Time // when it became idle
	prev, next *indexedBlock
}

func newPrefixIndex(capacity int, age time.Duration) *prefixIndex {
	x := &prefixIndex{capacity: capacity, age: age, blocks: map[policy.Hash]*indexedBlock{}}
	x.idle.prev, x.idle.next = &x.idle, &x.idle
	return x
}

// match is how many blocks of the chain, from its beginning, are held. It changes nothing.
func (x *prefixIndex) match(chain []policy.Hash, now time.Time) int {
	return sort.Search(len(chain), func(i int) bool {
		b := x.blocks[chain[i]]
		return b == nil || x.stale(b, now)
	})
}

// begin adds the blocks of a request that goes out: from now on they count as held.
func (x *prefixIndex) begin(chain []policy.Hash, now time.Time) {
	x.trim(now) // what is too old to match must not look computed again
	for _, h := range chain {
		b := x.blocks[h]
		if b == nil {
			b = &indexedBlock{hash: h}
			x.blocks[h] = b
		} else if b.pending == 0 {
			b.unlink()
		}
		b.pending++
	}
	x.trim(now)
}

// end undoes begin when the request is over. computed says that the replica has had the
// whole prompt, which the first byte of an answer shows.
func (x *prefixIndex) end(chain []policy.Hash, computed bool, now time.Time) {
	for i := len(chain) - 1; i >= 0; i-- { // so that the first block ends up most recent
		b := x.blocks[chain[i]]
		b.computed = b.computed || computed
		if b.pending--; b.pending > 0 {
			continue
		}
		if !b.computed {
			delete(x.blocks, b.hash)
			continue
		}
		b.used = now
		b.prev, b.next = &x.idle, x.idle.next
		b.prev.next, b.next.prev = b, b
	}
	x.trim(now)
}

func (x *prefixIndex) stale(b *indexedBlock, now time.Time) bool {
	return b.pending == 0 && now.Sub(b.used) > x.age
}

// trim drops idle blocks that are too old or too many.
func (x *prefixIndex) trim(now time.Time) {
	for b := x.idle.prev; b != &x.idle && (len(x.blocks) > x.capacity || x.stale(b, now)); b = x.idle.prev {
		b.unlink()
		delete(x.blocks, b.hash)
	}
}

func (b *indexedBlock) unlink() {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
}
