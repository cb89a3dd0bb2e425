package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"tailor/internal/openai"
	"tailor/server/engine"
)

// Headers of requests and answers.
const (
	headerRequestID = "X-Request-Id"
	headerReplica   = "X-Tailor-Replica"
	headerEpoch     = "X-Tailor-Epoch"
	headerCache     = "X-Tailor-Cache"
	headerTimeout   = "X-Request-Timeout"
)

const maxRequestID = 128 // bytes

// A record is what the log says of a request beyond HTTP. Only the request's own
// goroutine touches it.
type record struct {
	tenant                    string // the name of the API key, if there are keys
	completion                bool   // the numbers below mean something
	prompt, cached, generated int    // tokens
	queue, ttft, tpot         time.Duration
	finish                    string
	miss                      string // why not more was cached
	gone                      bool   // the client left before the answer
	err                       error
}

type contextKey int

const (
	keyRequestID contextKey = iota
	keyRecord
	keyTenant
)

// requestID and recordOf must be called under the middleware.
func requestID(ctx context.Context) string { return ctx.Value(keyRequestID).(string) }
func recordOf(ctx context.Context) *record { return ctx.Value(keyRecord).(*record) }

// epoch names the life of the prefix cache: it changes when the process is another one or
// the cache has been reset, so that a router forgets what it knew of the old one.
func (s *Server) epoch() string { return s.Engine.BlockLog().Epoch() }

// identify gives the request an id, its client's if it sent a usable one, and says in
// the answer which request and replica it was.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := cleanID(r.Header.Get(headerRequestID))
		if id == "" {
			id = strings.ToLower(rand.Text())
		}
		w.Header().Set(headerRequestID, id)
		w.Header().Set(headerReplica, s.Replica)
		w.Header().Set(headerEpoch, s.epoch())
		ctx := context.WithValue(r.Context(), keyRequestID, id)
		ctx = context.WithValue(ctx, keyRecord, new(record))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// cleanID drops what does not belong into logs, headers and JSON unescaped.
func cleanID(id string) string {
	id = strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("-_.:", c):
			return c
		}
		return -1
	}, id)
	return id[:min(len(id), maxRequestID)]
}

// accessLog writes a line per request. Probes and scrapes, which come by the clock,
// are for debugging only.
func (s *Server) accessLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		wrapped := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			record, status := recordOf(r.Context()), wrapped.Status()
			if record.gone {
				status = statusClientGone
			}
			s.metrics.answers.WithLabelValues(routeOf(r), strconv.Itoa(status)).Inc()
			level := slog.LevelInfo
			switch {
			case status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable:
				level = slog.LevelError
			case r.Method == http.MethodGet && status < http.StatusBadRequest:
				level = slog.LevelDebug // routers, dashboards and load balancers look in all the time
			}
			attrs := []slog.Attr{
				slog.String("id", requestID(r.Context())),
				slog.String("method", r.Method),
				slog.String("path", r.URL.Path),
				slog.Int("status", status),
				slog.Duration("took", time.Since(start)),
			}
			if record.tenant != "" {
				attrs = append(attrs, slog.String("tenant", record.tenant))
			}
			if record.completion {
				attrs = append(attrs,
					slog.Int("prompt_tokens", record.prompt),
					slog.Int("cached_tokens", record.cached),
					slog.Int("generated_tokens", record.generated),
					slog.Duration("queue", record.queue),
					slog.Duration("ttft", record.ttft),
					slog.Duration("tpot", record.tpot),
					slog.String("finish", record.finish),
				)
				if record.miss != "" {
					attrs = append(attrs, slog.String("miss", record.miss))
				}
			}
			if record.err != nil {
				attrs = append(attrs, slog.String("error", record.err.Error()))
			}
			s.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
		}()
		next.ServeHTTP(wrapped, r)
	})
}

// routeOf is the path as it is served, not as it was asked for: of those there are as many
// as clients like.
func routeOf(r *http.Request) string {
	route := chi.RouteContext(r.Context())
	if route == nil || route.RoutePattern() == "" || route.RoutePattern() == "/*" {
		return "other"
	}
	return route.RoutePattern()
}

// recoverPanic ends a panicking request and no other: with 500, or, where the answer has
// begun, by cutting the connection, so that no client takes a part for the whole.
func (s *Server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			recordOf(r.Context()).err = fmt.Errorf("panic: %v", cause)
			s.Log.Error("panic", "id", requestID(r.Context()), "cause", cause, "stack", string(debug.Stack()))
			if begun := w.(middleware.WrapResponseWriter).Status() != 0; begun {
				panic(http.ErrAbortHandler)
			}
			openai.WriteError(w, internalError())
		}()
		next.ServeHTTP(w, r)
	})
}

// limited is the request's context, ended after the time that its client gives the answer,
// if it says so. The server's own limit is the engine's affair.
func (s *Server) limited(r *http.Request) (context.Context, context.CancelFunc, error) {
	text := r.Header.Get(headerTimeout)
	if text == "" {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > 0 && seconds <= maxTimeout.Seconds()) {
		return nil, nil, openai.Invalid(strings.ToLower(headerTimeout), "%q is not a number of seconds above 0 and at most %.0f", text, maxTimeout.Seconds())
	}
	given := time.Duration(seconds * float64(time.Second))
	ctx, cancel := context.WithTimeoutCause(r.Context(), given, fmt.Errorf("%w: more than the %v that its client gave it", engine.ErrTimeout, given))
	return ctx, cancel, nil
}

const maxTimeout = 24 * time.Hour

// allowOrigins answers browsers, for pages of the origins that the operator names. Without
// any, no header is set and browsers keep pages of other origins out.
func (s *Server) allowOrigins(next http.Handler) http.Handler {
	if len(s.AllowedOrigins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin != "" && (slices.Contains(s.AllowedOrigins, origin) || slices.Contains(s.AllowedOrigins, "*")) {
			header.Set("Access-Control-Allow-Origin", origin)
			header.Set("Access-Control-Expose-Headers", strings.Join([]string{headerRequestID, headerReplica, headerEpoch, headerCache, "Retry-After"}, ", "))
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				header.Set("Access-Control-Allow-Methods", "GET, POST")
				header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+headerRequestID+", "+headerTimeout+", "+headerReplica)
				header.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
