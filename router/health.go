package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"tailor/internal/openai"
)

const (
	headerEpoch   = "X-Tailor-Epoch"
	headerReplica = "X-Tailor-Replica"
	headerRequest = "X-Request-Id"
)

// watch checks all replicas now and with every tick, until ctx ends; then it waits for
// the checks under way.
func (rt *Router) watch(ctx context.Context) {
	ticks, stop := rt.config.Clock.Tick(rt.config.Health.Interval)
	defer stop()
	var checks sync.WaitGroup
	defer checks.Wait()
	for {
		rt.checkAll(ctx, &checks)
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// checkAll starts a check of every replica that is not being checked: a replica that
// hangs must not hold up the news of the others, nor gather checks.
func (rt *Router) checkAll(ctx context.Context, checks *sync.WaitGroup) {
	g := rt.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.replicas {
		if r.checking {
			continue
		}
		r.checking = true
		due := func(epoch string) bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return !rt.config.AnyModel && r.modelsDue(epoch, rt.config.ModelsInterval, g.clock.Now())
		}
		checks.Go(func() {
			s := rt.check(ctx, r, due)
			if ctx.Err() == nil { // else the failure is ours
				g.saw(r, s)
			}
			g.mu.Lock()
			r.checking = false
			g.mu.Unlock()
		})
	}
}

// check asks one replica for its health, and for its models where that is due.
func (rt *Router) check(ctx context.Context, r *replica, due func(epoch string) bool) sighting {
	ctx, cancel := context.WithTimeout(ctx, rt.config.Health.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base.JoinPath(rt.config.Health.Path).String(), nil)
	if err != nil {
		return sighting{kind: seenFailure, err: err.Error()}
	}
	resp, err := rt.config.Transport.RoundTrip(req)
	if err != nil {
		return failed(seenFailure, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // read to the end: the connection is used again
	if err != nil {
		return failed(seenFailure, err)
	}
	epoch := resp.Header.Get(headerEpoch)
	switch {
	case resp.Header.Get(headerRouter) == rt.config.Name:
		return sighting{kind: seenUnready, err: "health check: the replica is this router itself"}
	case resp.StatusCode/100 == 2:
		s := sighting{kind: seenOK, epoch: epoch}
		if due(epoch) {
			models, err := rt.askModels(ctx, r)
			s.models, s.asked = models, err == nil // who fails now is asked again
		}
		return s
	case resp.StatusCode == http.StatusServiceUnavailable:
		return unavailable("health check", epoch, body)
	}
	return sighting{kind: seenFailure, err: fmt.Sprintf("health check: status %d", resp.StatusCode), epoch: epoch}
}

// unavailable is what a 503 says. That a replica is about to leave it says in its status
// or in the error's words; there is no code for it.
func unavailable(where, epoch string, body []byte) sighting {
	s := sighting{kind: seenUnready, epoch: epoch}
	message := openai.ReadError(http.StatusServiceUnavailable, bytes.NewReader(body)).Message
	if strings.Contains(message, string(StateDraining)) {
		s.kind = seenDraining
	}
	s.err = fmt.Sprintf("%s: status 503: %s", where, message)
	return s
}

// failed is what an error of the transport says about the replica; kind is what it says
// unless nobody listens.
func failed(kind sightingKind, err error) sighting {
	if errors.Is(err, syscall.ECONNREFUSED) {
		kind = seenRefused
	}
	return sighting{kind: kind, err: err.Error()}
}
