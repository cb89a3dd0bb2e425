package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/internal/bench"
)

func newBench() *cobra.Command {
	var (
		flags       replicaFlags
		workload    string
		prefixes    int
		concurrency int
		policies    []string
		jsonFile    string
		alone       engineBench
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Replay a workload under several routing policies and count what each computes",
		Long: `Replay a workload under several routing policies, each with its own replicas and cold caches,
and count what each computes. The counts are the engines' own.

The workload 'lesson' has 300 requests on 16 replicas; each prompt is one of 5 (or 20) prefixes
of 500 tokens and a suffix of its own. The policy 'recorded' sends each request to the replica
that the lesson's random routing drew for it.

The workload 'engine' measures the network alone: tokens per second of prefill and decode, and
the share of what this machine's arithmetic and memory allow.`,
		Example: `  tailor bench --workload lesson
  tailor bench --workload lesson --prefixes 20 --policies recorded,prefix_hash --json lesson.json
  tailor bench --workload engine --shape gpt2-124m --dtype bf16 -p 512 -n 128 -t 1,2 --batch 1,8`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if workload == "engine" {
				return alone.run(cmd, &flags, jsonFile)
			}
			if workload != "lesson" {
				return misuse(cmd, "--workload %q: want lesson or engine", workload)
			}
			w, err := bench.Lesson(prefixes)
			if err != nil {
				return misuse(cmd, "--prefixes %d: %w", prefixes, err)
			}
			if concurrency < 1 || concurrency > 1024 {
				return misuse(cmd, "--concurrency %d: must be 1 to 1024", concurrency)
			}
			if err := flags.validate(cmd, w.Replicas); err != nil {
				return err
			}
			c, err := flags.load(cmd)
			if err != nil {
				return err
			}
			opt := bench.Options{Workload: w, Policies: policies, Model: c.name, Concurrency: concurrency}
			if isTerminal(os.Stderr) {
				opt.Progress = bench.Progress(os.Stderr)
			}
			results, runErr := bench.Run(cmd.Context(), opt, starter(c, &flags))
			// What ran to its end is reported even when the rest did not.
			if len(results) > 0 {
				if err := bench.WriteTable(cmd.OutOrStdout(), w, results); err != nil {
					return err
				}
			}
			if jsonFile != "" && runErr == nil {
				runErr = writeJSON(jsonFile, bench.Report{Workload: w.Name, Replicas: w.Replicas, Concurrency: concurrency, Results: results})
			}
			return runErr
		},
	}
	// All of the lesson's prefixes and suffixes fit into one replica, as its author assumes.
	flags.add(cmd, 2048)
	alone.add(cmd)
	own := cmd.Flags()
	own.StringVar(&workload, "workload", "lesson", "what to replay: lesson; or engine: the network alone")
	own.IntVar(&prefixes, "prefixes", 5, "distinct prefixes of the lesson: 5 or 20")
	own.StringSliceVar(&policies, "policies", bench.DefaultPolicies(), "policies to compare, in order")
	own.IntVar(&concurrency, "concurrency", 1, "clients at one time; with 1 every count is exactly repeatable")
	own.StringVar(&jsonFile, "json", "", "also write the results to this file, as JSON")
	return cmd
}

// starter starts a fleet for each policy, on free ports and with cold caches. Its logs say
// only what went wrong.
func starter(c *checkpoint, flags *replicaFlags) bench.Start {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return func(ctx context.Context, policy string, replicas int) (*bench.Cluster, error) {
		ctx, cancel := context.WithCancel(ctx)
		group, groupCtx := errgroup.WithContext(ctx)
		f, err := startFleet(groupCtx, group, c, flags, fleetPlan{replicas: replicas, listen: "127.0.0.1:0", policy: policy}, log)
		if err != nil {
			cancel()
			return nil, stopGroup(group, err)
		}
		cluster := &bench.Cluster{RouterURL: f.url, Close: func() error {
			cancel()
			return group.Wait()
		}}
		for _, r := range f.replicas {
			cluster.Replicas = append(cluster.Replicas, bench.Replica{ID: r.id, URL: r.url})
		}
		return cluster, nil
	}
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
