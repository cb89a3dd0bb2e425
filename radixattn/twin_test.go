package radixattn

import (
	"cmp"
	"slices"

	"tailor/paging"
)

// twin is what a Tree promises, by brute force: a list of blocks, each with the whole
// token path up to its last row. It has no nodes, so it cannot get a split wrong.
type twin struct {
	size   int
	order  Eviction
	blocks []*twinBlock
	clock  int
}

type twinBlock struct {
	salt  string
	path  []int32 // the tokens up to the block's last row
	id    paging.BlockID
	locks int
	hits  int
	used  int // when the last lock went
}

// twinLock is the prefix a lock covers.
type twinLock struct {
	salt string
	path []int32
}

// at returns the block that ends the path, or nil.
func (w *twin) at(salt string, path []int32) *twinBlock {
	for _, b := range w.blocks {
		if b.salt == salt && slices.Equal(b.path, path) {
			return b
		}
	}
	return nil
}

// match returns the length of the longest prefix that some block's path shares.
func (w *twin) match(salt string, tokens []int32) int {
	best := 0
	for _, b := range w.blocks {
		if b.salt != salt {
			continue
		}
		best = max(best, shared(b.path, tokens))
	}
	return best
}

// whole returns the ids of the blocks of a path that is known to be there.
func (w *twin) whole(salt string, path []int32) []paging.BlockID {
	ids := []paging.BlockID{}
	for end := w.size; end <= len(path); end += w.size {
		ids = append(ids, w.at(salt, path[:end]).id)
	}
	return ids
}

// sources returns every block that could serve the last, partial rows of a match.
func (w *twin) sources(salt string, matched []int32) []paging.BlockID {
	var ids []paging.BlockID
	end := (len(matched)/w.size + 1) * w.size
	for _, b := range w.blocks {
		if b.salt == salt && len(b.path) == end && slices.Equal(b.path[:len(matched)], matched) {
			ids = append(ids, b.id)
		}
	}
	return ids
}

// hold adds delta to the locks of the blocks of path beyond its first from tokens.
func (w *twin) hold(salt string, path []int32, from, delta int) {
	w.clock++
	for end := from + w.size; end <= len(path); end += w.size {
		b := w.at(salt, path[:end])
		b.locks += delta
		if b.locks == 0 {
			b.used = w.clock
		}
	}
}

// lock holds the blocks of path, and counts a hit on each.
func (w *twin) lock(salt string, path []int32) {
	w.hold(salt, path, 0, 1)
	for end := w.size; end <= len(path); end += w.size {
		w.at(salt, path[:end]).hits++
	}
}

func (w *twin) insert(l *twinLock, tokens []int32, ids []paging.BlockID) []Duplicate {
	var duplicates []Duplicate
	from := len(l.path)
	l.path = slices.Concat(l.path, tokens)
	for i, id := range ids {
		path := l.path[:from+(i+1)*w.size]
		if b := w.at(l.salt, path); b != nil {
			duplicates = append(duplicates, Duplicate{i, b.id})
			continue
		}
		w.blocks = append(w.blocks, &twinBlock{salt: l.salt, path: path, id: id})
	}
	w.hold(l.salt, l.path, from, 1)
	return duplicates
}

// before says whether a is evicted before b: under LFU that with fewer hits, then the one
// unlocked longer ago. Blocks that were unlocked together lie on one path: the last of them
// goes first.
func (w *twin) before(a, b *twinBlock) bool {
	byHits := 0
	if w.order == LFU {
		byHits = cmp.Compare(a.hits, b.hits)
	}
	return cmp.Or(byHits, cmp.Compare(a.used, b.used), cmp.Compare(len(b.path), len(a.path))) < 0
}

// evict takes the unlocked block that goes before all others, n times.
func (w *twin) evict(n int) []paging.BlockID {
	ids := []paging.BlockID{}
	for range n {
		first := -1
		for i, b := range w.blocks {
			if b.locks == 0 && (first < 0 || w.before(b, w.blocks[first])) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		ids = append(ids, w.blocks[first].id)
		w.blocks = slices.Delete(w.blocks, first, first+1)
	}
	return ids
}

// stats counts what a tree of these blocks must count. Nodes are left out: how many there
// are is the tree's own affair.
func (w *twin) stats(live []*twinLock) Stats {
	var s Stats
	salts := make(map[string]bool)
	sorted := slices.SortedFunc(slices.Values(w.blocks), func(a, b *twinBlock) int {
		return cmp.Or(cmp.Compare(a.salt, b.salt), slices.Compare(a.path, b.path))
	})
	for i, b := range sorted {
		s.Blocks++
		if b.locks == 0 {
			s.Evictable++
		}
		salts[b.salt] = true
		s.Tokens += len(b.path)
		if i > 0 && sorted[i-1].salt == b.salt {
			s.Tokens -= shared(sorted[i-1].path, b.path) // counted with the path before
		}
	}
	for _, l := range live {
		salts[l.salt] = true
	}
	s.Salts = len(salts)
	return s
}

// shared returns how many leading tokens a and b have in common.
func shared(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
