package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/router"
	"tailor/router/policy"
	"tailor/server"
)

func newUp() *cobra.Command {
	var (
		flags    replicaFlags
		replicas int
		listen   string
		chosen   string
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start replicas and a router in front of them, in one process",
		Long: `Start replicas and a router in front of them, in one process. Each replica has its own
engine, its own KV cache and its own port, the ones after the router's; they share the weights.
The transformer computes on the CPU; a GPU is only asked for its memory, through NVML.`,
		Example: `  tailor up
  tailor up --replicas 8 --policy round_robin --kv-blocks 256
  tailor up --model ~/models/gpt2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if replicas < 1 || replicas > 256 {
				return misuse(cmd, "--replicas %d: must be 1 to 256", replicas)
			}
			if err := flags.validate(cmd, replicas); err != nil {
				return err
			}
			log, err := newLogger(cmd)
			if err != nil {
				return err
			}
			c, err := flags.load()
			if err != nil {
				return err
			}
			defer flags.machine.close(log)
			if err := flags.size(cmd, c.net); err != nil {
				return err
			}
			defer makeRoom(replicas * flags.threads)()
			group, ctx := errgroup.WithContext(cmd.Context())
			f, err := startFleet(ctx, group, c, &flags, fleetPlan{replicas: replicas, listen: listen, policy: chosen}, log)
			if err != nil {
				return stopGroup(group, unlessStopped(cmd, err))
			}
			f.announce(ctx, cmd.OutOrStdout(), c, &flags)
			return group.Wait()
		},
	}
	flags.add(cmd, defaultBlocks)
	flags.access.add(cmd)
	addDrainFlag(cmd, &flags.drain)
	cmd.Flags().IntVar(&replicas, "replicas", 3, "number of replicas")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "the router's address; the replicas take the ports after it (port 0: any free ones)")
	addPolicyFlag(cmd, &chosen)
	return cmd
}

func addPolicyFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "policy", policy.Default, "how the router chooses: "+strings.Join(policy.Names(), ", "))
}

// fleetPlan says what to start beside the engines' own flags.
type fleetPlan struct {
	replicas int
	listen   string
	policy   string
}

// fleet is a running router and its replicas.
type fleet struct {
	url      string
	policy   string
	replicas []*replica
	router   *router.Router
	// another starts one more replica; the router does not know it yet.
	another func(id string) (*replica, error)
}

// startFleet starts replicas and a router over them, in group. When ctx ends the router lets
// go of its clients first, and only then do the replicas stop: nothing it has sent on is lost.
func startFleet(ctx context.Context, group *errgroup.Group, c *checkpoint, flags *replicaFlags, plan fleetPlan, log *slog.Logger) (f *fleet, err error) {
	host, portText, err := net.SplitHostPort(plan.listen)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", plan.listen, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port+plan.replicas > 65535 {
		return nil, fmt.Errorf("listen address %q: the port must be a number that leaves room for %d more", plan.listen, plan.replicas)
	}
	p, err := policy.New(plan.policy, policy.DefaultOptions())
	if err != nil {
		return nil, err
	}
	replicaCtx, stopReplicas := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			stopReplicas()
		}
	}()
	f = &fleet{policy: plan.policy}
	// The router is what is reached from outside; behind it, all stays on this machine.
	behindRouter := *flags
	behindRouter.access.tls = nil
	routerKey := behindRouter.access.addRouterKey()
	f.another = func(id string) (*replica, error) {
		return startReplica(replicaCtx, group, c, &behindRouter, id, net.JoinHostPort(host, "0"), log)
	}
	var behind []router.Replica
	width := len(strconv.Itoa(plan.replicas - 1))
	for i := range plan.replicas {
		replicaPort := 0
		if port > 0 {
			replicaPort = port + 1 + i
		}
		// Ids of equal length sort as numbers do.
		id := fmt.Sprintf("r%0*d", width, i)
		r, err := startReplica(replicaCtx, group, c, &behindRouter, id, net.JoinHostPort(host, strconv.Itoa(replicaPort)), log)
		if err != nil {
			return nil, err
		}
		f.replicas = append(f.replicas, r)
		behind = append(behind, router.Replica{ID: r.id, URL: r.url})
	}
	template, err := flags.access.template(c)
	if err != nil {
		return nil, err
	}
	r, url, err := startRouter(ctx, group, router.Config{
		Replicas:       behind,
		Policy:         p,
		Tokenize:       tokenize(c.tokenizer),
		TokenizeChat:   tokenizeChat(template, c.tokenizer),
		BlockTokens:    flags.blockSize,
		IndexBlocks:    flags.kvBlocks,
		SaltByKey:      flags.access.isolateKeys,
		Keys:           flags.access.routerKeys(),
		AllowedOrigins: flags.access.allowedOrigins,
		ReplicaKey:     routerKey,
		Version:        version(),
		Log:            log,
	}, plan.listen, flags.access.tls, flags.drain, stopReplicas)
	if err != nil {
		return nil, err
	}
	f.url, f.router = url, r
	// Who is told that the fleet runs may use it at once.
	return f, r.AwaitReady(ctx)
}

// startRouter listens at once and routes until ctx ends; then it drains, for as long as grace, and
// calls stopped.
func startRouter(ctx context.Context, group *errgroup.Group, cfg router.Config, listen string, with *tls.Config, grace time.Duration, stopped func()) (r *router.Router, url string, err error) {
	r, err = router.New(cfg)
	if err != nil {
		return nil, "", err
	}
	plain, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, "", fmt.Errorf("--listen: the router cannot be reached on %s: %w", listen, err)
	}
	listener, scheme := secure(plain, with)
	group.Go(func() error {
		r.Run(ctx)
		return nil
	})
	group.Go(func() error {
		defer stopped()
		// By then ctx has ended, so Drain only turns newcomers away; Serve waits for the rest.
		drain := func() { _ = r.Drain(ctx) }
		return server.Serve(ctx, server.NewHTTPServer(r, cfg.Log), listener, drain, grace)
	})
	return r, scheme + "://" + listener.Addr().String(), nil
}

// stopGroup ends what was started before err happened, and returns what the end brought.
func stopGroup(group *errgroup.Group, err error) error {
	if err == nil {
		err = context.Canceled // any error cancels the group's context
	}
	group.Go(func() error { return err })
	if err = group.Wait(); errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// unlessStopped is err, or nil if it only says that the process was told to stop while it
// was starting.
func unlessStopped(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// announce tells a person what runs and how to try it.
func (f *fleet) announce(ctx context.Context, out io.Writer, c *checkpoint, flags *replicaFlags) {
	fmt.Fprintf(out, "tailor %s is ready: %s on %d replicas, policy %s\n\n", version(), describe(c), len(f.replicas), f.policy)
	fmt.Fprintf(out, "  router  %s\n", f.url)
	for _, r := range f.replicas {
		fmt.Fprintf(out, "  %-6s  %s  %s\n", r.id, r.url, describePool(c, flags))
	}
	flags.announceMemory(ctx, out)
	tryIt(out, f.url, c.name)
}

// tryIt prints a command that works when pasted.
func tryIt(out io.Writer, url, model string) {
	fmt.Fprintf(out, `Try it, and send it twice: the second time cached_tokens says what was reused.

  curl -s %s/v1/completions -H 'Content-Type: application/json' \
    -d '{"model": "%s", "prompt": "User: I would like to book a table for two people in San Jose tonight.\nAssistant:", "max_tokens": 24, "temperature": 0}'

`, url, model)
}

func describe(c *checkpoint) string {
	cfg := c.net.Config()
	return fmt.Sprintf("%s (%d layers, width %d, context %d)", c.name, cfg.Layers, cfg.Width, cfg.Context)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
