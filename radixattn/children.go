package radixattn

// indexFrom is the number of children from which on a map finds them. Below it, a scan
// of a few neighbouring edges is faster and takes no memory of its own.
const indexFrom = 9

// edge leads to the child whose first token is token.
type edge struct {
	token int32
	child *node
}

// children is the set of a node's children, told apart by their first token. The
// edges lie side by side in no particular order; the index, where there is one, says
// where in edges a token's edge is. So a node with two children costs two edges, and
// one with 50,000 is still searched and changed in constant time. (A map alone costs
// about 200 bytes from the first child on; a sorted slice moves 800 kB per change at
// 50,000.)
type children struct {
	edges []edge
	index map[int32]int32 // token -> position in edges; nil while the edges are few
}

// find returns the position of a token's edge, or -1.
func (c *children) find(token int32) int {
	if c.index != nil {
		if i, ok := c.index[token]; ok {
			return int(i)
		}
		return -1
	}
	for i := range c.edges {
		if c.edges[i].token == token {
			return i
		}
	}
	return -1
}

// add adds a child; there must be none with its first token.
func (c *children) add(n *node) {
	if cap(c.edges) == 0 {
		c.edges = make([]edge, 0, 2) // a split makes two; append would start with one
	}
	token := n.tokens[0]
	c.edges = append(c.edges, edge{token, n})
	switch {
	case c.index != nil:
		c.index[token] = int32(len(c.edges) - 1)
	case len(c.edges) >= indexFrom:
		c.index = make(map[int32]int32, 2*indexFrom)
		for i, e := range c.edges {
			c.index[e.token] = int32(i)
		}
	}
}

// replace puts n in the place of the child with the same first token.
func (c *children) replace(n *node) { c.edges[c.find(n.tokens[0])].child = n }

// remove takes a child away. The last edge moves into its place.
func (c *children) remove(token int32) {
	i, last := c.find(token), len(c.edges)-1
	moved := c.edges[last]
	c.edges[i] = moved
	c.edges[last] = edge{}
	c.edges = c.edges[:last]
	if c.index == nil {
		return
	}
	c.index[moved.token] = int32(i)
	delete(c.index, token)
	if last < indexFrom/2 { // well below indexFrom, so that a node at the border does not flap
		c.index = nil
		c.edges = append(make([]edge, 0, indexFrom), c.edges...)
	}
}
