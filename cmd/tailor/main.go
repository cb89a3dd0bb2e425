// Command tailor serves a GPT-2-class language model on the CPU with a paged KV cache and
// radix-tree prefix reuse on every replica, routes over several replicas with prefix
// affinity, and measures what that saves.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tailor/router"
	"tailor/router/policy"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run executes one command line and returns its exit status: 0 done, 1 failed, 2 misused.
func run(args []string) int {
	// The first signal asks for an orderly end; a second one, the context's watch being
	// over, kills the process in the usual way.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()

	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "tailor: %v\nRun '%s --help' for the options.\n", usage.err, usage.command)
		return 2
	case errors.Is(err, policy.ErrUnknown), errors.Is(err, router.ErrReplica):
		fmt.Fprintf(os.Stderr, "tailor: %v\n", err)
		return 2
	default:
		fmt.Fprintf(os.Stderr, "tailor: %v\n", err)
		return 1
	}
}

// usageError is a command line that cannot be carried out as written.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tailor",
		Short: "A small language model server with real prefix reuse, and a router that knows where it is",
		Long: `Tailor serves a GPT-2-class language model on the CPU. Every replica keeps a real paged
KV cache with a radix tree of prefixes; the router sends a request to the replica that has
its prefix. What that saves is measured on real compute: 'tailor bench'.

The transformer computes on the CPU, always. A GPU is only asked for its memory, through
NVML, to show it ('tailor gpu') and to size a cache as it would ('--kv-memory gpu:0').

The model that comes with the binary needs no download: start with 'tailor up'.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{command: cmd.CommandPath(), err: err}
	})
	addOptionFlags(root)
	root.PersistentFlags().String("log-level", "info", "least severe log line to print: debug, info, warn, error")
	root.PersistentFlags().String("log-format", "text", "how log lines are written: text or json")
	root.AddCommand(newUp(), newServe(), newRoute(), newBench(), newVerify(), newGPU())
	return root
}

// newLogger returns the process's logger at the level that the command line asks for.
func newLogger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	text, err := cmd.Flags().GetString("log-level")
	if err != nil {
		return nil, err
	}
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return nil, misuse(cmd, "--log-level %q: must be debug, info, warn or error", text)
	}
	format, err := cmd.Flags().GetString("log-format")
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, misuse(cmd, "--log-format %q: must be text or json", format)
}

func misuse(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{command: cmd.CommandPath(), err: fmt.Errorf(format, args...)}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return misuse(cmd, "unknown command %q", args[0])
	}
	return misuse(cmd, "%q: takes options only", args[0])
}
