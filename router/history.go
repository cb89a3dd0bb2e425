package router

import (
	"sync"

	"tailor/router/policy"
)

// history is what has ever been asked for, as far as it fits: what one cache that never
// forgets would hold.
//
//   - Two generations: what is asked for enters the young one. When that is full it becomes
//     the old one, and the old one is forgotten.
//   - Closed under prefixes, since a chain enters as a whole.
//   - A generation has at most limit blocks, and the chain that was the last to enter.
//   - Not safe for concurrent use: the registry's lock covers it.
type history struct {
	limit      int
	young, old map[policy.Hash]struct{}
}

func newHistory(limit int) *history {
	return &history{limit: limit, young: map[policy.Hash]struct{}{}}
}

// match is how many blocks of the chain, from its beginning, have been asked for before.
func (h *history) match(chain []policy.Hash) int {
	for i, b := range chain {
		if _, ok := h.young[b]; ok {
			continue
		}
		if _, ok := h.old[b]; !ok {
			return i
		}
	}
	return len(chain)
}

func (h *history) add(chain []policy.Hash) {
	if len(h.young) >= h.limit {
		h.young, h.old = map[policy.Hash]struct{}{}, h.young
	}
	for _, b := range chain {
		h.young[b] = struct{}{}
	}
}

// past tells a prompt that was lost from one that is new. Safe for concurrent use.
type past struct {
	mu     sync.Mutex
	seen   *history // under the salt of whoever asked
	salted *history // prompts of salted requests, as if they had had no salt
}

func newPast(limit int) *past {
	return &past{seen: newHistory(limit), salted: newHistory(limit)}
}

// look returns how many blocks of the prompts have been asked for before, under the same
// salt and under any, and remembers them.
func (p *past) look(q *prompt) (seen, anySalt int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range q.chains {
		own := p.seen.match(c.blocks)
		others := p.salted.match(c.open)
		if c.salted {
			others = max(others, p.seen.match(c.open))
		}
		seen, anySalt = seen+own, anySalt+max(own, others)
	}
	for _, c := range q.chains {
		p.seen.add(c.blocks)
		if c.salted {
			p.salted.add(c.open)
		}
	}
	return seen, anySalt
}
