package kvcache

import (
	"errors"
	"fmt"
	"time"

	"tailor/paging"
	"tailor/radixattn"
)

// Invariants of a Manager, between calls (Check proves them):
//   - free + held = total.
//   - A block's ref count is the number of live sequences whose table holds it, plus 1 if
//     the tree holds it.
//   - The full blocks of a sequence's computed tokens are the tree's blocks for these
//     tokens, and locked. So a block that any table holds is never evicted.
//   - The rest of a sequence's blocks are its own: ref count 1, not in the tree.
//   - A call that returns an error has changed nothing: no ref count, no lock, no node, no
//     place in the order of eviction.

var (
	// ErrNoFreeBlocks says that too few blocks are free or evictable now. It is worth
	// trying again after a Free.
	ErrNoFreeBlocks = paging.ErrNoFreeBlocks
	// ErrTooLong says that a sequence needs more blocks than the pool has: waiting will
	// not help.
	ErrTooLong = errors.New("sequence needs more blocks than the pool has")
	// ErrHeld says that a Reset or Close was refused, because sequences are live.
	ErrHeld = errors.New("cache is held by live sequences")
)

// Manager is the one owner of blocks, tree and storage. It is not safe for concurrent
// use: one goroutine owns it and all its sequences.
type Manager struct {
	cfg     Config
	pool    *pool
	blocks  *paging.Allocator
	tree    *radixattn.Tree
	live    []*Sequence
	evicted uint64
	sink    Sink // nil: nobody is told

	// For Explain and View alone: no allocation or eviction depends on these.
	clock *clock
	past  *past
}

// Option sets what New otherwise chooses.
type Option func(*Manager)

// WithClock sets the clock by which Explain and View say when something happened. The
// default is time.Now.
func WithClock(now func() time.Time) Option { return func(m *Manager) { m.clock = newClock(now) } }

// New returns an empty cache. It makes one allocation for the rows of all blocks, which
// the operating system backs with memory as they are first written; see Touch. A pool of 64 MiB or
// more lies outside the Go heap, on Linux: it lasts until Close or the end of the process,
// so that a slice which Keys or Values returned never outlives it unawares.
func New(cfg Config, options ...Option) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	pool, err := newPool(cfg)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		cfg:    cfg,
		pool:   pool,
		blocks: paging.NewAllocator(cfg.Blocks),
		clock:  newClock(time.Now),
		past:   newPast(cfg),
	}
	for _, option := range options {
		option(m)
	}
	m.tree = radixattn.New(cfg.BlockSize, radixattn.WithEviction(cfg.Eviction), radixattn.WithClock(m.clock.tick))
	return m, nil
}

// Touch has the operating system back the whole pool with memory now. Otherwise it clears
// pages as blocks are first written, in the time and at the cost of the requests that happen
// to fill them: on the bundled model an eighth of a cold prefill. It is for a cache that is
// as New returned it.
func (m *Manager) Touch() {
	if m.blocks.Held() > 0 {
		panic(fmt.Sprintf("kvcache: touch a pool of which %d blocks are held", m.blocks.Held()))
	}
	m.pool.touch()
}

// Close gives the pool back. While sequences are live it changes nothing and returns
// ErrHeld. Afterwards nothing may be used any more: not the Manager, and no slice that
// Keys or Values returned.
func (m *Manager) Close() error {
	if len(m.live) > 0 {
		return fmt.Errorf("%w: %d", ErrHeld, len(m.live))
	}
	free := m.pool.free
	m.pool, m.blocks, m.tree = nil, nil, nil
	return free()
}

// Config returns the configuration that the cache was made with.
func (m *Manager) Config() Config { return m.cfg }

// Match returns how many of the tokens Allocate would find in the cache now. It changes
// nothing.
func (m *Manager) Match(salt string, tokens []int32) int {
	return m.match(salt, tokens).Tokens
}

// match leaves the last token out: it must be run even if its row is cached, since
// running it is what yields the logits of the token after it.
func (m *Manager) match(salt string, tokens []int32) radixattn.Match {
	return m.tree.Match(salt, tokens[:max(0, len(tokens)-1)])
}

// Allocate starts a sequence of at least one token: it reuses the longest prefix cached
// under salt, of at most len(tokens)-1 tokens, and makes room for all the others. It
// copies tokens. It fails with ErrTooLong or ErrNoFreeBlocks, and has then changed
// nothing.
func (m *Manager) Allocate(salt string, tokens []int32) (*Sequence, error) {
	if len(tokens) == 0 {
		panic("kvcache: allocate of 0 tokens")
	}
	need := paging.BlocksFor(len(tokens), m.cfg.BlockSize)
	if need > m.cfg.Blocks {
		return nil, fmt.Errorf("%w: %d of %d", ErrTooLong, need, m.cfg.Blocks)
	}

	// What the match is about to lock cannot be evicted for the rest: count it out
	// before anything changes.
	match := m.match(salt, tokens)
	need -= match.Whole()
	if room := m.blocks.Free() + m.tree.Stats().Evictable - match.Idle(); need > room {
		return nil, fmt.Errorf("%w: %d needed, %d free or evictable", ErrNoFreeBlocks, need, room)
	}

	s := &Sequence{m: m, index: len(m.live), salt: salt, cached: match.Tokens, computed: match.Tokens}
	s.tokens = append(make([]int32, 0, len(tokens)+m.cfg.BlockSize), tokens...)
	shared := match.Blocks()
	for _, id := range shared {
		m.blocks.Retain(id)
	}
	s.table.Append(shared...)
	s.lock = m.tree.Lock(match)
	s.table.Append(m.take(need)...)

	// Copy-on-write of the rows that the match found inside a block. Nothing protects
	// that block, so take may have evicted it, and may even have given it to this very
	// sequence: its rows are still what they were, since nobody writes a row before
	// Allocate returns. Protecting it instead would make a sequence that needs the whole
	// pool wait for a block that nobody holds.
	if rows := match.Rows(); rows > 0 {
		m.pool.copyRows(s.table.At(match.Whole()), match.Source, rows)
	}
	m.live = append(m.live, s)
	return s, nil
}

