package report

import (
	"cmp"
	"slices"

	"tailor/internal/bench"
)

// policies are the report's policies in the order they first ran.
func policies(r *bench.Report) []string {
	var names []string
	seen := map[string]bool{}
	for i := range r.Groups {
		if name := r.Groups[i].Policy; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// policyIndex gives every policy the number that picks its colour in all plots: the first to
// the one that the verdict chooses, the others in the order they ran.
func policyIndex(r *bench.Report) map[string]int {
	names := policies(r)
	index := map[string]int{}
	if slices.Contains(names, r.Verdict.Policy) {
		index[r.Verdict.Policy] = 0
	}
	for _, name := range names {
		if _, known := index[name]; !known {
			index[name] = len(index)
		}
	}
	return index
}

// capacities are the KV blocks of a replica that were tried, smallest first; 0 is a capacity
// that nobody knows.
func capacities(r *bench.Report) []int {
	var sizes []int
	for i := range r.Groups {
		sizes = append(sizes, r.Groups[i].KVBlocks)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// atCapacity are the groups that ran with so many blocks, in the order they ran.
func atCapacity(r *bench.Report, blocks int) []*bench.Group {
	var groups []*bench.Group
	for i := range r.Groups {
		if r.Groups[i].KVBlocks == blocks {
			groups = append(groups, &r.Groups[i])
		}
	}
	return groups
}

// shownCapacity is the one that plots with room for one only show: the verdict's, or else
// the largest that ran.
func shownCapacity(r *bench.Report) int {
	sizes := capacities(r)
	if len(sizes) == 0 {
		return 0
	}
	if r.Verdict.KVBlocks > 0 && slices.Contains(sizes, r.Verdict.KVBlocks) {
		return r.Verdict.KVBlocks
	}
	return sizes[len(sizes)-1]
}

// typicalRun is the run with the median number of computed tokens (of two the one with
// fewer): what cannot be averaged over runs is shown of this one. nil where none ran.
func typicalRun(g *bench.Group) *bench.Run {
	if len(g.Runs) == 0 {
		return nil
	}
	order := make([]int, len(g.Runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.Runs[a].Computed, g.Runs[b].Computed) })
	return &g.Runs[order[(len(order)-1)/2]]
}

// repeated tells whether anything ran more than once.
func repeated(r *bench.Report) bool {
	return slices.ContainsFunc(r.Groups, func(g bench.Group) bool { return len(g.Runs) > 1 })
}

// reachable is the share of the prompt that one cache that never evicts would reuse.
func reachable(r *bench.Report) (share float64, known bool) {
	return shareOf(r.Reach.Infinite, r.Reach.Prompt)
}

// boundFor finds the bound for a capacity of each replica: that of one pooled cache as large
// as all of them together.
func boundFor(r *bench.Report, blocks int) (best, lru float64, known bool) {
	if blocks <= 0 {
		return 0, 0, false
	}
	replicas := max(1, r.Replicas) // of a single server nobody needs to know the number
	for _, b := range r.Reach.Bounds {
		if b.Blocks%replicas == 0 && b.Blocks/replicas == blocks {
			best, bestKnown := shareOf(b.Reused, r.Reach.Prompt)
			lru, lruKnown := shareOf(b.LRU, r.Reach.Prompt)
			return best, lru, bestKnown && lruKnown
		}
	}
	return 0, 0, false
}

func shareOf(part, whole int64) (share float64, known bool) {
	if whole <= 0 || part < 0 || part > whole {
		return 0, false
	}
	return float64(part) / float64(whole), true
}

// capacityText names a capacity.
func capacityText(blocks int) string {
	switch blocks {
	case 0:
		return "capacity unknown"
	case 1:
		return "1 KV block per replica"
	}
	return countText(float64(blocks)) + " KV blocks per replica"
}
