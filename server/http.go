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

// Serve answers on listener until ctx ends. Then it calls drain, accepts no new
// connection, gives the requests under way the time grace, and cuts what is left.
// It returns nil if nothing had to be cut.
func Serve(ctx context.Context, srv *http.Server, listener net.Listener, drain func(), grace time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain()
	// ctx has ended; the grace is measured from here.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(limit)
	if err != nil {
		err = fmt.Errorf("draining %s: requests were cut after %v: %w", listener.Addr(), grace, errors.Join(err, srv.Close()))
	}
	<-failed // http.ErrServerClosed
	return err
}
