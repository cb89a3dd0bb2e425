package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tailor/internal/bench/workload"
)

func lesson(t *testing.T) *workload.Workload {
	t.Helper()
	w, err := workload.Lesson(5)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// options of a plain comparison.
func options(w *workload.Workload, replicas int, policies ...string) Options {
	return Options{
		Workload: w, Policies: policies, KVBlocks: []int{2048}, Replicas: replicas, Repeat: 1, Model: "m",
		Arrival: Arrival{Kind: Closed, Concurrency: 1}, About: Report{BlockTokens: 16, Cold: true},
	}
}

// prompts is a workload of single prompts.
func prompts(lists ...[]int32) *workload.Workload {
	w := &workload.Workload{Name: "prompts"}
	for _, tokens := range lists {
		w.Requests = append(w.Requests, workload.Request{Tokens: tokens, MaxTokens: 2, After: -1, Placement: -1})
	}
	return w
}

func numbered(n int) *workload.Workload {
	var lists [][]int32
	for i := range n {
		lists = append(lists, []int32{int32(i), 7, 8, 9})
	}
	return prompts(lists...)
}

func TestReplayReportsWhatTheReplicasCounted(t *testing.T) {
	w := lesson(t)
	f := &fakes{t: t}
	r, err := Replay(t.Context(), options(w, 16, Recorded, "prefix_hash"), f.start)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []workload.Published{w.Published["recorded"], w.Published["prefix_hash"]} {
		g := &r.Groups[i]
		run := &g.Runs[0]
		if run.Computed != want.Computed || run.Hits != want.Hits || g.Published == nil || !g.Published.Same {
			t.Errorf("%s: computed %d, hits %d, published %+v; want %v", g.Policy, run.Computed, run.Hits, g.Published, want)
		}
		// The lesson's formula is exact where every hit finds a whole prefix and a token costs
		// the same everywhere, but for lengths that are rounded.
		if c := run.Cost; c == nil || math.Abs(c.Predicted/c.Measured-1) > 0.005 {
			t.Errorf("%s: cost %+v", g.Policy, c)
		}
		if math.Abs(run.PrefillCPU-1e-3*float64(run.Computed)) > 1e-6 || run.Requests != 300 || run.Failed != 0 || len(run.Problems) != 0 {
			t.Errorf("%s: %+v; want 300 requests and 1 ms a token", g.Policy, run)
		}
		if run.Lost["cold"] != run.Computed {
			t.Errorf("%s: lost %v of %d computed", g.Policy, run.Lost, run.Computed)
		}
		served := int64(0)
		for _, l := range run.Load {
			served += l.Requests
		}
		if len(run.Load) != 16 || served != 300 || run.LoadMean != 300.0/16 {
			t.Errorf("%s: load of %d replicas, %d served, mean %v", g.Policy, len(run.Load), served, run.LoadMean)
		}
	}
	// Every prefix is found but the first time, in one cache: 300 - 5 requests x 500 tokens.
	if r.Reach.Unit != Tokens || r.Reach.Infinite != 295*500 || r.Reach.InfiniteHits != 295 || r.Reach.Prompt != r.Workload.PromptTokens {
		t.Errorf("reach %+v", r.Reach)
	}
	var table strings.Builder
	if err := WriteTable(&table, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"52743", "112000", "224/300", "the same", "Yes: choose prefix_hash"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "DIFFERENT") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestReplaySaysWhenCountsDoNotAddUp(t *testing.T) {
	f := &fakes{t: t, wrong: 5}
	r, err := Replay(t.Context(), options(numbered(3), 2, "hash"), f.start)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0], "computed 12 prompt tokens; the router accounts for 17") {
		t.Errorf("problems %q", p)
	}
	if r.Verdict.Pays != PaysUnclear {
		t.Errorf("verdict %+v", r.Verdict)
	}

	// A router that sends a request twice: the engines count more than was sent.
	f = &fakes{t: t}
	var once sync.Once
	r, err = Replay(t.Context(), options(numbered(3), 2, "hash"), func(ctx context.Context, policy string, n, blocks int) (*Cluster, error) {
		c, err := f.start(ctx, policy, n, blocks)
		if err == nil {
			once.Do(func() { f.clusters[0].all[0].take([]int32{1, 2, 3}, nil) })
			before := f.clusters[0].all[0]
			before.before = func(http.ResponseWriter, *http.Request, int) bool { before.take([]int32{1, 2, 3}, nil); return false }
		}
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Problems(); len(p) == 0 || !strings.Contains(p[0], "the answers say") {
		t.Errorf("problems %q", p)
	}
}

func TestReplayCountsFailuresAndGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(w http.ResponseWriter)
		want string
	}{
		"429": {func(w http.ResponseWriter) { http.Error(w, `{"error":{"message":"full"}}`, http.StatusTooManyRequests) }, "429 Too Many Requests: full"},
		"500": {func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) }, "500 Internal Server Error"},
		"cut": {func(w http.ResponseWriter) { fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\n") }, "unexpected EOF"},
		"error chunk": {func(w http.ResponseWriter) {
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"the replica is gone\"}}\n\n")
		}, "the replica is gone"},
		"nonsense":  {func(w http.ResponseWriter) { fmt.Fprint(w, "data: {]\n\ndata: [DONE]\n\n") }, "invalid character"},
		"no choice": {func(w http.ResponseWriter) { fmt.Fprint(w, "data: [DONE]\n\n") }, "without a choice"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakes{t: t, change: func(r *fakeReplica) {
				r.before = func(w http.ResponseWriter, _ *http.Request, n int) bool {
					if n%5 == 1 {
						c.fail(w)
						return true
					}
					return false
				}
			}}
			r, err := Replay(t.Context(), options(numbered(20), 1, "hash"), f.start)
			if err != nil {
				t.Fatal(err)
			}
			run := &r.Groups[0].Runs[0]
			if run.Requests != 20 || run.Failed != 4 || len(run.Errors) != 1 {
				t.Errorf("%d requests, %d failed, errors %v", run.Requests, run.Failed, run.Errors)
			}
			for text := range run.Errors {
				if !strings.Contains(text, c.want) {
					t.Errorf("error %q, want %q", text, c.want)
				}
			}
			if r.Verdict.Pays != PaysUnclear || !strings.Contains(r.Verdict.Text[0], "20.0 % of hash's requests failed") {
				t.Errorf("verdict %+v", r.Verdict)
			}
		})
	}
}

