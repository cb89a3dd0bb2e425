package radixattn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String draws the tree, a line per node, children by their first token. An unlocked
// node's line ends with its place in the order of eviction, 1 for the first to go:
//
//	"salt" locks 1
//	  [0,6) 1 2 3 4 5 6 | blocks 0 | hits 1 | locks 1
//	    [6,8) 7 8 | blocks 1 | locks 1
//	    [6,12) 9 9 9 9 9 9 | blocks 2 3 | evict 1
func (t *Tree) String() string {
	rank := make(map[*node]int, t.order.len)
	for n := range t.order.backward() {
		rank[n] = t.order.len - len(rank)
	}
	var b strings.Builder
	for _, salt := range slices.Sorted(maps.Keys(t.roots)) {
		r := t.roots[salt]
		fmt.Fprintf(&b, "%q", salt)
		if r.locks > 0 {
			fmt.Fprintf(&b, " locks %d", r.locks)
		}
		b.WriteByte('\n')
		draw(&b, r, rank, "  ")
	}
	return b.String()
}

func draw(b *strings.Builder, n *node, rank map[*node]int, indent string) {
	if n.kids == nil {
		return
	}
	edges := slices.Clone(n.kids.edges)
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Compare(x.token, y.token) })
	for _, e := range edges {
		fmt.Fprintf(b, "%s[%d,%d) %s", indent, e.child.start, e.child.end(), joined(e.child.tokens))
		if len(e.child.blocks) > 0 {
			fmt.Fprintf(b, " | blocks %s", joined(e.child.blocks))
		}
		if e.child.hits > 0 {
			fmt.Fprintf(b, " | hits %d", e.child.hits)
		}
		if e.child.locks > 0 {
			fmt.Fprintf(b, " | locks %d\n", e.child.locks)
		} else {
			fmt.Fprintf(b, " | evict %d\n", rank[e.child])
		}
		draw(b, e.child, rank, indent+"  ")
	}
}

// joined formats numbers with spaces between them.
func joined[E ~int32](numbers []E) string {
	return strings.Trim(fmt.Sprint(numbers), "[]")
}
