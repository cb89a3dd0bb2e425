package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tailor/internal/bench/workload"
)

// ErrOptions says that what is asked for cannot be run.
var ErrOptions = errors.New("bench: bad options")

// Options say how a workload is replayed.
type Options struct {
	Workload *workload.Workload
	// Policies and KVBlocks (of each replica) are compared each with each.
	Policies []string
	KVBlocks []int
	Replicas int
	Repeat   int
	Arrival  Arrival
	SLO      SLO
	// WarmUp is how many requests of the workload are replayed before the first run, on a
	// cluster of their own, and not counted: the first run of a process meets memory and
	// caches that all others find ready.
	WarmUp int
	// Model is asked for; empty: what the server says it has.
	Model string
	// Key is sent as a bearer token; empty: none.
	Key string
	// Progress, if set, is called after each answer, by one goroutine at a time.
	Progress func(Progress)
	// About is taken over into the report: what was asked for, where, of what.
	About Report
}

// Progress says how far a comparison is.
type Progress struct {
	Policy     string
	KVBlocks   int
	Run, Runs  int // the one under way, from 0, and how many there will be
	Done, Sent int // answered, and to be sent in this run
}

// afterwards bounds how long counters are asked for and a cluster is taken down once a run
// is over, also after an interrupt.
const afterwards = 30 * time.Second

// Replay sends the workload under each policy with each capacity, Repeat times, each time on
// what start brings up. It always returns a report, of what ran to its end: where ctx ends
// early the report says so, and where it cannot go on for another reason Replay returns an
// error, too. Repeats go round by round, so that a machine that becomes slower meanwhile
// does so for all policies.
func Replay(ctx context.Context, opt Options, start Start) (*Report, error) {
	c := newComparison(opt, start)
	if err := c.validate(); err != nil {
		return c.report, err
	}
	err := c.runAll(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		c.report.Interrupted, err = true, nil
	}
	c.finish()
	return c.report, err
}

// plainPolicy is for a router that is not asked for a choice.
const plainPolicy = "round_robin"

// comparison is a Replay under way.
type comparison struct {
	opt    Options
	start  Start
	report *Report
	groups []Group // all that shall be there
	// alphabet is the tokens of the prompts; empty until the first run has come to its end.
	alphabet []int32
	// cold and hot are the prefill CPU seconds of prompts that were sent for that.
	cold, hot []float64
}

func newComparison(opt Options, start Start) *comparison {
	report := opt.About
	w := opt.Workload
	report.Schema = SchemaVersion
	report.Arrival, report.SLO, report.Repeat, report.Replicas, report.Model = opt.Arrival, opt.SLO, opt.Repeat, opt.Replicas, opt.Model
	report.Workload = WorkloadReport{Name: w.Name, Seed: w.Seed, Parameters: map[string]string{}, Requests: len(w.Requests)}
	for _, p := range w.Parameters {
		report.Workload.Parameters[p.Name] = p.Value
	}
	report.Groups = []Group{}
	report.Reach.Bounds = []Bound{}
	c := &comparison{opt: opt, start: start, report: &report}
	for _, blocks := range opt.KVBlocks {
		for _, policy := range opt.Policies {
			c.groups = append(c.groups, Group{Policy: policy, KVBlocks: blocks})
		}
	}
	return c
}

func (c *comparison) validate() error {
	o := &c.opt
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	switch a := o.Arrival; {
	case len(o.Workload.Requests) == 0:
		return fail("the workload has no requests")
	case len(c.groups) == 0 || o.Repeat < 1:
		return fail("nothing to run: %d policies, %d capacities, %d times", len(o.Policies), len(o.KVBlocks), o.Repeat)
	case a.Kind == Closed && a.Concurrency < 1:
		return fail("a closed loop of %d clients", a.Concurrency)
	case a.Kind == Poisson && !(a.Rate > 0):
		return fail("a rate of %v requests per second", a.Rate)
	case a.Kind == Trace && !(a.Speed > 0):
		return fail("a speed of %v", a.Speed)
	case a.Kind != Closed && a.Kind != Poisson && a.Kind != Trace:
		return fail("arrival %q", a.Kind)
	case a.Kind != Closed && a.MaxInFlight < 1:
		return fail("an open loop with at most %d requests in flight", a.MaxInFlight)
	}
	for i := range o.Workload.Requests {
		r := &o.Workload.Requests[i]
		if r.After >= i || r.Continues && r.After < 0 {
			return fail("request %d waits for request %d", i, r.After)
		}
		for _, policy := range o.Policies {
			if policy == Recorded && (r.Placement < 0 || r.Placement >= o.Replicas) {
				return fail("policy %s: request %d has recorded replica %d, and there are %d", policy, i, r.Placement, o.Replicas)
			}
		}
	}
	return nil
}

// warmUp replays the workload's beginning under the first policy.
func (c *comparison) warmUp(ctx context.Context) error {
	w := *c.opt.Workload
	if c.opt.WarmUp <= 0 {
		return nil
	}
	w.Requests, w.Churn = w.Requests[:min(c.opt.WarmUp, len(w.Requests))], nil
	opt := c.opt
	opt.Workload, opt.Progress = &w, nil
	warm := newComparison(opt, c.start)
	warm.report.Reach.Unit = Tokens // nobody asks
	_, _, err := warm.one(ctx, &warm.groups[0], 0, 1)
	return err
}

