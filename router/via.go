package router

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tailor/internal/openai"
)

// A router may be another one's replica, and by mistake its own, directly or through
// others: then each request would go round until something gives way. So every router has
// a name that no other has, and adds it to the requests that it sends on.
const (
	// headerVia names the routers that a request has come through and, with each, the
	// replica that it chose: "name;replica=id".
	headerVia = "X-Tailor-Via"
	// headerRouter is the router's name in the answers of GET /health.
	headerRouter = "X-Tailor-Router"
	// maxHops is how many routers may stand one behind the other.
	maxHops = 8
	// loopWait is how long a replica that led back here is left alone.
	loopWait = 30 * time.Second

	codeLoop = "loop_detected"
)

// hopOf is what a router adds to the header when it chooses a replica. The ID may hold what
// separates the parts of the header.
func hopOf(router, replica string) string { return router + ";replica=" + url.QueryEscape(replica) }

// cameRound refuses a request that this router has had before, or that has come through
// too many others.
func (rt *Router) cameRound(h http.Header) *openai.Error {
	hops := 0
	for _, line := range h[headerVia] {
		for hop := range strings.SplitSeq(line, ",") {
			hops++
			name, choice, _ := strings.Cut(strings.TrimSpace(hop), ";")
			if name != rt.config.Name {
				continue
			}
			id, err := url.QueryUnescape(strings.TrimPrefix(choice, "replica="))
			if err != nil {
				id = choice
			}
			rt.metrics.loops.WithLabelValues(rt.registry.known(id)).Inc()
			return loopError("replica %q leads back to this router: it is the router itself, or routes to it", id)
		}
	}
	if hops >= maxHops {
		return loopError("the request has come through %d routers, each the replica of the one before", hops)
	}
	return nil
}

func loopError(format string, args ...any) *openai.Error {
	return &openai.Error{
		Status: http.StatusLoopDetected, Type: openai.TypeServer, Code: codeLoop, Message: fmt.Sprintf(format, args...), Final: true,
	}
}

// known is the ID if there is a replica of it, for the metrics: what comes in a header may
// be anything.
func (g *registry) known(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, found := g.search(id); found {
		return id
	}
	return ""
}