func TestReplayGivesUpWhereNothingWorks(t *testing.T) {
	for _, c := range []struct {
		status, after, want int // answers before everything fails; requests made
	}{{500, 0, 5}, {500, 3, 23}, {429, 0, 50}, {429, 3, 100}} {
		f := &fakes{t: t, change: func(r *fakeReplica) {
			r.before = func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n < c.after {
					return false
				}
				http.Error(w, "no", c.status)
				return true
			}
		}}
		r, err := Replay(t.Context(), options(numbered(100), 1, "hash"), f.start)
		if gaveUp := errors.Is(err, errNothingWorks); gaveUp != (c.want < 100) {
			t.Errorf("%d after %d answers: %v", c.status, c.after, err)
		}
		if got := f.clusters[0].all[0].served; got != c.want {
			t.Errorf("%d after %d answers: %d requests made, want %d", c.status, c.after, got, c.want)
		}
		if err != nil && (r.Partial == nil || r.Partial.Runs[0].Failed != int64(c.want-c.after) || r.Interrupted) {
			t.Errorf("%d after %d answers: partial %+v", c.status, c.after, r.Partial)
		}
	}
}

// TestReplayStopsCleanly cancels in the middle of the second run.
func TestReplayStopsCleanly(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stuck := make(chan struct{}, 64)
		f := &fakes{t: t, change: func(r *fakeReplica) {
			r.before = func(w http.ResponseWriter, r *http.Request, n int) bool {
				if n < 4 {
					return false
				}
				stuck <- struct{}{}
				if len(stuck) == 2 {
					cancel()
				}
				<-r.Context().Done() // never answers
				return true
			}
		}}
		opt := options(numbered(6), 2, "hash", "round_robin")
		opt.Arrival.Concurrency = 2
		opt.Repeat = 3
		// The first run's replicas answer everything, those of the second no more than 4.
		start := func(ctx context.Context, policy string, n, blocks int) (*Cluster, error) {
			c, err := f.start(ctx, policy, n, blocks)
			if len(f.clusters) == 1 {
				for _, m := range f.clusters[0].all {
					m.before = nil
				}
			} else {
				for _, m := range f.clusters[len(f.clusters)-1].all {
					m.served = 2
				}
			}
			return c, err
		}
		r, err := Replay(ctx, opt, start)
		if err != nil || !r.Interrupted {
			t.Errorf("err = %v, interrupted %v", err, r.Interrupted)
		}
		if len(r.Groups) != 1 || len(r.Groups[0].Runs) != 1 || r.Groups[0].Policy != "hash" {
			t.Errorf("groups %+v", r.Groups)
		}
		p := r.Partial
		if p == nil || p.Policy != "round_robin" || p.Runs[0].Requests != 4 || p.Runs[0].Failed != 0 || p.Runs[0].Computed != 16 {
			t.Fatalf("partial %+v", p)
		}
		if !slices.ContainsFunc(r.Verdict.Text, func(s string) bool { return strings.Contains(s, "interrupted") }) {
			t.Errorf("verdict %q", r.Verdict.Text)
		}
		if err := WriteTable(new(strings.Builder), r); err != nil {
			t.Error(err)
		}
	}()
	// What is left ends by itself once its connection is gone; the deadline only bounds a failing test.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > before {
		all := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after:\n%s", before, now, all[:runtime.Stack(all, true)])
	}
}

