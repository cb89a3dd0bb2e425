package radixattn

import (
	"fmt"

	"tailor/paging"
)

// Match is the longest prefix of some tokens that a tree holds. It is valid until the
// tree changes; Lock panics on a stale one.
type Match struct {
	// Tokens is the number of leading tokens whose rows the tree holds: any number, not
	// only whole blocks.
	Tokens int
	// Source is a block that holds the Rows() last matched tokens in its first rows, or
	// NoBlock where the match ends at a block boundary. Lock does not protect it: copy
	// the rows before the block is written again.
	Source paging.BlockID

	tree    *Tree
	version uint64
	salt    string
	node    *node // covers the last row of the last whole block; a root if there is none; nil if the salt is unknown
}

// Whole returns the number of whole blocks matched.
func (m Match) Whole() int { return m.Tokens / m.tree.blockSize }

// Rows returns the number of tokens matched beyond the whole blocks.
func (m Match) Rows() int { return m.Tokens % m.tree.blockSize }

// Match finds the longest prefix of tokens cached under salt. It changes nothing, not
// even the order of eviction.
func (t *Tree) Match(salt string, tokens []int32) Match {
	m := Match{Source: paging.NoBlock, tree: t, version: t.version, salt: salt}
	at := t.roots[salt] // the deepest node matched in part or in full
	if at == nil {
		return m
	}
	for m.Tokens < len(tokens) {
		next := at.child(tokens[m.Tokens])
		if next == nil {
			break
		}
		k := commonPrefix(next.tokens, tokens[m.Tokens:])
		m.Tokens += k
		at = next
		if k < len(next.tokens) {
			break
		}
	}

	whole := m.Whole() * t.blockSize
	if m.Rows() > 0 {
		// Leaves end at block boundaries, so there is a descendant to the block's last
		// row, and every step down covers at least one of its rows.
		holder := at
		for holder.end() < whole+t.blockSize {
			holder = holder.anyChild()
		}
		m.Source = holder.blocks[m.Whole()-holder.first(t.blockSize)]
	}
	for at.parent != nil && int(at.start) >= whole {
		at = at.parent
	}
	m.node = at
	return m
}

// Blocks returns the whole blocks matched, in order.
func (m Match) Blocks() []paging.BlockID {
	m.mustBeFresh()
	blocks := make([]paging.BlockID, m.Whole())
	for n, to := m.node, len(blocks); to > 0; n = n.parent {
		from := n.first(m.tree.blockSize)
		copy(blocks[from:to], n.blocks)
		to = from
	}
	return blocks
}

// Idle returns how many of the whole blocks matched no lock covers: by so many blocks
// Lock reduces what can be evicted.
func (m Match) Idle() int {
	m.mustBeFresh()
	idle := 0
	for n, to := m.node, m.Whole(); to > 0 && n.locks == 0; n = n.parent {
		from := n.first(m.tree.blockSize)
		idle += to - from
		to = from
	}
	return idle
}

func (m Match) mustBeFresh() {
	if m.version != m.tree.version {
		panic(fmt.Sprintf("radixattn: match of %d tokens used after %d changes of the tree", m.Tokens, m.tree.version-m.version))
	}
}

// commonPrefix returns how many leading tokens a and b share.
func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	for i, token := range a {
		if token != b[i] {
			return i
		}
	}
	return n
}
