package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Source names replicas that come and go.
type Source interface {
	// Name is what the replicas' status calls the source. Each source has its own.
	Name() string
	// Replicas returns who is there now. On an error those known before stay: a name
	// server that is away must not take the replicas with it.
	Replicas(ctx context.Context) ([]Replica, error)
}

// ParseReplica reads URL or ID=URL; without an ID the replica is called by its host and
// port. Errors wrap ErrReplica.
func ParseReplica(text string) (Replica, error) {
	text = strings.TrimSpace(text)
	r := Replica{URL: text}
	if id, rest, named := strings.Cut(text, "="); named && !strings.Contains(id, "/") {
		r = Replica{ID: id, URL: rest}
	} else if u, err := url.Parse(text); err == nil && u.Host != "" {
		r.ID = u.Host
	} else {
		r.ID = text // which the error is about
	}
	return r, r.Validate()
}

// FileSource is a file with a replica a line, as [ParseReplica] reads it; empty lines and
// those that begin with # are skipped. It is read again every time.
type FileSource struct{ Path string }

// Name implements Source.
func (s FileSource) Name() string { return "file:" + s.Path }

// Replicas implements Source.
func (s FileSource) Replicas(context.Context) ([]Replica, error) {
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return nil, err
	}
	var out []Replica
	for i, line := range bytes.Split(data, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		r, err := ParseReplica(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", s.Path, i+1, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Resolver asks the name service; net.DefaultResolver does.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// DNSSource is a DNS name with an address for each replica, such as a headless service of
// Kubernetes. A replica's ID is its host and port.
type DNSSource struct {
	Resolver Resolver
	// Target is host:port, for the addresses of a host, or _service._proto.name, for its
	// SRV records: these name each replica, so that one that comes back on another address
	// is still the same.
	Target string
}

// Name implements Source.
func (s DNSSource) Name() string { return "dns:" + s.Target }

// Validate says whether the target can be asked for.
func (s DNSSource) Validate() error {
	if strings.HasPrefix(s.Target, "_") {
		if parts := strings.SplitN(s.Target, ".", 3); len(parts) != 3 || !strings.HasPrefix(parts[1], "_") {
			return fmt.Errorf("%w: DNS name %q, want _service._proto.name", ErrReplica, s.Target)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(s.Target)
	if n, bad := strconv.Atoi(port); err != nil || host == "" || bad != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%w: DNS name %q, want host:port or _service._proto.name", ErrReplica, s.Target)
	}
	return nil
}

// Replicas implements Source.
func (s DNSSource) Replicas(ctx context.Context) ([]Replica, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var hosts []string
	if strings.HasPrefix(s.Target, "_") {
		// With service and proto empty the name is asked for as it is.
		_, records, err := s.Resolver.LookupSRV(ctx, "", "", s.Target)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			hosts = append(hosts, net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port))))
		}
	} else {
		host, port, _ := net.SplitHostPort(s.Target)
		addresses, err := s.Resolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			hosts = append(hosts, net.JoinHostPort(a, port))
		}
	}
	if len(hosts) == 0 {
		return nil, errors.New("no address")
	}
	slices.Sort(hosts)
	var out []Replica
	for _, h := range slices.Compact(hosts) {
		out = append(out, Replica{ID: h, URL: "http://" + h})
	}
	return out, nil
}

// watchSource asks a source now and with every tick, until ctx ends.
func (rt *Router) watchSource(ctx context.Context, s Source) {
	ticks, stop := rt.config.Clock.Tick(rt.config.SourceInterval)
	defer stop()
	log := rt.config.Log.With("source", s.Name())
	last := ""
	for {
		replicas, err := s.Replicas(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = rt.registry.reconcile(s.Name(), replicas)
		}
		if text := fmt.Sprint(err); text != last { // once, not with every tick
			if last = text; err != nil {
				log.Warn("source of replicas", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// reconcile makes the replicas of one source those given. The error names the ones that
// could not be taken in; the others were.
func (g *registry) reconcile(source string, want []Replica) error {
	var failed []error
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.replicas) - 1; i >= 0; i-- {
		r := g.replicas[i]
		stays := slices.ContainsFunc(want, func(w Replica) bool {
			base, err := w.parse()
			return err == nil && w.ID == r.id && base.String() == r.base.String()
		})
		if r.source == source && !stays {
			g.log.Info("replica left", "replica", r.id, "source", source)
			g.removeAt(i)
		}
	}
	for _, w := range want {
		base, err := w.parse()
		i, found := g.search(w.ID)
		switch {
		case err != nil:
			failed = append(failed, err)
		case !found:
			g.log.Info("replica found", "replica", w.ID, "source", source)
			g.replicas = slices.Insert(g.replicas, i, g.newReplica(w.ID, base, source))
			g.announce()
		case g.replicas[i].source != source:
			failed = append(failed, fmt.Errorf("%w: ID %q is taken", ErrReplica, w.ID))
		}
	}
	return errors.Join(failed...)
}
