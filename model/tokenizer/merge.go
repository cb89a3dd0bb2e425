package tokenizer

import (
	"slices"

	"github.com/sugarme/tokenizer/model/bpe"
)

// merger joins the symbols of one piece into tokens.
//
//   - The merge with the lowest rank goes first, among equals the leftmost: GPT-2's order.
//   - A symbol with Len 0 has been joined into its left neighbour.
//   - The queue may hold merges that are no longer possible; one is real only if the pair
//     now at its position still has its rank.
//   - A piece of n bytes takes O(n log n): each join queues at most two new candidates.
//
// The buffers are reused from piece to piece, so a merger belongs to one Encode call.
type merger struct {
	merges bpe.Merges
	word   bpe.Word
	queue  []candidate
}

// candidate is a possible merge, rank<<32 | position of its left symbol, so that plain
// integer order is the order of merging.
type candidate uint64

// start fills the word with one symbol per byte of piece. It is linear, which
// bpe.Word.Add, copying all symbols at each call, is not. A byte without a token is
// reported by its index.
func (m *merger) start(piece string, letters *[256]int) (missing int, ok bool) {
	m.word.Symbols = slices.Grow(m.word.Symbols[:0], len(piece))
	for i := range len(piece) {
		id := letters[piece[i]]
		if id < 0 {
			return i, false
		}
		m.word.Symbols = append(m.word.Symbols, bpe.Symbol{C: id, Prev: i - 1, Next: i + 1, Len: 1})
	}
	m.word.Symbols[len(piece)-1].Next = -1
	return 0, true
}

// mergeAll joins symbols until no pair of neighbours has a merge.
func (m *merger) mergeAll() {
	symbols := m.word.Symbols
	for i := range len(symbols) - 1 {
		m.offer(i)
	}
	for len(m.queue) > 0 {
		next := m.pop()
		pos := int(uint32(next))
		left := &symbols[pos]
		if left.Len == 0 || left.Next < 0 {
			continue
		}
		right := &symbols[left.Next]
		merge, ok := m.merges[bpe.Pair{C1: left.C, C2: right.C}]
		if !ok || merge.Rank != int(next>>32) {
			continue
		}
		left.MergeWith(right, merge.NewId)
		right.Len = 0
		if left.Next >= 0 {
			symbols[left.Next].Prev = pos
			m.offer(pos)
		}
		if left.Prev >= 0 {
			m.offer(left.Prev)
		}
	}
}

// appendIDs appends the word's tokens to ids.
func (m *merger) appendIDs(ids []int32) []int32 {
	for i := 0; i >= 0; i = m.word.Symbols[i].Next {
		ids = append(ids, int32(m.word.Symbols[i].C))
	}
	return ids
}

// offer queues the merge of the symbol at pos, which has a right neighbour, with it.
func (m *merger) offer(pos int) {
	left := &m.word.Symbols[pos]
	merge, ok := m.merges[bpe.Pair{C1: left.C, C2: m.word.Symbols[left.Next].C}]
	if ok {
		m.push(candidate(merge.Rank)<<32 | candidate(pos))
	}
}

// push and pop keep queue a binary heap; container/heap would box every candidate.
func (m *merger) push(c candidate) {
	m.queue = append(m.queue, c)
	for i := len(m.queue) - 1; i > 0; {
		parent := (i - 1) / 2
		if m.queue[parent] <= m.queue[i] {
			break
		}
		m.queue[parent], m.queue[i] = m.queue[i], m.queue[parent]
		i = parent
	}
}

func (m *merger) pop() candidate {
	top := m.queue[0]
	last := len(m.queue) - 1
	m.queue[0] = m.queue[last]
	m.queue = m.queue[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && m.queue[child+1] < m.queue[child] {
			child++
		}
		if m.queue[i] <= m.queue[child] {
			return top
		}
		m.queue[i], m.queue[child] = m.queue[child], m.queue[i]
		i = child
	}
}
