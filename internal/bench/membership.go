package bench

import (
	"context"
	"fmt"
	"sync"

	"tailor/internal/bench/workload"
)

// membership is the set of a cluster's replicas during a run: all that there ever were, so
// that none's counters are lost. Safe for concurrent use.
type membership struct {
	client  *client
	cluster *Cluster
	start   []Replica

	mu     sync.Mutex
	joined []Replica
}

// change adds a replica or takes one out.
func (m *membership) change(ctx context.Context, c workload.Change) error {
	if m.cluster.Add == nil || m.cluster.Remove == nil {
		return fmt.Errorf("%w: the workload changes the set of replicas, and this target's cannot be changed", ErrOptions)
	}
	if !c.Add {
		if c.Remove < 0 || c.Remove >= len(m.start) {
			return fmt.Errorf("%w: the workload removes replica %d of %d", ErrOptions, c.Remove, len(m.start))
		}
		return m.cluster.Remove(ctx, m.start[c.Remove].ID)
	}
	r, err := m.cluster.Add(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = append(m.joined, r)
	return nil
}

// read takes down what the replicas and the router have counted.
func (m *membership) read(ctx context.Context) (reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out reading
	for _, list := range [][]Replica{m.start, m.joined} {
		for _, r := range list {
			c, err := readCounters(ctx, m.client, r.URL)
			if err != nil {
				return out, err
			}
			if out.replicas == nil {
				out.replicas = map[string]counters{}
			}
			out.replicas[r.ID] = c
		}
	}
	if m.cluster.Router {
		lost, err := readLost(ctx, m.client, m.cluster.URL)
		if err != nil {
			return out, err
		}
		out.lost = lost
	}
	return out, nil
}
