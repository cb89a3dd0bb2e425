package bench

import "context"

// Recorded is the policy name under which requests go to the replica that the workload
// itself recorded for each of them, by the x-tailor-replica header.
const Recorded = "recorded"

// Replica is one running replica.
type Replica struct{ ID, URL string }

// Cluster is what requests are sent to.
type Cluster struct {
	URL string
	// Router says that URL is a Tailor router, which tells where reuse was lost.
	Router bool
	// Replicas are those whose counters can be read; none if nobody counts there.
	Replicas []Replica
	// Add starts another replica and returns when requests may reach it. Remove takes one
	// out of the choice; it goes on to answer what it has, and tells its counters, until
	// Close. Both are nil where the set of replicas cannot be changed.
	Add    func(ctx context.Context) (Replica, error)
	Remove func(ctx context.Context, id string) error
	// Settle waits until the router knows what a replica holds after the answers so far. A
	// closed loop of one client calls it between two requests, so that their counts do not
	// depend on how fast such news travels. Nil: there is nothing to wait for.
	Settle func(ctx context.Context, replica string) error
	// Close stops what was started and waits for its end.
	Close func() error
}

// Start brings up what one run is sent to. The run's own end does not end it: that is
// Close's part, so that counters can be read after an interrupt.
type Start func(ctx context.Context, policy string, replicas, kvBlocks int) (*Cluster, error)
