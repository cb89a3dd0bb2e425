package radixattn

import (
	"fmt"
	"math"
	"slices"

	"tailor/paging"
)

// Lock keeps a prefix of whole blocks in the tree. It ends at the last token of a node
// and covers that node and everything above it. A user has one lock and moves it down
// with Insert.
type Lock struct {
	node *node // nil: unlocked
}

// Lock protects the whole blocks of a match from eviction, until Unlock, and counts a hit
// on every node they are in. A node that reaches beyond them is split, so that its rest
// stays evictable.
func (t *Tree) Lock(m Match) *Lock {
	if m.tree != t {
		panic("radixattn: match of another tree")
	}
	m.mustBeFresh()
	t.version++
	n := m.node
	if n == nil {
		n = t.root(m.salt)
	}
	if whole := m.Whole() * t.blockSize; whole < n.end() {
		n = t.split(n, whole-int(n.start))
	}
	t.hold(n, nil)
	for at := n; !at.isRoot(); at = at.parent {
		if at.hits < math.MaxUint32 {
			at.hits++
		}
	}
	return &Lock{node: n}
}

// Share returns a second lock of what l covers. It does not count as a hit: nobody looked
// for that prefix.
func (t *Tree) Share(l *Lock) *Lock {
	n := l.mustHold()
	t.version++
	t.hold(n, nil)
	return &Lock{node: n}
}

// hold counts one lock more on n and its ancestors below until.
func (t *Tree) hold(n, until *node) {
	for ; n != until; n = n.parent {
		if n.locks == 0 && !n.isRoot() {
			t.order.remove(n)
			t.evictable -= len(n.blocks)
		}
		n.locks++
	}
}

// Tokens returns the number of tokens the lock covers: a multiple of the block size.
func (l *Lock) Tokens() int { return l.mustHold().end() }

func (l *Lock) mustHold() *node {
	if l.node == nil {
		panic("radixattn: lock used after Unlock")
	}
	return l.node
}

// Duplicate says that the tree has a block of its own for the tokens of Insert's block
// Index. The caller goes on with Block and keeps its own out of the tree.
type Duplicate struct {
	Index int
	Block paging.BlockID
}

// Insert adds the tokens that follow the locked prefix, a whole number of blocks, and
// moves the lock to their end. The tree now holds the given blocks, except those for
// which it already had one with the same tokens: these it returns, in order.
func (t *Tree) Insert(l *Lock, tokens []int32, blocks []paging.BlockID) []Duplicate {
	from := l.mustHold()
	if len(tokens) != len(blocks)*t.blockSize {
		panic(fmt.Sprintf("radixattn: insert of %d tokens in %d blocks of %d", len(tokens), len(blocks), t.blockSize))
	}
	t.version++
	base := from.end() / t.blockSize // blocks above the lock's end
	at, pos := from, 0
	var duplicates []Duplicate
	for pos < len(tokens) {
		next := at.child(tokens[pos])
		if next == nil {
			owned := blocks[(base*t.blockSize+pos)/t.blockSize-base:]
			at = t.grow(l, at, tokens[pos:], owned)
			break
		}
		k := commonPrefix(next.tokens, tokens[pos:])
		if k < len(next.tokens) {
			next = t.split(next, k)
		}
		for i, id := range next.blocks {
			duplicates = append(duplicates, Duplicate{Index: next.first(t.blockSize) + i - base, Block: id})
		}
		at, pos = next, pos+k
	}
	t.hold(at, from)
	l.node = at
	return duplicates
}

// grow adds a run of tokens below at and returns the node that ends with them. Where at
// is a leaf that only l holds, that is at itself: a sequence that commits block after
// block has one node, not one per block. Another lock that ends there forbids it, since
// that lock would hold the new blocks too; and so do hits, which the new blocks had not.
func (t *Tree) grow(l *Lock, at *node, tokens []int32, blocks []paging.BlockID) *node {
	t.tokens += len(tokens)
	t.blocks += len(blocks)
	if at == l.node && at.kids == nil && at.locks == 1 && at.hits == 0 && !at.isRoot() {
		at.tokens = append(at.tokens, tokens...)
		at.blocks = append(at.blocks, blocks...)
		return at
	}
	leaf := &node{start: int32(at.end()), tokens: slices.Clone(tokens), blocks: slices.Clone(blocks)}
	at.attach(leaf)
	t.order.push(leaf) // hold takes it out again: for a moment it is an unlocked leaf like any other
	t.evictable += len(blocks)
	t.nodes++
	return leaf
}

// Unlock ends a lock. What it alone held becomes evictable, as the most recent of all, or
// of all with as many hits: a prefix counts as used until its last user lets go.
func (t *Tree) Unlock(l *Lock) {
	n := l.mustHold()
	l.node = nil
	t.version++
	if t.clock == nil && t.now < math.MaxUint32 {
		t.now++
	}
	t.now = t.time()
	for !n.isRoot() {
		for n.locks == 1 && n.parent.locks == 1 && !n.parent.isRoot() && n.parent.onlyChild() != nil {
			// Both are about to be unlocked one after the other and would be evicted one
			// after the other: only their hits can tell them apart.
			if !t.mend(n, n.hits == n.parent.hits) {
				break
			}
		}
		n.locks--
		if n.locks == 0 {
			n.used = t.now
			t.order.push(n)
			t.evictable += len(n.blocks)
		}
		n = n.parent
	}
	n.locks--
	t.dropIfEmpty(n)
}
