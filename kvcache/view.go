package kvcache

import (
	"time"

	"tailor/radixattn"
)

// View is a picture of the cache at one moment, for people. It shows the first tokens of
// what is cached under all salts, and so is the operator's alone.
type View struct {
	Time      time.Time `json:"time"`
	BlockSize int       `json:"block_size"`
	Eviction  Eviction  `json:"eviction"`
	Totals    Stats     `json:"totals"` // of the whole cache, whatever is shown of it
	Nodes     []Node    `json:"nodes"`
	Truncated bool      `json:"truncated"` // there are more nodes than shown
}

// Node is one run of tokens in the prefix tree.
type Node struct {
	radixattn.NodeView
	Used time.Time `json:"used"` // when the last sequence let go of it; now, while one holds it
}

// View describes up to limit nodes of the prefix tree: first those that sequences hold,
// then the others from the one that stays longest to the one to be evicted first. Under LRU
// these are the most recently used first. Every node comes after its parent, so what is
// shown is a tree at any limit. It changes nothing, and takes less than a millisecond for
// 1000 nodes, however many there are.
func (m *Manager) View(limit int) View {
	now := m.clock.tick()
	v := View{
		Time:      m.clock.time(now),
		BlockSize: m.cfg.BlockSize,
		Eviction:  m.cfg.Eviction,
		Totals:    m.Stats(),
		Nodes:     []Node{}, // [] in JSON, not null
	}
	for _, n := range m.tree.View(m.locks(), limit) {
		v.Nodes = append(v.Nodes, Node{NodeView: n, Used: m.clock.time(n.Tick)})
	}
	v.Truncated = len(v.Nodes) < v.Totals.Nodes
	return v
}

// locks returns the locks of the live sequences.
func (m *Manager) locks() []*radixattn.Lock {
	locks := make([]*radixattn.Lock, len(m.live))
	for i, s := range m.live {
		locks[i] = s.lock
	}
	return locks
}
