package workload

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Invariants of a cache:
//   - The children of a block are sorted by their units and differ from one another. So the
//     one that has most in common with what is looked for is next to where that would be.
//   - blocks counts those in the tree. With those that the request being served has for
//     itself they are never more than capacity.
//   - A block's used is when the last request that needed it ended: held while one does, and
//     gone once it is evicted. It is never less than that of a child.
//   - Every childless block that is not held is in leaves with its present used. Whatever else
//     is in there is out of date.

// cache is one cache of KV blocks that is sent requests one after another. It counts what
// it would reuse and holds no keys and values.
type cache struct {
	size     int // units of a block
	capacity int // blocks
	roots    map[string]*block
	blocks   int
	leaves   leaves
	entered  int // blocks, ever
	now      int // requests served
}

// block is a full block of units, after those above it.
type block struct {
	units  []int32
	parent *block
	kids   []*block
	used   int
	number int // of all that entered the tree, in order
}

const (
	held = math.MaxInt
	gone = -1
)

func newCache(size, capacity int) *cache {
	return &cache{size: size, capacity: capacity, roots: map[string]*block{}}
}

// served is what became of one request.
type served struct {
	path  []*block // its full blocks, at its end
	whole int      // how many of them it found
	rows  int      // units found after these
	// excess is by how much more units than rows it could have found after fewer whole blocks,
	// had the next of them not been there.
	excess int
}

// serve is one request from its arrival to its end, as the engine serves it alone. It must
// not need more blocks than there are.
func (c *cache) serve(s Sent) served {
	root := c.roots[s.Salt]
	if root == nil {
		root = &block{used: held} // for ever
		c.roots[s.Salt] = root
	}
	r := c.match(root, s.Prompt[:len(s.Prompt)-1])
	at, own := root, 0 // own: blocks that this request has for itself
	if r.whole > 0 {
		at = r.path[r.whole-1]
	}
	// The prompt's blocks are taken all at once, before any of them is full, then those
	// of the answer one by one.
	units := s.rows()
	for next, end := r.whole, len(s.Prompt); end <= len(units); end++ {
		take := blocksFor(end, c.size) - (len(r.path) + own)
		for c.blocks+own+take > c.capacity {
			c.evict()
		}
		own += take
		for ; (next+1)*c.size <= end; next++ {
			full := units[next*c.size : (next+1)*c.size]
			own-- // the tree has it now, unless it had one like it
			kid, _ := at.find(full)
			if kid == nil {
				kid = c.insert(at, full)
			}
			kid.used = held
			r.path = append(r.path, kid)
			at = kid
		}
	}
	c.now++
	for _, b := range r.path {
		b.used = c.now
	}
	c.mayLeave(at)
	return r
}

// match finds what there is of a prompt, and holds its whole blocks.
func (c *cache) match(at *block, findable []int32) (r served) {
	beside := 0
	for {
		next, common := at.find(findable[:min(c.size, len(findable))])
		if next == nil || len(findable) < c.size {
			r.rows = common
			break
		}
		beside = max(beside, common)
		next.used = held
		r.path = append(r.path, next)
		at, findable = next, findable[c.size:]
	}
	r.whole = len(r.path)
	r.excess = max(0, beside-r.rows)
	return r
}

// find returns the child that is just these units, if there is one, and how many of them
// the others have at their beginning, at most.
func (b *block) find(units []int32) (*block, int) {
	i := sort.Search(len(b.kids), func(i int) bool { return slices.Compare(b.kids[i].units, units) >= 0 })
	var same *block
	common := 0
	if i > 0 {
		common = commonPrefix(b.kids[i-1].units, units)
	}
	if i < len(b.kids) && slices.Equal(b.kids[i].units, units) {
		same = b.kids[i]
		i++
	}
	if i < len(b.kids) {
		common = max(common, commonPrefix(b.kids[i].units, units))
	}
	return same, common
}

// insert adds a child that is not there.
func (c *cache) insert(at *block, units []int32) *block {
	b := &block{units: units, parent: at, used: held, number: c.entered}
	c.entered++
	c.blocks++
	i := sort.Search(len(at.kids), func(i int) bool { return slices.Compare(at.kids[i].units, units) >= 0 })
	at.kids = slices.Insert(at.kids, i, b)
	return b
}

// evict takes out the childless block that was used longest ago.
func (c *cache) evict() {
	for {
		if len(c.leaves) == 0 {
			panic(fmt.Sprintf("workload: nothing to evict with %d of %d blocks in the tree", c.blocks, c.capacity))
		}
		oldest := heap.Pop(&c.leaves).(leaf)
		b := oldest.block
		if b.used != oldest.used || len(b.kids) > 0 {
			continue
		}
		above := b.parent
		i := sort.Search(len(above.kids), func(i int) bool { return slices.Compare(above.kids[i].units, b.units) >= 0 })
		above.kids = slices.Delete(above.kids, i, i+1)
		b.used = gone
		c.blocks--
		c.mayLeave(above)
		return
	}
}

// mayLeave notes a block that has no children any more, or none yet.
func (c *cache) mayLeave(b *block) {
	if len(b.kids) == 0 && b.used != held {
		heap.Push(&c.leaves, leaf{block: b, used: b.used})
	}
}

// leaf is a block that could be evicted when it had been used at that time.
type leaf struct {
	block *block
	used  int
}

// leaves is a heap, what was used longest ago on top. No two that are up to date are equal:
// what one request used is a path, which has one end.
type leaves []leaf

func (l leaves) Len() int           { return len(l) }
func (l leaves) Less(i, j int) bool { return l[i].used < l[j].used }
func (l leaves) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *leaves) Push(x any)        { *l = append(*l, x.(leaf)) }

func (l *leaves) Pop() any {
	last := len(*l) - 1
	top := (*l)[last]
	*l = (*l)[:last]
	return top
}
