package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tailor/model"
	"tailor/model/speed"
)

// engineBench is the workload 'engine': the network alone, without HTTP, scheduler or
// cache, measured as the usual engine benches do.
type engineBench struct {
	options speed.Options
	shape   string
}

// engineRepeat is how often each test runs where it is not said: single ones scatter.
const engineRepeat = 7

// shapes are the networks that --shape names.
var shapes = []string{"bundled", "gpt2-124m"}

func (e *engineBench) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVarP(&e.options.Prompt, "prompt-tokens", "p", 512, "engine: tokens of the prefill; 0 leaves it out")
	flags.IntVarP(&e.options.Generate, "gen-tokens", "n", 128, "engine: tokens that each sequence decodes; 0 leaves it out")
	flags.IntVarP(&e.options.Depth, "depth", "d", 0, "engine: tokens that each sequence has behind it when the decode begins")
	flags.IntSliceVarP(&e.options.Threads, "thread-counts", "t", []int{1, 2}, "engine: numbers of threads to run with")
	flags.IntSliceVar(&e.options.Batches, "batch", []int{1}, "engine: numbers of sequences to decode at one time")
	flags.StringVar(&e.shape, "shape", "", "engine: a network with random weights in place of --model: gpt2-124m; or bundled")
}

func (e *engineBench) run(cmd *cobra.Command, f *replicaFlags, jsonFile string) error {
	o := &e.options
	switch {
	case o.Prompt < 0 || o.Generate < 0 || o.Depth < 0 || o.Prompt+o.Generate == 0:
		return misuse(cmd, "-p %d -n %d -d %d: none may be negative, and -p or -n must be positive", o.Prompt, o.Generate, o.Depth)
	case o.Repeat < 1 || o.Repeat > 1000:
		return misuse(cmd, "--repeat %d: must be 1 to 1000", o.Repeat)
	case len(o.Threads) == 0 || slices.Min(o.Threads) < 1 || slices.Max(o.Threads) > 1024:
		return misuse(cmd, "-t %v: want numbers of threads, 1 to 1024", o.Threads)
	case len(o.Batches) == 0 || slices.Min(o.Batches) < 1 || slices.Max(o.Batches) > 1024:
		return misuse(cmd, "--batch %v: want numbers of sequences, 1 to 1024", o.Batches)
	case e.shape != "" && !slices.Contains(shapes, e.shape):
		return misuse(cmd, "--shape %q: want %s", e.shape, strings.Join(shapes, " or "))
	case e.shape != "" && f.model != "":
		return misuse(cmd, "--shape %s and --model %s: want one of them", e.shape, f.model)
	}
	o.KVDType = kvType(f.kvDType)
	net, name, err := e.load(f)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s, --dtype %s: weights in %s, %.1f MB; keys and values in %v\n",
		name, net.DType(), strings.Join(net.Formats(), " and "), float64(net.WeightBytes())/1e6, o.KVDType)
	report, err := speed.Run(cmd.Context(), net, name, *o, func(l speed.Limits, results []speed.Result) {
		writeLimits(out, l)
		for i := range results {
			writeResult(out, &results[i])
		}
	})
	if errors.Is(err, speed.ErrTooLong) {
		return misuse(cmd, "-p, -d and -n: %w", err)
	}
	if err != nil || jsonFile == "" {
		return err
	}
	return writeJSON(jsonFile, report)
}

func (e *engineBench) load(f *replicaFlags) (net *model.Model, name string, err error) {
	if e.shape == "gpt2-124m" {
		net, err = model.NewAs(f.dtype, speed.GPT2Small, speed.RandomTensors(speed.GPT2Small))
		return net, e.shape, err
	}
	c, err := loadCheckpoint(f.model, f.dtype)
	if err != nil {
		return nil, "", err
	}
	return c.net, c.name, nil
}

func writeLimits(out io.Writer, l speed.Limits) {
	fmt.Fprintf(out, "\nlimits of T=%d:", l.Threads)
	for i, p := range l.Peaks {
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		fmt.Fprintf(out, " %s %.0f", p.Name, p.FLOPS/1e9)
	}
	fmt.Fprintf(out, " GFLOP/s; read %.1f GB/s\n", l.Read/1e9)
	fmt.Fprintf(out, "%-8s %2s %5s %9s %19s %12s  %s\n", "test", "T", "batch", "tokens/s", "(min - max)", "per CPU s", "share of limit")
}

func writeResult(out io.Writer, r *speed.Result) {
	s := r.TokensPerSecond
	fmt.Fprintf(out, "%-8s %2d %5d %9.1f %19s %12.1f  %.0f %% of %s\n", r.Test, r.Threads, r.Batch, s.Median,
		fmt.Sprintf("(%.1f - %.1f)", s.Min, s.Max), r.TokensPerCPUSecond.Median, 100*r.Share, r.Limit)
}
