package router

import "time"

// Knowledge is how the router knows what a replica holds.
type Knowledge string

const (
	KnowledgeExact   Knowledge = "exact"   // follows the replica's own events
	KnowledgeGuessed Knowledge = "guessed" // from the requests sent to it
)

// ReplicaStatus is a replica's state as the router reports it.
type ReplicaStatus struct {
	ID             string     `json:"id"`
	URL            string     `json:"url"`
	Source         string     `json:"source"` // who named it
	State          State      `json:"state"`
	Held           bool       `json:"held"`    // gets no new requests, by an operator's wish
	Breaker        string     `json:"breaker"` // closed, half-open or open
	Since          time.Time  `json:"since"`
	InFlight       int        `json:"in_flight"`
	InFlightTokens int        `json:"in_flight_tokens"` // of prompts, without those expected to be cached
	Served         uint64     `json:"served"`
	Models         []string   `json:"models"` // null: it does not say, and is taken to serve any
	Knowledge      Knowledge  `json:"knowledge"`
	IndexBlocks    int        `json:"index_blocks"`
	Epoch          string     `json:"epoch"`
	EventSeq       uint64     `json:"event_seq"` // last event taken in; 0 unless exact
	Resyncs        uint64     `json:"resyncs"`
	FailedChecks   int        `json:"failed_checks"` // in a row
	LastError      string     `json:"last_error"`
	LastErrorAt    *time.Time `json:"last_error_at"`
}

func (g *registry) status() []ReplicaStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]ReplicaStatus, len(g.replicas))
	for i, r := range g.replicas {
		out[i] = ReplicaStatus{
			ID: r.id, URL: r.base.Redacted(), Source: r.source, State: r.state, Held: r.held,
			Breaker: r.breaker.State().String(), Since: r.since,
			InFlight: r.load.Requests, InFlightTokens: r.load.Tokens, Served: r.served,
			Knowledge: KnowledgeGuessed, IndexBlocks: r.heldBlocks(), Epoch: r.epoch, Resyncs: r.resyncs,
			FailedChecks: r.fails, LastError: r.lastError,
		}
		for _, m := range r.models {
			out[i].Models = append(out[i].Models, m.id)
		}
		if r.copy != nil {
			out[i].Knowledge, out[i].EventSeq = KnowledgeExact, r.copy.seq
		}
		if !r.lastErrorAt.IsZero() {
			out[i].LastErrorAt = &r.lastErrorAt
		}
	}
	return out
}
