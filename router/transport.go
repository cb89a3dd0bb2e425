package router

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// newTransport returns a transport with a pool of connections for each replica. No
// compression: answers pass through as they are, event by event. No timeout for headers
// either: a replica may queue a request for long, and the client's patience decides.
func newTransport() *wire {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return newWire(dialer, &http.Transport{
		DialContext:         dialer.DialContext,
		DisableCompression:  true,
		MaxIdleConnsPerHost: maxIdle, // the default of 2 would dial anew for most requests of a burst
		IdleConnTimeout:     maxIdleTime,
	})
}

// hopByHop says whether a header concerns one connection only (RFC 9110, 7.6.1), besides
// those that Connection names.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// forward enters the headers that travel on. The lists of values are those of from, and not
// to be changed.
func forward(into, from http.Header) {
	for name, values := range from {
		if !hopByHop(name) {
			into[name] = values
		}
	}
	for _, line := range from["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			into.Del(strings.TrimSpace(name))
		}
	}
}

// requestHeader returns the headers for the replica. hop is what this router adds to those
// that the request has come through.
func requestHeader(h http.Header, requestID, hop string) http.Header {
	out := make(http.Header, len(h)+4)
	forward(out, h)
	delete(out, headerReplica)
	delete(out, "Content-Length")  // the transport writes its own
	delete(out, "Expect")          // the body is here already
	delete(out, "Accept-Encoding") // a compressed stream could not be cut into events
	out[headerRequest] = []string{requestID}
	out[headerVia] = append(slices.Clip(out[headerVia]), hop)
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // keeps the transport from adding Go's
	}
	return out
}

// targetOf is the request's path and query on a replica.
func targetOf(base, asked *url.URL) *url.URL {
	if base.Path != "" && base.Path != "/" {
		target := base.JoinPath(asked.EscapedPath())
		target.RawQuery = asked.RawQuery
		return target
	}
	target := *base
	target.Path, target.RawPath, target.RawQuery = asked.Path, asked.RawPath, asked.RawQuery
	return &target
}
