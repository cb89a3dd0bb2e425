package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
)

// randomState draws a state of up to 12 replicas with gaps in the IDs.
func randomState(rng *rand.Rand) []Replica {
	var replicas []Replica
	for i := range 12 {
		if rng.IntN(3) == 0 {
			continue
		}
		replicas = append(replicas, Replica{
			ID:     fmt.Sprintf("r%02d", i),
			Ready:  rng.IntN(4) > 0,
			Cached: 16 * rng.IntN(8) * rng.IntN(2),
			Held:   rng.IntN(100),
			Active: rng.IntN(8000),
			Recent: rng.IntN(100),
			Load:   Load{Tokens: rng.IntN(4000), Requests: rng.IntN(20)},
		})
	}
	return replicas
}

func randomRequest(rng *rand.Rand) Request {
	r := prompt(rng.IntN(20), rng.IntN(200), rng.IntN(1000), 1+rng.IntN(40))
	r.Seq = rng.Uint64N(1000)
	r.Depth, r.Heat = rng.IntN(12), rng.Float64()*float64(rng.IntN(2))
	if rng.IntN(3) == 0 {
		r.Session = fmt.Sprint("user-", rng.IntN(5))
	}
	return r
}

// Every policy, whatever the state: the choice is ready, the decision is true to the
// state, the same question has the same answer, and the state is left alone.
func TestContract(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	o := DefaultOptions()
	o.BySession = true
	for i, p := range all(t, o) {
		t.Run(p.Name(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range rounds(1500) {
				r, replicas := randomRequest(rng), randomState(rng)
				before := slices.Clone(replicas)
				d, err := p.Choose(r, replicas)
				if !slices.Equal(before, replicas) {
					t.Fatal("the state was changed")
				}
				if !slices.ContainsFunc(replicas, func(r Replica) bool { return r.Ready }) {
					if !errors.Is(err, ErrNoReplica) {
						t.Fatalf("nobody is ready: error %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				checkDecision(t, d, replicas)
				fresh, _ := New(p.Name(), o) // has seen nothing
				if again := choose(t, fresh, r, replicas); !reflect.DeepEqual(d, again) {
					t.Fatalf("depends on the past: %+v, without one %+v", d, again)
				}
			}
		})
	}
}

func checkDecision(t *testing.T, d Decision, replicas []Replica) {
	t.Helper()
	var want []Candidate
	for _, r := range replicas {
		if r.Ready {
			want = append(want, Candidate{ID: r.ID, Cached: r.Cached, Held: r.Held, Active: r.Active, Recent: r.Recent, Load: r.Load})
		}
	}
	if !slices.Equal(d.Candidates, want) {
		t.Fatalf("candidates %+v, want %+v", d.Candidates, want)
	}
	i := find(d.Candidates, d.Replica)
	if i < 0 {
		t.Fatalf("chose %q, which is not ready in %+v", d.Replica, replicas)
	}
	if d.Cached != want[i].Cached {
		t.Fatalf("predicts %d cached tokens, the state says %d", d.Cached, want[i].Cached)
	}
	if d.Reason == "" {
		t.Fatal("no reason")
	}
	if (d.Reason == ReasonSpill || d.Reason == ReasonReplicate) != (d.SpilledFrom != "") {
		t.Fatalf("reason %s with spilled_from %q", d.Reason, d.SpilledFrom)
	}
	if d.SpilledFrom != "" && (d.SpilledFrom == d.Replica || find(want, d.SpilledFrom) < 0) {
		t.Fatalf("spilled from %q to %q", d.SpilledFrom, d.Replica)
	}
}

func TestOneReplica(t *testing.T) {
	for _, p := range all(t, DefaultOptions()) {
		busy := []Replica{{ID: "only", Ready: true, Cached: 480, Load: Load{Tokens: 1 << 20, Requests: 1 << 20}}}
		for _, r := range []Request{{}, {Tokens: 1}, prompt(1, 500, 2, 40)} {
			if d := choose(t, p, r, busy); d.Replica != "only" || d.SpilledFrom != "" {
				t.Errorf("%s: %+v", p.Name(), d)
			}
		}
	}
}

func TestNoReplica(t *testing.T) {
	for _, p := range all(t, DefaultOptions()) {
		for _, replicas := range [][]Replica{nil, {{ID: "a"}, {ID: "b"}}} {
			if _, err := p.Choose(prompt(1, 500, 2, 40), replicas); !errors.Is(err, ErrNoReplica) {
				t.Errorf("%s: %d replicas, none ready: %v", p.Name(), len(replicas), err)
			}
		}
	}
}

// Replicas come and go between any two requests.
func TestChangingFleet(t *testing.T) {
	for _, p := range all(t, DefaultOptions()) {
		for i, n := range []int{1, 16, 3, 2, 40, 1, 7} {
			for s := range 50 {
				r := prompt(s%5, 500, s, 40)
				r.Seq = uint64(i*50 + s)
				checkDecision(t, choose(t, p, r, fleet(n)), fleet(n))
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	for _, p := range all(t, DefaultOptions()) {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for s := range 200 {
					n := 1 + (g+s)%9
					if _, err := p.Choose(prompt(s%5, 100, s, 40), fleet(n)); err != nil {
						t.Errorf("%s: %v", p.Name(), err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestOrderOfIDsIsTheCallersDuty(t *testing.T) {
	for _, p := range all(t, DefaultOptions()) {
		for _, ids := range [][]string{{"b", "a"}, {"a", "a"}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic on %v", p.Name(), ids)
					}
				}()
				_, _ = p.Choose(Request{}, []Replica{{ID: ids[0], Ready: true}, {ID: ids[1], Ready: true}})
			}()
		}
	}
}

func TestNew(t *testing.T) {
	for _, name := range Names() {
		p, err := New(name, DefaultOptions())
		if err != nil || p.Name() != name {
			t.Errorf("New(%q): %v, %v", name, p, err)
		}
	}
	if !slices.Contains(Names(), Default) {
		t.Errorf("default %q is not a policy", Default)
	}
	if _, err := New("sticky", DefaultOptions()); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown name: %v", err)
	}
	for i, spoil := range []func(*Options){
		func(o *Options) { o.Depth = -1 },
		func(o *Options) { o.VirtualNodes = 0 },
		func(o *Options) { o.Ratio = 0.99 },
		func(o *Options) { o.MarginRequests = -1 },
		func(o *Options) { o.MarginTokens = -1 },
		func(o *Options) { o.MinShare = 1.01 },
		func(o *Options) { o.CacheThreshold = -0.1 },
		func(o *Options) { o.BalanceAbs = -1 },
		func(o *Options) { o.BalanceRel = 0.5 },
		func(o *Options) { o.CostCredit = -1 },
		func(o *Options) { o.CostRequests = -1 },
		func(o *Options) { o.Temperature = -1 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if _, err := New("random", o); !errors.Is(err, ErrOptions) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// Over many distinct prefixes every policy uses every replica about equally.
func TestDistribution(t *testing.T) {
	const n, requests = 8, 4000
	for _, p := range all(t, DefaultOptions()) {
		counts := map[string]int{}
		for s := range requests {
			r := prompt(s, 100, s, 40)
			counts[choose(t, p, r, fleet(n)).Replica]++
		}
		for _, r := range fleet(n) {
			share := float64(counts[r.ID]) * n / requests
			if share < 0.75 || share > 1.25 {
				t.Errorf("%s: %s got %.2f of its fair share", p.Name(), r.ID, share)
			}
		}
	}
}

// Prompts too short to fill a block have no prefix to follow: they must not all land on
// one replica, but those of one session should.
func TestShortPromptsSpread(t *testing.T) {
	for _, p := range all(t, DefaultOptions()) {
		counts := map[string]int{}
		for s := range 400 {
			counts[choose(t, p, prompt(s%3, 0, s, 12), fleet(4)).Replica]++
		}
		for _, r := range fleet(4) {
			if counts[r.ID] < 60 {
				t.Errorf("%s: %s got %d of 400 short prompts", p.Name(), r.ID, counts[r.ID])
			}
		}
	}
	for _, name := range []string{"session", "prefix_hash", "consistent_hash", "rendezvous_hash", "cache_aware", "cost", "prefix_affinity"} {
		p, _ := New(name, DefaultOptions())
		served := map[string]bool{}
		for s := range 100 {
			r := prompt(s%3, 0, s, 12)
			r.Session = "somebody"
			served[choose(t, p, r, fleet(4)).Replica] = true
		}
		if len(served) != 1 {
			t.Errorf("%s: one session's short prompts went to %d replicas", name, len(served))
		}
	}
}

// One of 16 replicas goes. Of 10,000 prefixes the hash modulo N moves nearly all, the
// others little more than the sixteenth that has to move.
func TestRemappingOnRemoval(t *testing.T) {
	const n, keys = 16, 10_000
	requests := make([]Request, keys)
	for k := range requests {
		requests[k] = prompt(k, 80, k, 40)
	}
	want := map[string]struct{ least, most float64 }{
		"prefix_hash":     {0.9, 1},
		"consistent_hash": {0, 1.2 / n},
		"rendezvous_hash": {0, 1.2 / n},
		"prefix_affinity": {0, 1.2 / n},
	}
	for name, bounds := range want {
		p, _ := New(name, DefaultOptions())
		for _, how := range []string{"removed", "not ready"} {
			before, after := fleet(n), fleet(n)
			const gone = 5
			if how == "removed" {
				after = slices.Delete(after, gone, gone+1)
			} else {
				after[gone].Ready = false
			}
			homes := make([]string, keys)
			for k, r := range requests {
				homes[k] = choose(t, p, r, before).Replica
			}
			moved, strangers := 0, 0
			for k, r := range requests {
				if choose(t, p, r, after).Replica == homes[k] {
					continue
				}
				moved++
				if homes[k] != before[gone].ID {
					strangers++
				}
			}
			share := float64(moved) / keys
			t.Logf("%s, %s: %.4f moved (1/N = %.4f)", name, how, share, 1.0/n)
			if share < bounds.least || share > bounds.most {
				t.Errorf("%s, %s: %.4f of the keys moved, want %.4f to %.4f", name, how, share, bounds.least, bounds.most)
			}
			if name != "prefix_hash" && strangers > 0 {
				t.Errorf("%s, %s: %d keys moved that belonged to others", name, how, strangers)
			}
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, p := range all(b, DefaultOptions()) {
		for _, n := range []int{4, 16, 64} {
			b.Run(fmt.Sprintf("%s/replicas=%d", p.Name(), n), func(b *testing.B) {
				replicas := fleet(n)
				for i := range replicas {
					replicas[i].Load = Load{Tokens: 100 * (i % 3), Requests: i % 3}
				}
				replicas[n/2].Cached = 496
				r := prompt(1, 500, 1, 40)
				b.ReportAllocs()
				for b.Loop() {
					r.Seq++
					if _, err := p.Choose(r, replicas); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
