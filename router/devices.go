package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"tailor/internal/openai"
)

const (
	// devicesTimeout is longer than a replica waits for its driver.
	devicesTimeout = 4 * time.Second
	maxDevicesBody = 1 << 20
)

// replicaDevices is what one replica says of its machine; replicas of one machine say the
// same. Either Devices or Reason is there.
type replicaDevices struct {
	ID      string          `json:"id"`
	URL     string          `json:"url"`
	Devices json.RawMessage `json:"devices"`
	Reason  string          `json:"reason"`
}

// devices asks all replicas for their machines' GPUs and memory, at one time.
func (rt *Router) devices(w http.ResponseWriter, r *http.Request) {
	if err := rt.cameRound(r.Header); err != nil {
		openai.WriteError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), devicesTimeout)
	defer cancel()
	replicas := rt.registry.all()
	answers := make([]replicaDevices, len(replicas))
	var all sync.WaitGroup
	for i, replica := range replicas {
		all.Go(func() {
			answers[i] = replicaDevices{ID: replica.id, URL: replica.base.Redacted()}
			devices, err := rt.askDevices(ctx, replica, r.Header[headerVia])
			if err != nil {
				answers[i].Reason = err.Error()
				return
			}
			answers[i].Devices = devices
		})
	}
	all.Wait()
	openai.WriteJSON(w, http.StatusOK, struct {
		Replicas []replicaDevices `json:"replicas"`
	}{answers})
}

// all are the replicas, whatever their state; of each only what never changes may be read.
func (g *registry) all() []*replica {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.replicas)
}

func (rt *Router) askDevices(ctx context.Context, r *replica, via []string) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base.JoinPath("/v1/devices").String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header[headerVia] = append(slices.Clone(via), r.hop)
	if key := rt.config.ReplicaKey; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := rt.config.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDevicesBody+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, errors.New("the replica does not tell")
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	case len(body) > maxDevicesBody || !json.Valid(body):
		return nil, fmt.Errorf("the answer is no JSON of up to %d bytes", maxDevicesBody)
	}
	return body, nil
}
