package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/internal/device"
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
		Example: `  tailor serve
  tailor serve --listen 127.0.0.1:8081 --id a --kv-blocks 4096 --threads 2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.validate(cmd, 1); err != nil {
				return err
			}
			log, err := newLogger(cmd)
			if err != nil {
				return err
			}
			c, err := flags.load(cmd)
			if err != nil {
				return err
			}
			group, ctx := errgroup.WithContext(cmd.Context())
			r, err := startReplica(ctx, group, c, &flags, id, listen, log)
			if err != nil {
				return stopGroup(group, unlessStopped(cmd, err))
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "tailor %s is ready: %s\n\n", version(), describe(c))
			fmt.Fprintf(out, "  %-6s  %s  %s\n", r.id, r.url, describePool(c, &flags))
			fmt.Fprintf(out, "  gpu     %s\n\n", gpuLine(device.NewProber().Probe()))
			tryIt(out, r.url, c.name)
			return group.Wait()
		},
	}
	flags.add(cmd, defaultBlocks)
	flags.access.add(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8081", "address to serve on (port 0: any free one)")
	cmd.Flags().StringVar(&id, "id", "r0", "the replica's name in answers, logs and metrics")
	return cmd
}
