package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// NewHTTPServer wraps a handler with limits on what a client may hold without
// giving: 10 s to send its headers, 64 KiB of them, 30 s for headers and body, 2
// minutes of idleness. net/http lifts the read deadline when the body has been read,
// so that it does not bound the answer. There is no WriteTimeout, which would cut
// long streams: handlers bound each event.
func NewHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// ErrCut is why a request's context ends that outlasts the grace of a server that stops.
var ErrCut = errors.New("the server stopped before the answer was complete")

// lastWord is how long a request that is cut may take to say so.
const lastWord = time.Second

// Serve answers on listener until ctx ends. Then it calls drain, accepts no new
// connection, gives the requests under way the time grace, and cuts what is left: their
// contexts end with ErrCut as the cause, and soon after their connections.
// It returns nil if nothing had to be cut.
func Serve(ctx context.Context, srv *http.Server, listener net.Listener, drain func(), grace time.Duration) error {
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	srv.BaseContext = func(net.Listener) context.Context { return requests }
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain()
	err := shutdown(requests, srv, grace)
	if err != nil {
		cut(ErrCut)
		if shutdown(context.WithoutCancel(requests), srv, lastWord) != nil {
			err = errors.Join(err, srv.Close())
		}
		err = fmt.Errorf("draining %s: requests were cut after %v: %w", listener.Addr(), grace, err)
	}
	<-failed // http.ErrServerClosed
	return err
}

// shutdown waits for the requests under way, up to a limit.
func shutdown(ctx context.Context, srv *http.Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return srv.Shutdown(ctx)
}
