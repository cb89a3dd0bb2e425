package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"
)

var (
	// errNoEvents says that a replica does not tell what it holds, or not in a way that
	// can be used.
	errNoEvents = errors.New("router: replica sends no usable cache events")
	// errResync says that the events do not lead on from the copy.
	errResync = errors.New("router: the copy of the replica's cache must be taken anew")
	// errForgotten says that the replica's copy was dropped by somebody else.
	errForgotten = errors.New("router: the copy of the replica's cache was dropped")
)

// maxSnapshot bounds a snapshot's body: 4 million blocks of 16 tokens.
const maxSnapshot = 512 << 20

// follower keeps a copy of one replica's cache from its block events.
//
//   - While there is no copy, or it is out of step, the snapshot is taken; then events are
//     applied in the order of their numbers. A hole in them, a digest that differs or an
//     event that makes no sense means taking the snapshot anew.
//   - The old copy serves until the new one is complete, unless the replica was forgotten.
//   - A connection that breaks is taken up where it was; meanwhile the copy serves as it is.
//   - One goroutine runs it; what it shares is under the registry's lock.
type follower struct {
	router  *Router
	replica *replica
	resync  bool
}

const (
	followWait    = 50 * time.Millisecond // before the first new attempt, doubled up to
	followMaxWait = time.Second
	followRecheck = time.Minute // of a replica that sends no events
)

// followAll runs a follower for every replica there is, and clears what they leave.
func (rt *Router) followAll(ctx context.Context) {
	g := rt.registry
	running := map[*replica]context.CancelFunc{}
	done := make(chan struct{})
	live := 0
	for {
		g.mu.Lock()
		news, replicas := g.news, slices.Clone(g.replicas)
		g.mu.Unlock()
		for r, stop := range running {
			if !slices.Contains(replicas, r) {
				stop()
				delete(running, r)
			}
		}
		for _, r := range replicas {
			if running[r] == nil && !rt.config.NoFollow {
				own, stop := context.WithCancel(ctx)
				running[r] = stop
				live++
				go func() {
					(&follower{router: rt, replica: r}).run(own)
					stop()
					done <- struct{}{}
				}()
			}
		}
		g.sweep()
		select {
		case <-ctx.Done():
			for ; live > 0; live-- {
				<-done
			}
			return
		case <-done:
			live--
		case <-news:
		}
	}
}

// run follows the replica until ctx ends.
func (f *follower) run(ctx context.Context) {
	log := f.router.config.Log.With("replica", f.replica.id)
	wait := followWait
	for {
		began := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > followMaxWait {
			wait = followWait
		}
		pause := wait/2 + rand.N(wait)
		switch {
		case errors.Is(err, errNoEvents), errors.Is(err, errIndexFull):
			f.router.registry.unfollow(f.replica)
			pause = followRecheck
			log.Info("what the replica holds is guessed", "reason", err)
		case errors.Is(err, errResync):
			f.resync = true
			f.router.metrics.resyncs.WithLabelValues(f.replica.id).Inc()
			log.Warn("cache events are out of step", "error", err)
		default:
			log.Debug("cache events broke off", "error", err)
		}
		wait = min(2*wait, followMaxWait)
		if !f.pause(ctx, pause) {
			return
		}
	}
}

// pause waits, but not when the replica has news: it may be back, or another one. False:
// ctx has ended.
func (f *follower) pause(ctx context.Context, d time.Duration) bool {
	g := f.router.registry
	timer := time.NewTimer(d)
	defer timer.Stop()
	g.mu.Lock()
	before, news := f.replica.since, g.news
	g.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-news:
		}
		g.mu.Lock()
		back := f.replica.state == StateReady && f.replica.since != before
		news = g.news
		g.mu.Unlock()
		if back {
			return true
		}
	}
}

// session takes a snapshot if there is need of one and applies events until they end.
func (f *follower) session(ctx context.Context) error {
	g := f.router.registry
	g.mu.Lock()
	c := f.replica.copy
	g.mu.Unlock()
	if c == nil || f.resync {
		var err error
		if c, err = f.takeSnapshot(ctx); err != nil {
			return err
		}
		f.resync = false
	}
	return f.stream(ctx, c)
}

// open asks the replica. The body must be closed.
func (f *follower) open(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	target := f.replica.base.JoinPath(path)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if key := f.router.config.ReplicaKey; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := f.router.config.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusBadRequest,
		http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("%w: %s: status %d", errNoEvents, path, resp.StatusCode)
	default:
		err = fmt.Errorf("router: %s: status %d", path, resp.StatusCode)
	}
	resp.Body.Close()
	return nil, err
}