// TestOpenLoopIsBoundedAndSaysSo holds all answers back until the bound is reached.
func TestOpenLoopIsBoundedAndSaysSo(t *testing.T) {
	const bound, requests = 3, 9
	var mu sync.Mutex
	inFlight, most := 0, 0
	full := make(chan struct{})
	var once sync.Once
	f := &fakes{t: t, change: func(r *fakeReplica) {
		r.before = func(http.ResponseWriter, *http.Request, int) bool {
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			if inFlight == bound {
				once.Do(func() { close(full) })
			}
			mu.Unlock()
			<-full
			mu.Lock()
			inFlight--
			mu.Unlock()
			return false
		}
	}}
	opt := options(numbered(requests), 1, "hash")
	opt.Arrival = Arrival{Kind: Poisson, Rate: 1e9, MaxInFlight: bound}
	r, err := Replay(t.Context(), opt, f.start)
	if err != nil {
		t.Fatal(err)
	}
	run := &r.Groups[0].Runs[0]
	if most != bound || run.Held != requests-bound {
		t.Errorf("%d in flight at most, %d held; want %d, %d", most, run.Held, bound, requests-bound)
	}
	for i, s := range run.Samples {
		if s.Index != i || s.Sent < s.Due || s.TTFT < s.Sent-s.Due || s.E2E < s.TTFT {
			t.Errorf("sample %+v: want TTFT and E2E from when it was due", s)
		}
	}
	if !slices.ContainsFunc(r.Verdict.Text, func(s string) bool { return strings.Contains(s, "6 requests were sent late") }) {
		t.Errorf("verdict %q", r.Verdict.Text)
	}
}

