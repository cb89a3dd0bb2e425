package radixattn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tailor/paging"
)

// view checks a view of the whole tree against the twin's blocks, and a shorter one, which
// must be its beginning.
func (w *world) view() error {
	if w.views++; w.views%4 != 0 {
		return nil
	}
	before := w.tree.String()
	nodes := w.tree.View(w.locks, 1<<30)
	if after := w.tree.String(); after != before {
		return fmt.Errorf("it changed the tree from\n%s\nto\n%s", before, after)
	}
	if limit := w.choose.IntN(len(nodes) + 2); !reflect.DeepEqual(w.tree.View(w.locks, limit), nodes[:min(limit, len(nodes))]) {
		return fmt.Errorf("with limit %d it is not the beginning of the whole", limit)
	}
	stats, children := Stats{Nodes: w.tree.Stats().Nodes}, make([]int, len(nodes))
	var blocks []twinBlock
	for i, n := range nodes {
		stats.Tokens += n.Tokens
		stats.Blocks += n.Blocks
		stats.Nodes--
		if n.Parent < 0 {
			stats.Salts = max(stats.Salts, n.Salt+1)
		}
		if n.Locks == 0 {
			stats.Evictable += n.Blocks
		}
		switch p := n.Parent; {
		case p >= i || p < 0 && (n.Start != 0 || n.Depth != 0):
			return fmt.Errorf("node %d: %+v: its parent comes after it, or it has none", i, n)
		case p >= 0 && (n.Start != nodes[p].Start+nodes[p].Tokens || n.Depth != nodes[p].Depth+1 || n.Salt != nodes[p].Salt):
			return fmt.Errorf("node %d: %+v does not follow %+v", i, n, nodes[p])
		case i > 0 && n.Locks > 0 && nodes[i-1].Locks == 0:
			return fmt.Errorf("node %d: %+v is locked and comes after one that is not", i, n)
		case i > 0 && w.twin.order == LRU && n.Tick > nodes[i-1].Tick && nodes[i-1].Locks == 0:
			return fmt.Errorf("node %d: %+v was used after %+v", i, n, nodes[i-1])
		case len(n.First) != min(n.Tokens, 8):
			return fmt.Errorf("node %d: %+v shows %d tokens", i, n, len(n.First))
		}
		if n.Parent >= 0 {
			children[n.Parent]++
		}
		for range n.Blocks {
			blocks = append(blocks, twinBlock{hits: n.Hits, locks: n.Locks})
		}
	}
	for i, n := range nodes {
		if n.Children != children[i] {
			return fmt.Errorf("node %d: %+v has %d children", i, n, children[i])
		}
	}
	want := w.twin.stats(nil)
	if stats != want {
		return fmt.Errorf("it sums up to %+v, want %+v", stats, want)
	}

	// Each block has the hits and locks of its node.
	byHits := func(a, b twinBlock) int { return cmp.Or(cmp.Compare(a.hits, b.hits), cmp.Compare(a.locks, b.locks)) }
	var wantBlocks []twinBlock
	for _, b := range w.twin.blocks {
		wantBlocks = append(wantBlocks, twinBlock{hits: b.hits, locks: b.locks})
	}
	slices.SortFunc(blocks, byHits)
	slices.SortFunc(wantBlocks, byHits)
	if !reflect.DeepEqual(blocks, wantBlocks) {
		return fmt.Errorf("blocks %+v, want %+v", blocks, wantBlocks)
	}
	return nil
}

// TestView: what is locked comes first, then what is evicted last; each node after its
// parent, with what a reader needs to draw the tree.
func TestView(t *testing.T) {
	tree, locks := plant()
	tree.Unlock(tree.Lock(tree.Match("a", []int32{8, 8})))
	const want = `
		{"salt":0,"parent":-1,"depth":0,"start":0,"tokens":2,"first":[1,2],"blocks":1,"locks":2,"hits":1,"children":1}
		{"salt":0,"parent":0,"depth":1,"start":2,"tokens":1,"first":[3],"blocks":0,"locks":2,"hits":0,"children":2}
		{"salt":0,"parent":1,"depth":2,"start":3,"tokens":1,"first":[4],"blocks":1,"locks":1,"hits":0,"children":0}
		{"salt":0,"parent":1,"depth":2,"start":3,"tokens":3,"first":[5,6,7],"blocks":2,"locks":1,"hits":0,"children":0}
		{"salt":0,"parent":-1,"depth":0,"start":0,"tokens":2,"first":[8,8],"blocks":1,"locks":0,"hits":1,"children":0}
		{"salt":0,"parent":-1,"depth":0,"start":0,"tokens":4,"first":[9,9,9,9],"blocks":2,"locks":0,"hits":0,"children":0}`
	var got strings.Builder
	var ticks []uint32
	for _, n := range tree.View(locks, 10) {
		line, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("\n\t\t" + string(line))
		ticks = append(ticks, n.Tick)
	}
	if got.String() != want {
		t.Errorf("got%s\nwant%s", got.String(), want)
	}
	if !slices.IsSortedFunc(ticks, func(a, b uint32) int { return cmp.Compare(b, a) }) {
		t.Errorf("last use at %v, want the latest first", ticks)
	}
	for limit := -1; limit < 3; limit++ {
		if got := len(tree.View(locks, limit)); got != max(0, limit) {
			t.Errorf("limit %d: %d nodes", limit, got)
		}
	}
}

// TestViewKeepsTheSalt: a view tells salts apart and does not tell what they are.
func TestViewKeepsTheSalt(t *testing.T) {
	tree := New(2)
	for i, salt := range []string{"tenant-secret-1", "tenant-secret-2"} {
		cache(t, tree, salt, []int32{1, 2, 3, 4}, paging.BlockID(2*i))
	}
	nodes := tree.View(nil, 10)
	if len(nodes) != 2 || nodes[0].Salt != 0 || nodes[1].Salt != 1 {
		t.Errorf("%+v, want a node of salt 0 and one of salt 1", nodes)
	}
	if text := fmt.Sprintf("%+v", nodes); strings.Contains(text, "secret") {
		t.Errorf("a salt is in %s", text)
	}
}
