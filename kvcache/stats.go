package kvcache

// Stats counts blocks, and what is in the tree.
type Stats struct {
	Total     int    `json:"total"`     // blocks: Free + Held
	Free      int    `json:"free"`      // blocks that nobody holds
	Held      int    `json:"held"`      // blocks that a sequence or the tree holds
	Cached    int    `json:"cached"`    // blocks in the tree, whether sequences hold them or not
	Evictable int    `json:"evictable"` // blocks in the tree that no sequence holds
	Evicted   uint64 `json:"evicted"`   // blocks evicted for others since the start; Reset does not count
	Tokens    int    `json:"tokens"`    // tokens in the tree
	Nodes     int    `json:"nodes"`     // nodes in the tree
	Salts     int    `json:"salts"`     // salts in the tree
	Sequences int    `json:"sequences"` // live sequences
}

// Stats returns the current counts. It costs nothing.
func (m *Manager) Stats() Stats {
	t := m.tree.Stats()
	return Stats{
		Total:     m.blocks.Total(),
		Free:      m.blocks.Free(),
		Held:      m.blocks.Held(),
		Cached:    t.Blocks,
		Evictable: t.Evictable,
		Evicted:   m.evicted,
		Tokens:    t.Tokens,
		Nodes:     t.Nodes,
		Salts:     t.Salts,
		Sequences: len(m.live),
	}
}
