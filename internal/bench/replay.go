package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Recorded is the policy name under which requests go to the replica that the workload
// itself recorded for each of them, by the x-tailor-replica header.
const Recorded = "recorded"

// Replica is one running replica.
type Replica struct{ ID, URL string }

// Cluster is a set of running replicas behind one router.
type Cluster struct {
	RouterURL string
	Replicas  []Replica
	// Close stops what was started and waits for its end.
	Close func() error
}

// Start brings up a cluster with cold caches whose router uses the named policy.
type Start func(ctx context.Context, policy string, replicas int) (*Cluster, error)

// Options say how a workload is replayed.
type Options struct {
	Workload *Workload
	// Policies are run one after another, each on a cluster of its own.
	Policies []string
	Model    string
	// Concurrency is the number of clients in a closed loop. With 1, requests never
	// overlap and what they find in the cache is what the workload says they find.
	Concurrency int
	// Progress, if set, is called after each answer.
	Progress func(policy string, done, total int)
}

// Result is what one policy cost on the workload.
type Result struct {
	Policy       string  `json:"policy"`
	Requests     int64   `json:"requests"`
	PromptTokens int64   `json:"prompt_tokens"`
	Computed     int64   `json:"tokens_computed"`
	Reused       int64   `json:"tokens_reused"`
	Decoded      int64   `json:"tokens_decoded"`
	Hits         int64   `json:"request_hits"`
	Evicted      int64   `json:"blocks_evicted"`
	HitRate      float64 `json:"token_hit_rate"`
	PrefillCPU   float64 `json:"prefill_cpu_seconds"`
	TTFTP50      float64 `json:"ttft_p50_seconds"`
	TTFTP95      float64 `json:"ttft_p95_seconds"`
	// LoadMax is the requests that the busiest replica served, LoadMean the mean over all.
	LoadMax  int64   `json:"load_max_requests"`
	LoadMean float64 `json:"load_mean_requests"`
	Wall     float64 `json:"wall_seconds"`
	// Published are the figures that the workload's author gives for this policy.
	Published *Published `json:"published,omitempty"`
}

// Report is the JSON form of a comparison.
type Report struct {
	Workload    string   `json:"workload"`
	Replicas    int      `json:"replicas"`
	Concurrency int      `json:"concurrency"`
	Results     []Result `json:"results"`
}

// Run replays the workload under each policy. Where ctx ends early it returns the results
// of the policies that ran to their end, and the context's error.
func Run(ctx context.Context, opt Options, start Start) ([]Result, error) {
	var results []Result
	for _, policy := range opt.Policies {
		r, err := runPolicy(ctx, opt, policy, start)
		if err != nil {
			return results, fmt.Errorf("policy %s: %w", policy, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func runPolicy(ctx context.Context, opt Options, policy string, start Start) (r Result, err error) {
	w := opt.Workload
	recorded := policy == Recorded
	routerPolicy := policy
	if recorded {
		// Every request is pinned, so the router's own choice is never asked.
		routerPolicy = "round_robin"
	}
	cluster, err := start(ctx, routerPolicy, w.Replicas)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: opt.Concurrency, DisableCompression: true}}
	defer client.CloseIdleConnections()

	before, err := readAll(ctx, client, cluster.Replicas)
	if err != nil {
		return r, err
	}
	samples := make([]sample, len(w.Requests))
	var next, done atomic.Int64
	var progress sync.Mutex
	began := time.Now()
	clients, clientCtx := errgroup.WithContext(ctx)
	for range max(1, opt.Concurrency) {
		clients.Go(func() error {
			for clientCtx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(w.Requests) {
					return nil
				}
				pin := ""
				if recorded {
					place := w.Requests[i].Placement
					if place < 0 || place >= len(cluster.Replicas) {
						return fmt.Errorf("request %d: recorded placement %d, but there are %d replicas", i, place, len(cluster.Replicas))
					}
					pin = cluster.Replicas[place].ID
				}
				s, err := send(clientCtx, client, cluster.RouterURL, opt.Model, pin, &w.Requests[i])
				if err != nil {
					return fmt.Errorf("request %d: %w", i, err)
				}
				samples[i] = s
				if opt.Progress != nil {
					progress.Lock()
					opt.Progress(policy, int(done.Add(1)), len(w.Requests))
					progress.Unlock()
				}
			}
			return clientCtx.Err()
		})
	}
	if err := clients.Wait(); err != nil {
		return r, err
	}
	wall := time.Since(began)
	after, err := readAll(ctx, client, cluster.Replicas)
	if err != nil {
		return r, err
	}
	r = summarize(policy, samples, before, after)
	r.Wall = wall.Seconds()
	published := policy
	if recorded {
		published = "random"
	}
	if p, ok := w.Published[published]; ok {
		r.Published = &p
	}
	return r, checkSums(&r, w)
}

// checkSums refuses a result that does not account for every request and prompt token of
// the workload: what the engines counted and what the client sent must be the same thing.
func checkSums(r *Result, w *Workload) error {
	if r.Requests != int64(len(w.Requests)) || r.PromptTokens != w.PromptTokens() {
		return fmt.Errorf("the engines counted %d requests with %d prompt tokens; %d with %d were sent",
			r.Requests, r.PromptTokens, len(w.Requests), w.PromptTokens())
	}
	return nil
}

func readAll(ctx context.Context, client *http.Client, replicas []Replica) ([]counters, error) {
	all := make([]counters, len(replicas))
	for i, r := range replicas {
		c, err := readCounters(ctx, client, r.URL)
		if err != nil {
			return nil, err
		}
		all[i] = c
	}
	return all, nil
}

// drainBody reads what is left of a body so that its connection can be used again.
func drainBody(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 64<<10))
	body.Close()
}

// DefaultPolicies are the ones a comparison runs where it is not told which.
func DefaultPolicies() []string {
	return []string{Recorded, "round_robin", "least_loaded", "prefix_hash", "consistent_hash", "prefix_affinity"}
}
