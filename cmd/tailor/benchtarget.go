package main

import (
	neturl "net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tailor/internal/bench"
	"tailor/internal/bench/workload"
)

// targetFlags name what runs already.
type targetFlags struct {
	url     string
	model   string
	keyFile string
	reset   bool
}

func (f *targetFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "target", "", "measure what runs at this URL instead: a Tailor router or replica, or another OpenAI server")
	flags.BoolVar(&f.reset, "reset", false, "target: drop its caches before each run; else nothing of it is changed")
	flags.StringVar(&f.model, "target-model", "", "target: the model to ask for (default: the first that it lists)")
	flags.StringVar(&f.keyFile, "target-key-file", "", "target: file with the API key to send")
}

// foreignTarget is what prompts of token ids must fit where a server does not say what its
// model is: ids that every vocabulary in use has, and that are not special ones.
func foreignTarget() workload.Target {
	t := workload.Bundled()
	t.AvoidLow = 256
	return t
}

// running prepares to measure what runs already.
func (f *benchFlags) running(cmd *cobra.Command, opt *bench.Options) (bench.Start, error) {
	t := &f.target
	if err := f.refuseOwn(cmd); err != nil {
		return nil, err
	}
	if t.keyFile != "" {
		text, err := os.ReadFile(t.keyFile)
		if err != nil {
			return nil, misuse(cmd, "--target-key-file: %v", err)
		}
		if opt.Key = strings.TrimSpace(string(text)); opt.Key == "" {
			return nil, misuse(cmd, "--target-key-file %s: there is no key in it", t.keyFile)
		}
	}
	url := strings.TrimRight(t.url, "/")
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return nil, misuse(cmd, "--target %q: want http:// or https:// and a host", t.url)
	}
	// Reports name the target: nothing secret may be in it.
	if parsed, err := neturl.Parse(url); err != nil || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" {
		return nil, misuse(cmd, "--target: want http:// or https:// and a host, without password or query; a key goes into --target-key-file")
	}
	found, err := bench.Probe(cmd.Context(), url, opt.Key)
	if err != nil {
		return nil, err
	}
	m := workloadModel{target: foreignTarget()}
	if found.Vocab > 0 {
		m.target.Vocab, m.target.AvoidLow = found.Vocab, 0
	}
	if found.Context > 0 {
		m.target.Context = found.Context
	}
	if opt.Workload, err = f.workload.make(cmd, m, found.Behind); err != nil {
		return nil, err
	}
	if opt.Arrival, opt.SLO, err = f.arrival.read(cmd, opt.Workload); err != nil {
		return nil, err
	}
	opt.Policies, opt.KVBlocks, opt.Replicas = []string{found.Label()}, []int{found.KVBlocks}, found.Behind
	if opt.Model = t.model; opt.Model == "" {
		opt.Model = found.Model
	}
	opt.About.Target, opt.About.Cold = url, t.reset
	opt.About.Threads, opt.About.BlockTokens = found.Threads, found.BlockTokens
	opt.Workload.Published = nil // they are of cold caches and of policies of a name
	return found.Start(t.reset), nil
}

// refuseOwn refuses what can only be said of replicas that the benchmark starts itself.
func (f *benchFlags) refuseOwn(cmd *cobra.Command) (err error) {
	own := map[string]bool{"policies": true, "kv-blocks": true, "replicas": true}
	engine := &cobra.Command{}
	new(replicaFlags).add(engine, defaultBlocks)
	engine.Flags().VisitAll(func(flag *pflag.Flag) { own[flag.Name] = true })
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if own[flag.Name] && err == nil && given(cmd, flag.Name) {
			err = misuse(cmd, "--%s %s: with --target it is the running server's own, and cannot be changed", flag.Name, flag.Value)
		}
	})
	return err
}

// arrivalFlags say when requests are sent.
type arrivalFlags struct {
	concurrency int
	rate, speed float64
	maxInFlight int
	sloTTFT     time.Duration
	sloTPOT     time.Duration
}

func (f *arrivalFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.concurrency, "concurrency", 1, "closed loop: clients that each wait for their answer; with 1 every count is exactly repeatable")
	flags.Float64Var(&f.rate, "rate", 0, "open loop instead: requests per second, at random (Poisson) times")
	flags.Float64Var(&f.speed, "speed", 0, "open loop at the workload's own times: its clock against ours, 1 as recorded")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 256, "open loop: requests under way at most; what waits for a place is counted and reported")
	flags.DurationVar(&f.sloTTFT, "slo-ttft", 0, "answers count as good whose first token came within this; 0: any")
	flags.DurationVar(&f.sloTPOT, "slo-tpot", 0, "and whose further tokens took no longer than this each; 0: any")
}

func (f *arrivalFlags) read(cmd *cobra.Command, w *workload.Workload) (a bench.Arrival, slo bench.SLO, err error) {
	fail := func(format string, args ...any) (bench.Arrival, bench.SLO, error) {
		return a, slo, misuse(cmd, format, args...)
	}
	changed := func(name string) bool { return given(cmd, name) }
	switch {
	case f.concurrency < 1 || f.concurrency > 1024:
		return fail("--concurrency %d: must be 1 to 1024", f.concurrency)
	case changed("rate") && !(f.rate > 0 && f.rate <= 1e6):
		return fail("--rate %v: must be above 0 and at most 1000000 requests per second", f.rate)
	case changed("speed") && !(f.speed > 0 && f.speed <= 1e9):
		return fail("--speed %v: must be above 0 and at most 1e9", f.speed)
	case changed("rate") && changed("speed"), changed("concurrency") && (changed("rate") || changed("speed")):
		return fail("--concurrency %d, --rate %v, --speed %v: give one of them", f.concurrency, f.rate, f.speed)
	case changed("speed") && !w.Timed:
		return fail("--speed %v: %s has no times of its own; give --rate", f.speed, w.Name)
	case f.maxInFlight < 1 || f.maxInFlight > 1<<16:
		return fail("--max-in-flight %d: must be 1 to %d", f.maxInFlight, 1<<16)
	case f.sloTTFT < 0 || f.sloTPOT < 0:
		return fail("--slo-ttft %v, --slo-tpot %v: must be 0 or more", f.sloTTFT, f.sloTPOT)
	}
	slo = bench.SLO{TTFT: f.sloTTFT.Seconds(), TPOT: f.sloTPOT.Seconds()}
	switch {
	case changed("rate"):
		return bench.Arrival{Kind: bench.Poisson, Rate: f.rate, MaxInFlight: f.maxInFlight}, slo, nil
	case changed("speed"):
		return bench.Arrival{Kind: bench.Trace, Speed: f.speed, MaxInFlight: f.maxInFlight}, slo, nil
	}
	return bench.Arrival{Kind: bench.Closed, Concurrency: f.concurrency}, slo, nil
}
