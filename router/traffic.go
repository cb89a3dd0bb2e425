package router

import (
	"tailor/router/policy"
)

const (
	trafficWindow = 1024 // requests after which what was counted counts half
	trafficDepth  = 128  // blocks of a prompt that are counted
	trafficCells  = 1 << 16
	// trafficPrior is added to the number of requests: of three requests that are all
	// alike nobody should conclude that all are.
	trafficPrior = 16
)

// spreadDepths are the depths, in blocks, that are compared.
var spreadDepths = [...]int{1, 2, 4, 8, 16, 32, 64}

// traffic remembers, roughly, what the recent requests began with: how popular a prefix
// is, and how deep one must look to tell prefixes apart.
//
//   - Counts of prefixes are kept in two rows of cells by two halves of the hash; the lower
//     of a prefix's two cells is its count and at times too high, never too low.
//   - The keys of the few depths that are compared are counted exactly.
//   - After every window all counts are halved.
//   - Not safe for concurrent use: the registry's lock covers it.
type traffic struct {
	requests int // counted as the prefixes are
	fresh    int // since the last halving
	rows     [2][]uint16
	spread   [len(spreadDepths)]spread
	depth    int // chosen; 0: nothing is known yet
}

// spread counts the keys of one depth.
type spread struct {
	counts  map[policy.Hash]int
	keys    int // requests that have a key
	repeats int // of them, those whose key was known
}

func newTraffic() *traffic {
	t := &traffic{}
	for i := range t.rows {
		t.rows[i] = make([]uint16, trafficCells)
	}
	for i := range t.spread {
		t.spread[i].counts = map[policy.Hash]int{}
	}
	return t
}

// add counts a request of the chain; replicas is how many keys must spread over. True: a
// window has ended, and what was counted counts half from now on.
func (t *traffic) add(chain []policy.Hash, replicas int) bool {
	for i, depth := range spreadDepths {
		if depth > len(chain) {
			break
		}
		s, key := &t.spread[i], chain[depth-1]
		s.keys++
		if s.counts[key] > 0 {
			s.repeats++
		}
		s.counts[key]++
	}
	for _, h := range chain[:min(len(chain), trafficDepth)] {
		for _, cell := range t.cells(h) {
			if *cell < 1<<16-1 {
				*cell++
			}
		}
	}
	t.requests++
	if t.fresh++; t.fresh%(trafficWindow/4) == 0 {
		t.depth = t.chooseDepth(replicas)
	}
	if t.fresh < trafficWindow {
		return false
	}
	t.halve()
	return true
}

func (t *traffic) cells(h policy.Hash) [2]*uint16 {
	return [2]*uint16{&t.rows[0][uint64(h)%trafficCells], &t.rows[1][uint64(h)>>32%trafficCells]}
}

func (t *traffic) count(h policy.Hash) int {
	cells := t.cells(h)
	return int(min(*cells[0], *cells[1]))
}

// share is how much of the recent traffic begins with the first blocks of the chain.
func (t *traffic) share(chain []policy.Hash, blocks int) float64 {
	if blocks = min(blocks, trafficDepth); blocks == 0 {
		return 0
	}
	return float64(t.count(chain[blocks-1])) / float64(t.requests+trafficPrior)
}

func (t *traffic) halve() {
	t.fresh = 0
	t.requests /= 2
	for _, row := range t.rows {
		for i := range row {
			row[i] /= 2
		}
	}
	for i := range t.spread {
		s := &t.spread[i]
		s.keys, s.repeats = s.keys/2, s.repeats/2
		for key, n := range s.counts {
			if n /= 2; n == 0 {
				delete(s.counts, key)
			} else {
				s.counts[key] = n
			}
		}
	}
}

const (
	// keysPerReplica is how many equally popular keys a replica should have for the
	// balance of a hash to be tolerable: their number varies by about its root.
	keysPerReplica = 4
	// leastRepeats is the share of keys that must come again for a depth to be of use.
	leastRepeats = 0.1
)

// chooseDepth is the smallest depth whose keys come again and spread over the replicas;
// where none spreads so far, the smallest that spreads nearly as far as any. The number of
// keys is counted as the inverse of Simpson's index: a key that has half the traffic makes
// no more than four of any number.
func (t *traffic) chooseDepth(replicas int) int {
	var effective [len(spreadDepths)]float64
	widest := 0.0
	for i := range t.spread {
		s := &t.spread[i]
		if s.keys < trafficWindow/16 || float64(s.repeats) < leastRepeats*float64(s.keys) {
			continue
		}
		sum, squares := 0.0, 0.0
		for _, c := range s.counts {
			sum += float64(c)
			squares += float64(c) * float64(c)
		}
		if squares > 0 {
			effective[i] = sum * sum / squares
			widest = max(widest, effective[i])
		}
	}
	enough := min(float64(keysPerReplica*replicas), 0.9*widest)
	for i, n := range effective {
		if n > 0 && n >= enough {
			return spreadDepths[i]
		}
	}
	return 0
}