// take allocates n blocks, evicting as many as are missing. The caller has made sure
// that there are enough.
func (m *Manager) take(n int) []paging.BlockID {
	m.evict(n - m.blocks.Free())
	ids, err := m.blocks.Alloc(n)
	if err != nil {
		panic(fmt.Sprintf("kvcache: counted wrong: %v, %d evictable", err, m.tree.Stats().Evictable))
	}
	return ids
}

// evict releases the n blocks that the tree can do without first.
func (m *Manager) evict(n int) {
	if n <= 0 {
		return
	}
	evicted := m.tree.Evict(n)
	for _, id := range evicted {
		if !m.blocks.Release(id) {
			panic(fmt.Sprintf("kvcache: evicted block %d is still held by %d", id, m.blocks.Refs(id)))
		}
		m.past.leave(id, departure{tick: m.clock.tick()})
		m.evicted++
	}
	if m.sink != nil {
		m.sink.Removed(evicted)
	}
}

// Append adds a token to the sequence, with room for its keys and values. It fails with
// ErrTooLong or ErrNoFreeBlocks, and has then changed nothing.
func (m *Manager) Append(s *Sequence, token int32) error {
	m.mustOwn(s)
	need := paging.BlocksFor(len(s.tokens)+1, m.cfg.BlockSize)
	if need > s.table.Len() {
		switch {
		case need > m.cfg.Blocks:
			return fmt.Errorf("%w: %d of %d", ErrTooLong, need, m.cfg.Blocks)
		case m.blocks.Free()+m.tree.Stats().Evictable == 0:
			return fmt.Errorf("%w: 1 needed, none free or evictable", ErrNoFreeBlocks)
		}
		s.table.Append(m.take(1)...)
	}
	s.tokens = append(s.tokens, token)
	return nil
}

// Commit says that the next n tokens of the sequence have their keys and values. Blocks
// that are full now enter the tree at once, for others to reuse. Where the tree has the
// same tokens from another sequence that was faster, the sequence goes on with the tree's
// block, whose rows are the same to the bit, and its own is released; so slices that Keys
// and Values returned before are no longer valid.
func (m *Manager) Commit(s *Sequence, n int) {
	m.mustOwn(s)
	if n < 0 || s.computed+n > len(s.tokens) {
		panic(fmt.Sprintf("kvcache: commit of %d tokens with %d of %d computed", n, s.computed, len(s.tokens)))
	}
	s.computed += n
	size := m.cfg.BlockSize
	from, to := s.lock.Tokens()/size, s.computed/size
	if from == to {
		return
	}
	added, tokens := s.table.Blocks(from, to), s.tokens[from*size:to*size]
	for _, id := range added {
		m.blocks.Retain(id) // the tree's reference
	}
	above := paging.NoBlock
	if from > 0 {
		above = s.table.At(from - 1)
	}
	m.past.enter(s.salt, above, tokens, added)
	duplicates := m.tree.Insert(s.lock, tokens, added)
	for _, d := range duplicates {
		m.blocks.Retain(d.Block)
		own := s.table.Replace(from+d.Index, d.Block)
		m.past.withdraw(own)
		m.blocks.Release(own) // the tree's reference, which it did not take
		m.blocks.Release(own) // the sequence's
	}
	// Below a block that was new to the tree there was nothing: duplicates come first.
	m.tellStored(s, from+len(duplicates), to)
}

// Free ends a sequence, at whatever point it is. Its full computed blocks, generated
// tokens included, stay in the tree until they are evicted.
func (m *Manager) Free(s *Sequence) {
	m.mustOwn(s)
	m.tree.Unlock(s.lock)
	for _, id := range s.table.Blocks(0, s.table.Len()) {
		m.blocks.Release(id)
	}
	last := m.live[len(m.live)-1]
	m.live[s.index], last.index = last, s.index
	m.live[len(m.live)-1] = nil
	m.live = m.live[:len(m.live)-1]
	s.m = nil
}

// Reset forgets everything cached. While sequences are live it changes nothing and
// returns their number and ErrHeld.
func (m *Manager) Reset() (held int, err error) {
	if len(m.live) > 0 {
		return len(m.live), fmt.Errorf("%w: %d", ErrHeld, len(m.live))
	}
	for _, id := range m.tree.Evict(m.tree.Stats().Blocks) {
		m.blocks.Release(id)
		m.past.leave(id, departure{tick: m.clock.tick(), reset: true})
	}
	if m.sink != nil {
		m.sink.Cleared()
	}
	return 0, nil
}

// mustOwn panics on a sequence of another manager, or one that was freed.
func (m *Manager) mustOwn(s *Sequence) {
	if s.m != m {
		panic(fmt.Sprintf("kvcache: sequence of %d tokens was freed or is another manager's", len(s.tokens)))
	}
}
