package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"tailor/internal/bench"
	"tailor/internal/bench/workload"
	"tailor/router"
	"tailor/router/policy"
)

// benchFlags are the options of a comparison.
type benchFlags struct {
	engine   replicaFlags
	workload workloadFlags
	arrival  arrivalFlags
	target   targetFlags
	output   outputFlags
	alone    engineBench

	policies []string
	kvBlocks []int
	replicas int
	repeat   int
}

const (
	// benchReplicas is how many there are where the workload does not say.
	benchReplicas = 4
	// benchDrain is for what an interrupt leaves under way, and the router's own connections.
	benchDrain = 10 * time.Second
)

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Replay a workload under several routing policies: would prefix routing pay for it?",
		Long: `Replay a workload under several routing policies, each with replicas of its own, cold caches and the
same bytes; count what each computes, measure what each takes, and say whether routing by prefix would
pay for this traffic and where reuse was lost. The counts are the engines' own.

The workload 'lesson' is the well-known lesson on prefix routing: 300 requests on 16 replicas, each
prompt one of 5 (or 20) prefixes of 500 tokens and a suffix of its own. Its policy 'recorded' sends each
request to the replica that the lesson's random routing drew for it. The others are: shared-prefix,
prefix-repetition, chat, hot, churn (replicas leave and join), no-reuse and all-fits (controls); and
--trace replays a log of your own. The workload 'engine' measures the network alone.`,
		Example: `  tailor bench
  tailor bench --workload chat --replicas 4 --rate 20 --repeat 3 --html chat.html
  tailor bench --trace requests.jsonl --kv-blocks 64,128,512 --policies round_robin,prefix_affinity
  tailor bench --target http://127.0.0.1:8080 --workload shared-prefix
  tailor bench --workload engine --shape gpt2-124m --dtype bf16 -p 512 -n 128 -t 1,2 --batch 1,8
  tailor bench compare before.json after.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	cmd.AddCommand(newBenchCompare(), newBenchSchema())
	return cmd
}

func (f *benchFlags) add(cmd *cobra.Command) {
	groups := &flagGroups{}
	groups.collect("Workload", cmd, func() { f.workload.add(cmd) })
	groups.collect("Arrival", cmd, func() { f.arrival.add(cmd) })
	groups.collect("Comparison", cmd, func() {
		flags := cmd.Flags()
		flags.StringSliceVar(&f.policies, "policies", nil, "policies to compare, in order, of "+strings.Join(policy.Names(), ", ")+
			", and recorded (default: the usual ones)")
		flags.IntSliceVar(&f.kvBlocks, "kv-blocks", []int{defaultBlocks}, "KV blocks in a replica's pool; several, as in 64,128,512, are compared")
		flags.IntVar(&f.replicas, "replicas", 0, fmt.Sprintf("number of replicas; 0: as many as the workload is meant for, or %d", benchReplicas))
		flags.IntVar(&f.repeat, "repeat", 1, fmt.Sprintf("runs of each, of which the median counts (engine: %d)", engineRepeat))
	})
	groups.collect("Target", cmd, func() { f.target.add(cmd) })
	groups.collect("Output", cmd, func() { f.output.add(cmd) })
	groups.collect("Replicas", cmd, func() { f.addReplicaFlags(cmd) })
	groups.collect("Workload 'engine'", cmd, func() { f.alone.add(cmd) })
	groups.install(cmd)
}

// warmUpRequests are replayed before anything counts.
const warmUpRequests = 300

// addReplicaFlags adds those of a replica, but for kv-blocks, which is a list here.
func (f *benchFlags) addReplicaFlags(cmd *cobra.Command) {
	replica := &cobra.Command{}
	f.engine.add(replica, defaultBlocks)
	replica.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "kv-blocks" {
			cmd.Flags().AddFlag(flag)
		}
	})
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	if f.workload.name == workloadEngine {
		f.alone.options.Repeat = f.repeat
		if !given(cmd, "repeat") {
			f.alone.options.Repeat = engineRepeat
		}
		return f.alone.run(cmd, &f.engine, f.output.json)
	}
	if f.repeat < 1 || f.repeat > 1000 {
		return misuse(cmd, "--repeat %d: must be 1 to 1000", f.repeat)
	}
	opt := bench.Options{Repeat: f.repeat, About: bench.Report{
		Created: time.Now().UTC(), Command: slices.Clone(os.Args), Version: version(), Machine: bench.ThisMachine(), Cold: true,
	}}
	prepare := f.own
	if f.target.url != "" {
		prepare = f.running
	}
	start, err := prepare(cmd, &opt)
	if err != nil {
		return err
	}
	files, err := f.output.open()
	if err != nil {
		return err
	}
	defer files.close()
	if isTerminal(os.Stderr) {
		opt.Progress = bench.NewProgress(os.Stderr, time.Now)
	}
	report, runErr := bench.Replay(cmd.Context(), opt, start)
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\033[K") // what is left of the progress line
	}
	if errors.Is(runErr, bench.ErrOptions) {
		return misuse(cmd, "%w", runErr)
	}
	// What ran is reported even when the rest did not.
	if len(report.Groups) > 0 || report.Partial != nil || runErr == nil {
		runErr = errors.Join(runErr, bench.WriteTable(cmd.OutOrStdout(), report), files.write(report))
	}
	switch problems := report.Problems(); {
	case runErr != nil:
		return runErr
	case nothingWorked(report):
		return errors.New("all requests failed")
	case report.Interrupted:
		return errors.New("interrupted: what is reported is a part")
	case len(problems) > 0 && f.target.url == "":
		return fmt.Errorf("the counts contradict each other: %s", problems[0])
	}
	return nil
}

// own prepares to start replicas for each run.
func (f *benchFlags) own(cmd *cobra.Command, opt *bench.Options) (bench.Start, error) {
	if f.target.reset || f.target.keyFile != "" || f.target.model != "" {
		return nil, misuse(cmd, "--reset, --target-model and --target-key-file: they are for --target")
	}
	if len(f.kvBlocks) == 0 {
		return nil, misuse(cmd, "--kv-blocks: want at least one number")
	}
	for _, blocks := range f.kvBlocks {
		f.engine.kvBlocks = blocks
		if blocks < 1 || blocks > 1<<28 {
			return nil, misuse(cmd, "--kv-blocks %d: must be 1 to %d", blocks, 1<<28)
		}
	}
	opt.WarmUp = warmUpRequests
	if f.replicas < 0 || f.replicas > 256 {
		return nil, misuse(cmd, "--replicas %d: must be 1 to 256, or 0 for as many as the workload is meant for", f.replicas)
	}
	// What a workload must fit is known without the weights, which take longer to read.
	folder, err := openFolder(f.engine.model)
	if err != nil {
		return nil, err
	}
	shape, err := loadConfig(folder)
	if err != nil {
		return nil, err
	}
	m := workloadModel{target: modelTarget(shape), count: tokenCounter(folder)}
	if opt.Workload, err = f.workload.make(cmd, m, f.replicas); err != nil {
		return nil, err
	}
	if f.engine.kvMemory.kind == asBlocks {
		rows, i := opt.Workload.LongestRows()
		if blocks := slices.Min(f.kvBlocks); f.engine.blockSize > 0 && blocks*f.engine.blockSize < rows {
			return nil, misuse(cmd, "--kv-blocks %d: request %d of the workload takes %d tokens with its answer, more than that many blocks of %d hold",
				blocks, i, rows, f.engine.blockSize)
		}
	}
	if opt.Replicas = f.replicas; opt.Replicas == 0 {
		if opt.Replicas = opt.Workload.Replicas; opt.Replicas == 0 {
			opt.Replicas = benchReplicas
		}
	}
	if opt.Policies = f.policies; len(opt.Policies) == 0 {
		opt.Policies = usualPolicies(opt.Workload, opt.Replicas)
	}
	for _, name := range opt.Policies {
		if _, err := policy.New(name, policy.DefaultOptions()); err != nil && name != bench.Recorded {
			return nil, misuse(cmd, "--policies: %w", err)
		}
	}
	if err := f.engine.validate(cmd, opt.Replicas); err != nil {
		return nil, err
	}
	if opt.Arrival, opt.SLO, err = f.arrival.read(cmd, opt.Workload); err != nil {
		return nil, err
	}
	c, err := f.engine.load()
	if err != nil {
		return nil, err
	}
	if err := f.engine.size(cmd, c.net); err != nil {
		return nil, err
	}
	if opt.KVBlocks = f.kvBlocks; f.engine.kvMemory.kind != asBlocks {
		opt.KVBlocks = []int{f.engine.kvBlocks}
	}
	opt.Model = c.name
	opt.About.Settings = map[string]string{
		"dtype": f.engine.dtype.String(), "kv-dtype": kvType(f.engine.kvDType).String(), "eviction": f.engine.eviction.String(), "schedule": f.engine.schedule,
	}
	opt.About.Threads, opt.About.BlockTokens = f.engine.threads, f.engine.blockSize
	return starter(c, &f.engine), nil
}

// nothingWorked tells whether requests were sent and none was answered.
func nothingWorked(r *bench.Report) bool {
	sent, failed := int64(0), int64(0)
	for i := range r.Groups {
		for _, run := range r.Groups[i].Runs {
			sent, failed = sent+run.Requests, failed+run.Failed
		}
	}
	return sent > 0 && sent == failed
}

// usualPolicies are compared where it is not said which: the recorded placement, or a random
// one, the two that balance, and those that look at the prefix.
func usualPolicies(w *workload.Workload, replicas int) []string {
	first := bench.Recorded
	for i := range w.Requests {
		if place := w.Requests[i].Placement; place < 0 || place >= replicas {
			first = "random"
			break
		}
	}
	return []string{first, "round_robin", "least_loaded", "prefix_hash", "consistent_hash", policy.Default}
}

// starter starts a fleet for each run, on free ports and with cold caches. Its logs say
// only what went wrong.
func starter(c *checkpoint, flags *replicaFlags) bench.Start {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return func(ctx context.Context, policy string, replicas, kvBlocks int) (*bench.Cluster, error) {
		sized := *flags
		sized.kvBlocks, sized.drain = kvBlocks, benchDrain
		restore := makeRoom(replicas * sized.threads)
		// An interrupt ends the run; the fleet has to tell its counters after that.
		fleetCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		group, groupCtx := errgroup.WithContext(fleetCtx)
		unlessInterrupted := context.AfterFunc(ctx, cancel)
		f, err := startFleet(groupCtx, group, c, &sized, fleetPlan{replicas: replicas, listen: "127.0.0.1:0", policy: policy}, log)
		if !unlessInterrupted() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			cancel()
			defer restore()
			return nil, errors.Join(err, stopGroup(group, err))
		}
		return f.cluster(func() error {
			cancel()
			defer restore()
			err := group.Wait()
			// The next fleet's pools take the place of this one's at once.
			runtime.GC()
			return err
		}), nil
	}
}

// cluster is the fleet as a benchmark sees it.
func (f *fleet) cluster(stop func() error) *bench.Cluster {
	out := &bench.Cluster{URL: f.url, Router: true, Settle: f.settle, Close: stop}
	for _, r := range f.replicas {
		out.Replicas = append(out.Replicas, bench.Replica{ID: r.id, URL: r.url})
	}
	joined := 0
	out.Add = func(ctx context.Context) (bench.Replica, error) {
		joined++
		r, err := f.another(fmt.Sprintf("joined%d", joined))
		if err != nil {
			return bench.Replica{}, err
		}
		f.replicas = append(f.replicas, r)
		if err := f.router.Add(router.Replica{ID: r.id, URL: r.url}); err != nil {
			return bench.Replica{}, err
		}
		return bench.Replica{ID: r.id, URL: r.url}, f.router.AwaitReady(ctx)
	}
	out.Remove = func(_ context.Context, id string) error { return f.router.Remove(id) }
	return out
}
