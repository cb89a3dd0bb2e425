package policy

import (
	"fmt"
	"math"
	"testing"
)

func TestPowerOfTwo(t *testing.T) {
	// Of three replicas the busiest is taken only if it is drawn twice, which never
	// happens; the idlest whenever it is drawn, in two of three cases.
	replicas := []Replica{
		{ID: "a", Ready: true, Load: Load{Tokens: 300, Requests: 1}},
		{ID: "b", Ready: true, Load: Load{Tokens: 200, Requests: 9}},
		{ID: "c", Ready: true, Load: Load{Tokens: 100, Requests: 5}},
	}
	const draws = 9000
	counts := map[string]int{}
	for s := range uint64(draws) {
		counts[choose(t, NewPowerOfTwo(7), Request{Seq: s}, replicas).Replica]++
	}
	if counts["a"] != 0 || math.Abs(float64(counts["c"])/draws-2.0/3) > 0.02 {
		t.Errorf("counts %v, want none of a and two thirds of c", counts)
	}
	if d := choose(t, NewPowerOfTwo(7), Request{}, replicas[:1]); d.Replica != "a" {
		t.Errorf("alone: %+v", d)
	}
	// Balls into bins: 1,000 per bin. Random leaves a gap of about sqrt(2 * 1000 * ln 16)
	// = 74 above the mean, two choices of about ln ln 16 / ln 2 = 1.5.
	peak := func(p Policy) int {
		bins, top := fleet(16), 0
		for s := range 16_000 {
			d := choose(t, p, Request{Seq: uint64(s)}, bins)
			for i := range bins {
				if bins[i].ID == d.Replica {
					bins[i].Load.Requests++
					top = max(top, bins[i].Load.Requests)
				}
			}
		}
		return top
	}
	if two, one := peak(NewPowerOfTwo(1)), peak(NewRandom(1)); two > 1006 || one < 1030 {
		t.Errorf("fullest of 16 bins after 16,000 balls: %d by two choices, %d at random", two, one)
	}
}

func TestSession(t *testing.T) {
	served, homes := map[string]int{}, map[string]string{}
	for s := range 2000 {
		r := prompt(s, 80, s, 20) // the prompts have nothing in common
		r.Session = fmt.Sprint("user-", s%200)
		d := choose(t, NewSession(), r, fleet(8))
		if home := homes[r.Session]; home != "" && home != d.Replica {
			t.Fatalf("%s moved from %s to %s", r.Session, home, d.Replica)
		}
		homes[r.Session] = d.Replica
		served[d.Replica]++
	}
	for _, r := range fleet(8) {
		if served[r.ID] < 120 || served[r.ID] > 400 {
			t.Errorf("%s got %d of 2000 requests", r.ID, served[r.ID])
		}
	}
}

func TestCacheAware(t *testing.T) {
	o := DefaultOptions()
	o.CacheThreshold, o.BalanceAbs, o.BalanceRel = 0.3, 10, 1.5
	r := prompt(1, 500, 1, 40) // 540 tokens: followed from 163 on
	load := func(n int) Load { return Load{Requests: n} }
	for _, tt := range []struct {
		name    string
		a, b, c Replica
		want    string
		reason  Reason
	}{
		{"follows the cache", Replica{Load: load(3), Cached: 480}, Replica{}, Replica{}, "a", ReasonLongestPrefix},
		{"not above the threshold", Replica{Load: load(3), Cached: 162}, Replica{}, Replica{Load: load(1)}, "b", ReasonCold},
		{"just above", Replica{Load: load(3), Cached: 163}, Replica{}, Replica{}, "a", ReasonLongestPrefix},
		{"exactly the margin", Replica{Load: load(10), Cached: 480}, Replica{}, Replica{}, "a", ReasonLongestPrefix},
		{"beyond it", Replica{Load: load(11), Cached: 480}, Replica{}, Replica{Load: load(1)}, "b", ReasonBalance},
		{"beyond it, but not by the factor", Replica{Load: load(36), Cached: 480}, Replica{Load: load(24)}, Replica{Load: load(24)}, "a", ReasonLongestPrefix},
		{"equal prefixes: the less loaded", Replica{Load: load(3), Cached: 480}, Replica{Load: load(2), Cached: 480}, Replica{}, "b", ReasonLongestPrefix},
		{"cold: the least loaded, then the emptiest", Replica{Held: 4}, Replica{Held: 3}, Replica{Load: load(1)}, "b", ReasonCold},
	} {
		tt.a.ID, tt.b.ID, tt.c.ID = "a", "b", "c"
		tt.a.Ready, tt.b.Ready, tt.c.Ready = true, true, true
		// One that is not ready counts neither as busiest nor as idlest.
		gone := Replica{ID: "d", Load: load(1000), Cached: 500}
		d := choose(t, NewCacheAware(o), r, []Replica{tt.a, tt.b, tt.c, gone})
		if d.Replica != tt.want || d.Reason != tt.reason {
			t.Errorf("%s: %s, %s; want %s, %s", tt.name, d.Replica, d.Reason, tt.want, tt.reason)
		}
	}
}

