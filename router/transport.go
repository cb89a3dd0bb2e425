package router

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// newTransport returns a transport with a pool of connections for each replica. No
// compression: answers pass through as they are, event by event. No timeout for headers
// either: a replica may queue a request for long, and the client's patience decides.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256, // the default of 2 would dial anew for most requests of a burst
		IdleConnTimeout:     90 * time.Second,
	}
}

// hopByHop are the headers that concern one connection (RFC 9110, 7.6.1), besides those
// that Connection names.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// forwarded returns the headers that travel on.
func forwarded(h http.Header) http.Header {
	out := h.Clone()
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

// requestHeader returns the headers for the replica.
func requestHeader(h http.Header, requestID string) http.Header {
	out := forwarded(h)
	out.Del(headerReplica)
	out.Del("Content-Length")  // the transport writes its own
	out.Del("Expect")          // the body is here already
	out.Del("Accept-Encoding") // a compressed stream could not be cut into events
	out.Set(headerRequest, requestID)
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // keeps the transport from adding Go's
	}
	return out
}

// requestID is the client's own name for the request, or a new one.
func requestID(h http.Header) string {
	id := h.Get(headerRequest)
	if id == "" || len(id) > 256 || strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "req-" + strings.ToLower(rand.Text())
	}
	return id
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
