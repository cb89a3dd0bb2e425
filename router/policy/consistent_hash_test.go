package policy

import (
	"math/rand/v2"
	"testing"
)

// Whatever the loads, nobody is lifted above the bound, and a key leaves its owner only
// if that one is full.
func TestConsistentHashBound(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	o := DefaultOptions()
	p := NewConsistentHash(o)
	spills := 0
	for range rounds(3000) {
		replicas := fleet(1 + rng.IntN(10))
		total := 0
		for i := range replicas {
			replicas[i].Load.Requests = rng.IntN(1 + rng.IntN(60))
			total += replicas[i].Load.Requests
		}
		// The bound as whole numbers: ratio 5/4, mean (total+1)/n.
		n := len(replicas)
		bound := max((5*(total+1)+4*n-1)/(4*n), (total+1+n-1)/n+o.MarginRequests)
		r := prompt(rng.IntN(500), 80, 0, 20)
		owner := choose(t, p, r, fleet(n)).Replica
		d := choose(t, p, r, replicas)
		after, ownerAfter := 0, 0
		for _, c := range d.Candidates {
			if c.ID == d.Replica {
				after = c.Load.Requests + 1
			}
			if c.ID == owner {
				ownerAfter = c.Load.Requests + 1
			}
		}
		if after > bound {
			t.Fatalf("%s now has %d requests, bound %d (total %d on %d)", d.Replica, after, bound, total, n)
		}
		if d.Replica != owner {
			spills++
			if ownerAfter <= bound || d.SpilledFrom != owner {
				t.Fatalf("left %s, which would have %d of %d; says %q", owner, ownerAfter, bound, d.SpilledFrom)
			}
		}
	}
	if spills == 0 {
		t.Error("no key ever left its owner")
	}
}

// At a mean of one in flight a ratio of 1.25 allows two, and every third request of a
// burst would leave its replica: the margin is what keeps it.
func TestConsistentHashMarginAtLowLoad(t *testing.T) {
	o := DefaultOptions()
	r := prompt(1, 80, 0, 20)
	owner := choose(t, NewConsistentHash(o), r, fleet(8)).Replica
	replicas := fleet(8)
	for i := range replicas {
		if replicas[i].ID == owner {
			replicas[i].Load.Requests = 3
		}
	}
	if d := choose(t, NewConsistentHash(o), r, replicas); d.Replica != owner {
		t.Errorf("with margin %d: left its replica with 3 in flight", o.MarginRequests)
	}
	o.MarginRequests = 0
	if d := choose(t, NewConsistentHash(o), r, replicas); d.SpilledFrom != owner {
		t.Errorf("without a margin: %+v, want a spill", d)
	}
}

func TestConsistentHashBySession(t *testing.T) {
	o := DefaultOptions()
	o.BySession = true
	p := NewConsistentHash(o)
	served := map[string]bool{}
	for s := range 50 {
		r := prompt(s, 80, s, 20)
		r.Session = "conversation-7"
		served[choose(t, p, r, fleet(8)).Replica] = true
	}
	if len(served) != 1 {
		t.Errorf("one session went to %d replicas", len(served))
	}
}