// The formula by hand: 540 tokens are 34 blocks of 16.
func TestCost(t *testing.T) {
	r := prompt(1, 500, 1, 40)
	p := NewCost(DefaultOptions())
	for _, tt := range []struct {
		c    Candidate
		want float64
	}{
		{Candidate{}, 34 + 34},
		{Candidate{Cached: 480}, 34 - 30 + 34},
		{Candidate{Cached: 480, Load: Load{Tokens: 100, Requests: 2}, Active: 1080}, 40 - 30 + 102 + 2}, // 640/16, 1620/16 up
		{Candidate{Cached: 495}, 34 - 30 + 34},                                                          // whole blocks only
	} {
		if got := p.cost(r, tt.c); got != tt.want {
			t.Errorf("%+v: cost %v, want %v", tt.c, got, tt.want)
		}
	}
	o := DefaultOptions()
	o.CostCredit, o.CostRequests = 2, 0.5
	if got := NewCost(o).cost(r, Candidate{Cached: 480, Load: Load{Requests: 3}}); got != 0+34+1.5 {
		t.Errorf("double credit: cost %v, want 35.5: prefill is never below 0", got)
	}

	// 30 cached blocks are worth 30 blocks more in use, and not 31.
	replicas := []Replica{{ID: "a", Ready: true, Cached: 480, Active: 29 * 16}, {ID: "b", Ready: true}}
	if d := choose(t, p, r, replicas); d.Replica != "a" {
		t.Errorf("29 blocks in use: %+v", d)
	}
	replicas[0].Active = 31 * 16
	if d := choose(t, p, r, replicas); d.Replica != "b" {
		t.Errorf("31 blocks in use: %+v", d)
	}
}

// At a temperature the shares are those of the softmax: costs 0 and 1 after scaling.
func TestCostTemperature(t *testing.T) {
	o := DefaultOptions()
	o.Temperature = 0.5
	p := NewCost(o)
	r := prompt(1, 500, 1, 40)
	replicas := []Replica{{ID: "a", Ready: true, Cached: 480}, {ID: "b", Ready: true}}
	const draws = 20_000
	n := 0
	for s := range uint64(draws) {
		if r.Seq = s; choose(t, p, r, replicas).Replica == "a" {
			n++
		}
	}
	want := 1 / (1 + math.Exp(-1/0.5))
	if got := float64(n) / draws; math.Abs(got-want) > 0.01 {
		t.Errorf("the cheaper one got %.3f, want %.3f", got, want)
	}
}

func TestRendezvousAndConsistentFollowTheObservedDepth(t *testing.T) {
	for _, p := range []Policy{NewConsistentHash(DefaultOptions()), NewRendezvousHash(DefaultOptions())} {
		served := func(depth int) int {
			homes := map[string]bool{}
			for s := range 100 {
				r := prompt(1, 8*16, s, 16*8) // 8 blocks in common, then all different
				r.Depth = depth
				homes[choose(t, p, r, fleet(8)).Replica] = true
			}
			return len(homes)
		}
		if got := []int{served(0), served(8), served(9)}; got[0] != 1 || got[1] != 1 || got[2] != 8 {
			t.Errorf("%s: keys of 4, 8 and 9 blocks reach %v replicas, want 1, 1, 8", p.Name(), got)
		}
		o := DefaultOptions()
		o.Depth = 8
		fixed, err := New(p.Name(), o)
		if err != nil {
			t.Fatal(err)
		}
		r := prompt(1, 8*16, 0, 16*8)
		home := choose(t, fixed, r, fleet(8)).Replica
		for depth := range 16 {
			r := prompt(1, 8*16, depth, 16*8)
			r.Depth = depth
			if d := choose(t, fixed, r, fleet(8)); d.Replica != home {
				t.Errorf("%s: a fixed depth follows the observed %d", p.Name(), depth)
			}
		}
	}
}
