package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"tailor/router"
)

const (
	// settlePoll is the time between two looks at what the router knows; events take less
	// than a millisecond.
	settlePoll = 200 * time.Microsecond
	// settleMost bounds the wait where a router does not follow, or has to begin anew.
	settleMost = time.Second
)

// settle waits until the router knows all that the replica has done so far. A replica tells
// what it stores and evicts by a stream of its own, which a fast client overtakes now and
// then; where one request follows another, what the router knows must not depend on that.
func (f *fleet) settle(ctx context.Context, id string) error {
	r := f.named(id)
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleMost)
	defer cancel()
	// Its turn on the step loop comes after the request's last one.
	if _, err := r.engine.View(ctx, 1); err != nil {
		return nil
	}
	log := r.engine.BlockLog()
	_, head, _ := log.After(log.Oldest(), 0)
	for {
		epoch, seq, exact := f.known(ctx, id)
		if ctx.Err() != nil || !exact || epoch == head.Epoch && seq >= head.Seq {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(settlePoll):
		}
	}
}

func (f *fleet) named(id string) *replica {
	for _, r := range f.replicas {
		if r.id == id {
			return r
		}
	}
	return nil
}

// known is how far the router has followed a replica; exact: it does.
func (f *fleet) known(ctx context.Context, id string) (epoch string, seq uint64, exact bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/v1/replicas", nil)
	if err != nil {
		return "", 0, false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, false
	}
	defer resp.Body.Close()
	var list struct {
		Replicas []router.ReplicaStatus `json:"replicas"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return "", 0, false
	}
	for _, r := range list.Replicas {
		if r.ID == id {
			return r.Epoch, r.EventSeq, r.Knowledge == router.KnowledgeExact
		}
	}
	return "", 0, false
}
