package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/router"
)

func newServe() *cobra.Command {
	var (
		flags  replicaFlags
		listen string
		id     string
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the model as one replica, without a router",
		Long: `Serve the model as one replica, without a router. The transformer computes on the CPU; a GPU is
only asked for its memory, through NVML: to show it, and to size the KV cache as a replica on
that GPU would have it (--kv-memory gpu:0).`,
		Example: `  tailor serve
  tailor serve --listen 127.0.0.1:8081 --id a --kv-blocks 4096 --threads 2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.validate(cmd, 1); err != nil {
				return err
			}
			// A router takes it as it comes in a header, and so asks the same.
			if _, err := router.ParseReplica(id + "=http://localhost"); err != nil {
				return misuse(cmd, "--id %q: must be 1 to 128 printable ASCII characters without spaces and =", id)
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
			defer makeRoom(flags.threads)()
			group, ctx := errgroup.WithContext(cmd.Context())
			r, err := startReplica(ctx, group, c, &flags, id, listen, log)
			if err != nil {
				return stopGroup(group, unlessStopped(cmd, err))
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "tailor %s is ready: %s\n\n", version(), describe(c))
			fmt.Fprintf(out, "  %-6s  %s  %s\n", r.id, r.url, describePool(c, &flags))
			flags.announceMemory(cmd.Context(), out)
			tryIt(out, r.url, c.name)
			return group.Wait()
		},
	}
	flags.add(cmd, defaultBlocks)
	flags.access.add(cmd)
	addDrainFlag(cmd, &flags.drain)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8081", "address to serve on (port 0: any free one)")
	cmd.Flags().StringVar(&id, "id", "r0", "the replica's name in answers, logs and metrics")
	return cmd
}