func (c *comparison) runAll(ctx context.Context) error {
	if err := c.warmUp(ctx); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	runs := len(c.groups) * c.opt.Repeat
	for n := range runs {
		g := &c.groups[n%len(c.groups)]
		run, whole, err := c.one(ctx, g, n, runs)
		if whole {
			g.Runs = append(g.Runs, run)
		} else if run.Requests > 0 {
			c.report.Partial = &Group{Policy: g.Policy, KVBlocks: g.KVBlocks, Runs: []Run{run}, Summary: map[string]Spread{}}
		}
		if err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return err
			}
			return fmt.Errorf("policy %s: %w", g.Policy, err)
		}
		if err := c.calibrate(ctx); err != nil {
			return fmt.Errorf("measuring what a prefix and a suffix cost: %w", err)
		}
	}
	return nil
}

// one replays the workload once. whole: the run came to its end.
func (c *comparison) one(ctx context.Context, g *Group, n, runs int) (run Run, whole bool, err error) {
	w := c.opt.Workload
	policy := g.Policy
	if policy == Recorded {
		policy = plainPolicy // every request is pinned, so it is never asked
	}
	cluster, err := c.start(ctx, policy, c.opt.Replicas, g.KVBlocks)
	if err != nil {
		return run, false, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	connections := c.opt.Arrival.Concurrency + c.opt.Arrival.MaxInFlight
	client := newClient(cluster.URL, c.opt.Key, connections)
	defer client.close()

	members := &membership{client: client, cluster: cluster, start: cluster.Replicas}
	before, err := members.read(ctx)
	if err != nil {
		return run, false, err
	}
	r := newReplay(client, w, c.opt.Model, c.opt.Arrival)
	r.change = members.change
	if c.opt.Arrival.Kind == Closed {
		r.settle = cluster.Settle
	}
	r.messages.ids = len(cluster.Replicas) > 0
	r.pin = func(int) string { return "" }
	if g.Policy == Recorded {
		r.pin = func(i int) string { return cluster.Replicas[w.Requests[i].Placement].ID }
	}
	if c.opt.Progress != nil {
		r.progress = func(done int) {
			c.opt.Progress(Progress{Policy: g.Policy, KVBlocks: g.KVBlocks, Run: n, Runs: runs, Done: done, Sent: len(w.Requests)})
		}
	}
	failure := r.run(ctx)
	wall := r.now()

	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	now, err := members.read(after)
	if err != nil {
		return run, false, errors.Join(failure, err)
	}
	var samples []Sample
	for i, ended := range r.ended {
		if ended {
			samples = append(samples, r.samples[i])
		}
	}
	whole = failure == nil
	run = measure(samples, now.minus(before), wall, c.opt.SLO)
	run.Held, run.Prompts = r.held, fmt.Sprintf("%016x", r.hash)
	if !whole {
		run.Problems = nil // what was cut off is counted by one side only
	}
	if whole && c.report.Reach.Unit == "" {
		err = c.reach(ctx, r, cluster)
	}
	return run, whole, errors.Join(failure, err)
}

// finish fills in what follows from the runs.
func (c *comparison) finish() {
	rep := c.report
	for i := range c.groups {
		g := &c.groups[i]
		if len(g.Runs) == 0 {
			continue
		}
		if p, ok := c.opt.Workload.Published[g.Policy]; ok {
			g.Published = &PublishedCheck{Computed: p.Computed, Hits: p.Hits, Same: true}
			for j := range g.Runs {
				r := &g.Runs[j]
				g.Published.Same = g.Published.Same && r.Computed == p.Computed && r.Hits == p.Hits
			}
		}
		rep.Groups = append(rep.Groups, *g)
	}
	predictCosts(rep, c.prices())
	for i := range rep.Groups {
		rep.Groups[i].summarize()
	}
	if len(rep.Groups) > 0 {
		first := &rep.Groups[0].Runs[0]
		rep.Workload.PromptTokens, rep.Workload.OutputTokens = first.PromptTokens, first.Decoded
	}
	c.comparePrompts()
	rep.Verdict = Judge(rep)
}

// comparePrompts sees to it that a difference in what was asked does not pass for one
// between policies: answers that differ make the next turns differ.
func (c *comparison) comparePrompts() {
	for i := range c.report.Groups {
		for j := range c.report.Groups[i].Runs {
			r, first := &c.report.Groups[i].Runs[j], &c.report.Groups[0].Runs[0]
			if r.Prompts != first.Prompts && r.Failed == 0 && first.Failed == 0 {
				r.Problems = append(r.Problems, "its prompts differ from those of the first run: the server's answers are not the same each time")
			}
		}
	}
}

// Problems are those of all runs, each with the run that has it; none is what a report
// should have.
func (r *Report) Problems() []string {
	var all []string
	for i := range r.Groups {
		g := &r.Groups[i]
		for j := range g.Runs {
			for _, p := range g.Runs[j].Problems {
				all = append(all, g.name(r)+", run "+strconv.Itoa(j+1)+": "+p)
			}
		}
	}
	return all
}

// name is the policy's, with the capacity where there are several.
func (g *Group) name(r *Report) string {
	for i := range r.Groups {
		if r.Groups[i].KVBlocks != g.KVBlocks {
			return fmt.Sprintf("%s with %d blocks", g.Policy, g.KVBlocks)
		}
	}
	return g.Policy
}
