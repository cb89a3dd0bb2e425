package kvcache

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// twin is what a Manager promises, by brute force. It has no block ids, tree or free
// list: a cached block is the token path up to its last row, and who holds what is
// counted afresh whenever it is asked.
type twin struct {
	cfg     Config
	cached  []*cachedBlock
	live    []*twinSequence
	clock   int
	evicted uint64

	now  time.Time
	gone []goneBlock // the last to leave, oldest first, at most one per block of the pool
}

// goneBlock is a block that left the cache.
type goneBlock struct {
	salt  string
	path  []int32
	when  time.Time
	reset bool
}

type cachedBlock struct {
	salt string
	path []int32
	hits int // allocations that reused it
	used int // when the last sequence that held it was freed
}

type twinSequence struct {
	salt             string
	tokens           []int32
	cached, computed int
}

func (w *twin) full(s *twinSequence) []int32 {
	return s.tokens[:s.computed-s.computed%w.cfg.BlockSize]
}

// holders counts the live sequences whose full computed blocks contain b.
func (w *twin) holders(b *cachedBlock) int {
	n := 0
	for _, s := range w.live {
		if s.salt == b.salt && startsWith(w.full(s), b.path) {
			n++
		}
	}
	return n
}

func (w *twin) at(salt string, path []int32) *cachedBlock {
	for _, b := range w.cached {
		if b.salt == salt && slices.Equal(b.path, path) {
			return b
		}
	}
	return nil
}

// match returns how many of the tokens, without the last, some cached block's path has.
func (w *twin) match(salt string, tokens []int32) int {
	best := 0
	for _, b := range w.cached {
		if b.salt == salt {
			best = max(best, shared(b.path, tokens[:len(tokens)-1]))
		}
	}
	return best
}

// own counts the blocks that live sequences hold and the cache does not.
func (w *twin) own() int {
	n := 0
	for _, s := range w.live {
		n += w.need(len(s.tokens)) - len(w.full(s))/w.cfg.BlockSize
	}
	return n
}

func (w *twin) need(tokens int) int {
	return int(math.Ceil(float64(tokens) / float64(w.cfg.BlockSize)))
}

func (w *twin) free() int { return w.cfg.Blocks - len(w.cached) - w.own() }

// before says whether a is evicted before b: under LFU that with fewer hits, then the one
// freed longer ago; of blocks freed together, which lie on one path, the last.
func (w *twin) before(a, b *cachedBlock) bool {
	byHits := 0
	if w.cfg.Eviction == LFU {
		byHits = cmp.Compare(a.hits, b.hits)
	}
	return cmp.Or(byHits, cmp.Compare(a.used, b.used), cmp.Compare(len(b.path), len(a.path))) < 0
}

// evict drops the block that goes before all others of those that nobody holds.
func (w *twin) evict() {
	w.drop(false)
	w.evicted++
}

func (w *twin) drop(reset bool) {
	first := -1
	for i, b := range w.cached {
		if w.holders(b) == 0 && (first < 0 || w.before(b, w.cached[first])) {
			first = i
		}
	}
	b := w.cached[first]
	w.cached = slices.Delete(w.cached, first, first+1)
	w.gone = append(w.gone, goneBlock{b.salt, b.path, w.now, reset})
	w.gone = w.gone[max(0, len(w.gone)-w.cfg.Blocks):]
}

func (w *twin) reset() {
	for len(w.cached) > 0 {
		w.drop(true)
	}
}

// explain goes token by token.
func (w *twin) explain(salt string, tokens []int32) Explanation {
	var e Explanation
	if len(tokens) > 0 {
		e.Cached = w.match(salt, tokens)
	}
	for i := e.Cached; i < len(tokens); i++ {
		end := (i/w.cfg.BlockSize + 1) * w.cfg.BlockSize
		if end > len(tokens) || i == len(tokens)-1 {
			e.Tail++
			continue
		}
		miss, age := w.missOf(salt, tokens[:end])
		map[Miss]func(){
			MissCold: func() { e.Cold++ }, MissEvicted: func() { e.Evicted++ },
			MissReset: func() { e.Reset++ }, MissSalt: func() { e.Salt++ },
		}[miss]()
		if e.Miss == MissNone {
			e.Miss, e.Age = miss, age
		}
	}
	return e
}

