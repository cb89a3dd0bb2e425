package radixattn

import (
	"encoding/json"
	"slices"
	"testing"

	"tailor/paging"
)

func TestEvictionNames(t *testing.T) {
	for _, order := range []Eviction{LRU, LFU} {
		text, err := json.Marshal(order)
		if err != nil || string(text) != `"`+order.String()+`"` {
			t.Errorf("%v: %s, %v", order, text, err)
		}
		back := LFU - order
		if err := json.Unmarshal(text, &back); err != nil || back != order {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	order := LFU
	if err := order.UnmarshalText([]byte("LRU")); err == nil || order != LFU {
		t.Errorf("LRU: %v, %v", order, err)
	}
	if _, err := Eviction(2).MarshalText(); err == nil || Eviction(2).String() != "Eviction(2)" {
		t.Errorf("%v: %v", Eviction(2), err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a tree with an unknown order of eviction: no panic")
		}
	}()
	New(2, WithEviction(2))
}

// TestFault10_split_hits: both halves of a split have its hits, so that what was hit stays
// whole under LFU, and the cold tail goes.
func TestFault10_split_hits(t *testing.T) {
	tree := New(2, WithEviction(LFU))
	cache(t, tree, "", []int32{1, 1, 1, 1, 1, 1}, 0)
	for range 3 {
		tree.Unlock(tree.Lock(tree.Match("", []int32{1, 1, 1, 1, 1, 1})))
	}
	cache(t, tree, "", []int32{2, 2}, 3)
	tree.Unlock(tree.Lock(tree.Match("", []int32{2, 2})))
	l := tree.Lock(tree.Match("", []int32{1, 1, 9})) // splits after the first block
	check(t, tree, l)
	tree.Unlock(l)
	var hits []int
	for _, n := range tree.View(nil, 9) {
		hits = append(hits, n.Hits)
	}
	if !slices.Equal(hits, []int{4, 3, 1}) {
		t.Errorf("hits %v, want 4 for the first block, 3 for the two after it, 1 for the other", hits)
	}
	if got, want := tree.Evict(9), []paging.BlockID{3, 2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
	check(t, tree)
}

// TestFault16_inflated_hits: a hit is a prefix looked for and found. Computing it, even a
// second time beside another, or sharing a lock of it, is none.
func TestFault16_inflated_hits(t *testing.T) {
	tree := New(2, WithEviction(LFU))
	a, b := tree.Lock(tree.Match("", nil)), tree.Lock(tree.Match("", nil))
	tree.Insert(a, []int32{1, 1}, []paging.BlockID{0})
	tree.Insert(b, []int32{1, 1}, []paging.BlockID{1})
	c := tree.Share(a)
	tree.Match("", []int32{1, 1})
	check(t, tree, a, b, c)
	if got := tree.View([]*Lock{a, b, c}, 1); got[0].Hits != 0 || got[0].Locks != 3 {
		t.Errorf("%+v, want no hit and 3 locks", got[0])
	}
	d := tree.Lock(tree.Match("", []int32{1, 1}))
	if got := tree.View([]*Lock{a, b, c, d}, 1); got[0].Hits != 1 || got[0].Locks != 4 {
		t.Errorf("%+v, want 1 hit and 4 locks", got[0])
	}
}

// TestLFUKeepsTheFavourite: one prompt that is asked for again survives any number that are
// not; under LRU it does not.
func TestLFUKeepsTheFavourite(t *testing.T) {
	for _, order := range []Eviction{LRU, LFU} {
		tree := New(1, WithEviction(order))
		cache(t, tree, "", []int32{0}, 0)
		tree.Unlock(tree.Lock(tree.Match("", []int32{0})))
		for token := range int32(20) {
			cache(t, tree, "", []int32{token + 1}, paging.BlockID(token+1))
			tree.Evict(tree.Stats().Blocks - 5)
		}
		if got, want := tree.Match("", []int32{0}).Tokens, int(order); got != want {
			t.Errorf("%v: %d tokens left of the favourite, want %d", order, got, want)
		}
	}
}

// TestClockBack: a clock that goes back does not put what was used later before what was
// used earlier.
func TestClockBack(t *testing.T) {
	now := uint32(7)
	tree := New(1, WithClock(func() uint32 { return now }))
	cache(t, tree, "", []int32{1}, 0)
	now = 3
	cache(t, tree, "", []int32{2}, 1)
	now = 9
	l := tree.Lock(tree.Match("", []int32{1}))
	if got := tree.View([]*Lock{l}, 2); got[0].Tick != 9 || got[1].Tick != 7 {
		t.Errorf("%+v, want 9 for what is locked now and 7 for the other", got)
	}
}