func TestReplicasJoinAndLeave(t *testing.T) {
	for _, arrival := range []Arrival{{Kind: Closed, Concurrency: 1}, {Kind: Poisson, Rate: 1e9, MaxInFlight: 1}} {
		w := numbered(12)
		w.Churn = []workload.Change{{Sent: 4, Remove: 0}, {Sent: 8, Add: true}}
		f := &fakes{t: t}
		opt := options(w, 2, "round_robin")
		opt.Arrival = arrival
		r, err := Replay(t.Context(), opt, f.start)
		if err != nil {
			t.Fatal(err)
		}
		run := &r.Groups[0].Runs[0]
		var served []string
		for _, l := range run.Load {
			served = append(served, fmt.Sprintf("%s %d", l.Replica, l.Requests))
		}
		// 2 + 2, then 4 to the one left, then 2 + 2 with the new one.
		if want := []string{"r0 2", "r1 8", "joined2 2"}; arrival.Kind == Closed && !slices.Equal(served, want) {
			t.Errorf("served %v, want %v", served, want)
		}
		if run.Computed != 48 || len(run.Load) != 3 || len(run.Problems) != 0 {
			t.Errorf("%s: computed %d, load %v, problems %v: the counters of those that left or came are lost",
				arrival.Kind, run.Computed, served, run.Problems)
		}
	}
	w := numbered(3)
	w.Churn = []workload.Change{{Sent: 1, Remove: 7}}
	f := &fakes{t: t}
	if _, err := Replay(t.Context(), options(w, 2, "hash"), f.start); !errors.Is(err, ErrOptions) {
		t.Errorf("removing replica 7 of 2: %v", err)
	}
}

func TestRepeatsGoRoundByRound(t *testing.T) {
	f := &fakes{t: t}
	opt := options(numbered(2), 1, "hash", "round_robin")
	opt.Repeat, opt.KVBlocks = 2, []int{64, 128}
	r, err := Replay(t.Context(), opt, f.start)
	if err != nil {
		t.Fatal(err)
	}
	var order, groups []string
	for _, c := range f.clusters {
		order = append(order, c.policy)
	}
	for i := range r.Groups {
		groups = append(groups, fmt.Sprintf("%s %d x%d", r.Groups[i].Policy, r.Groups[i].KVBlocks, len(r.Groups[i].Runs)))
	}
	round := []string{"hash", "round_robin", "hash", "round_robin"}
	if !slices.Equal(order, append(round, round...)) {
		t.Errorf("runs %v", order)
	}
	if want := []string{"hash 64 x2", "round_robin 64 x2", "hash 128 x2", "round_robin 128 x2"}; !slices.Equal(groups, want) {
		t.Errorf("groups %v, want %v", groups, want)
	}
	if len(r.Reach.Bounds) != 2 || r.Reach.Bounds[1].Blocks != 128 {
		t.Errorf("bounds %+v", r.Reach.Bounds)
	}
}

func TestReplayRefusesNonsense(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no requests": func(o *Options) { o.Workload = &workload.Workload{} },
		"no policies": func(o *Options) { o.Policies = nil },
		"no repeat":   func(o *Options) { o.Repeat = 0 },
		"no clients":  func(o *Options) { o.Arrival.Concurrency = 0 },
		"no rate":     func(o *Options) { o.Arrival = Arrival{Kind: Poisson, MaxInFlight: 1} },
		"no speed":    func(o *Options) { o.Arrival = Arrival{Kind: Trace, MaxInFlight: 1} },
		"no bound":    func(o *Options) { o.Arrival = Arrival{Kind: Trace, Speed: 1} },
		"no kind":     func(o *Options) { o.Arrival = Arrival{} },
		"no replica":  func(o *Options) { o.Policies = []string{Recorded} },
		"itself":      func(o *Options) { o.Workload.Requests[1].After = 1 },
		"nobody":      func(o *Options) { o.Workload.Requests[1].Continues = true },
	} {
		opt := options(numbered(2), 1, "hash")
		change(&opt)
		if _, err := Replay(t.Context(), opt, nil); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