func (w *twin) missOf(salt string, path []int32) (Miss, time.Duration) {
	for _, g := range slices.Backward(w.gone) {
		if g.salt == salt && slices.Equal(g.path, path) {
			if g.reset {
				return MissReset, w.now.Sub(g.when)
			}
			return MissEvicted, w.now.Sub(g.when)
		}
	}
	for _, b := range w.cached {
		if slices.Equal(b.path, path) {
			return MissSalt, 0
		}
	}
	return MissCold, 0
}

func (w *twin) evictable() int {
	n := 0
	for _, b := range w.cached {
		if w.holders(b) == 0 {
			n++
		}
	}
	return n
}

// allocate returns the error that the Manager must return, without its text.
func (w *twin) allocate(salt string, tokens []int32) error {
	if w.need(len(tokens)) > w.cfg.Blocks {
		return ErrTooLong
	}
	n := w.match(salt, tokens)
	s := &twinSequence{salt: salt, tokens: slices.Clone(tokens), cached: n, computed: n}
	w.live = append(w.live, s) // holds what it matched, from here on
	short := -w.free()
	if short > w.evictable() {
		w.live = w.live[:len(w.live)-1]
		return ErrNoFreeBlocks
	}
	for range short {
		w.evict()
	}
	for _, b := range w.cached {
		if b.salt == salt && startsWith(w.full(s), b.path) {
			b.hits++
		}
	}
	return nil
}

// fork returns the error that the Manager must return, without its text.
func (w *twin) fork(s *twinSequence) error {
	if s.computed%w.cfg.BlockSize > 0 {
		if w.free()+w.evictable() == 0 {
			return ErrNoFreeBlocks
		}
		if w.free() == 0 {
			w.evict()
		}
	}
	w.live = append(w.live, &twinSequence{salt: s.salt, tokens: slices.Clone(s.tokens[:s.computed]), cached: s.cached, computed: s.computed})
	return nil
}

func (w *twin) append(s *twinSequence, token int32) error {
	if need := w.need(len(s.tokens) + 1); need > w.need(len(s.tokens)) {
		switch {
		case need > w.cfg.Blocks:
			return ErrTooLong
		case w.free()+w.evictable() == 0:
			return ErrNoFreeBlocks
		case w.free() == 0:
			w.evict()
		}
	}
	s.tokens = append(s.tokens, token)
	return nil
}

func (w *twin) commit(s *twinSequence, n int) {
	s.computed += n
	full := w.full(s)
	for end := w.cfg.BlockSize; end <= len(full); end += w.cfg.BlockSize {
		if w.at(s.salt, full[:end]) == nil {
			w.cached = append(w.cached, &cachedBlock{salt: s.salt, path: slices.Clone(full[:end])})
		}
	}
}

func (w *twin) freeSequence(i int) {
	s := w.live[i]
	w.live = slices.Delete(w.live, i, i+1)
	w.clock++
	for _, b := range w.cached {
		if s.salt == b.salt && startsWith(w.full(s), b.path) && w.holders(b) == 0 {
			b.used = w.clock
		}
	}
}

// stats counts what Stats must; Nodes are the tree's own affair.
func (w *twin) stats() Stats {
	prefixes, salts := make(map[string]bool), make(map[string]bool)
	for _, b := range w.cached {
		salts[b.salt] = true
		for n := range b.path {
			prefixes[fmt.Sprintf("%q%v", b.salt, b.path[:n+1])] = true
		}
	}
	for _, s := range w.live {
		salts[s.salt] = true
	}
	return Stats{
		Total:     w.cfg.Blocks,
		Free:      w.free(),
		Held:      len(w.cached) + w.own(),
		Cached:    len(w.cached),
		Evictable: w.evictable(),
		Evicted:   w.evicted,
		Tokens:    len(prefixes),
		Salts:     len(salts),
		Sequences: len(w.live),
	}
}

func startsWith(tokens, prefix []int32) bool { return shared(tokens, prefix) == len(prefix) }

func shared(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// sameError compares an error with the bare one expected.
func sameError(got, want error) bool {
	return (got == nil) == (want == nil) && (want == nil || errors.Is(got, want))
}
