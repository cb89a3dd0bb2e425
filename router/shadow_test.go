package router

import (
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"tailor/router/policy"
)

// counted64 is a counter's value.
func counted64(c prometheus.Metric) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// What a shadow policy predicts beside random routing is what it delivers when it is in
// charge of the same requests.
func TestShadowsPredictTheRealThing(t *testing.T) {
	const seed = 17
	t.Logf("seed %d", seed)
	requests, names := 300, []string{"consistent_hash", "prefix_affinity", "cost", "round_robin"}
	if testing.Short() {
		requests, names = 60, names[:2]
	}
	send := func(rt *followingRouter, replicas []*eventReplica) (delivered, total int) {
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range requests {
			rt.post(tokenBody(rng.IntN(30), 80+16*rng.IntN(20), i, 1+rng.IntN(60), ""))
			row := rt.lastRow()
			delivered += row.CachedTokens
			total += row.PromptTokens
		}
		return delivered, total
	}
	var shadows []policy.Policy
	for _, name := range names {
		p, err := policy.New(name, policy.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		shadows = append(shadows, p)
	}
	replicas := fleetOf(t, 5)
	charge, _ := policy.New("random", policy.DefaultOptions())
	rt := follow(t, replicas, func(c *Config) { c.Policy, c.Shadows = charge, shadows })
	random, total := send(rt, replicas)
	m := rt.metrics
	soon(t, "the shadows have seen all", func() bool {
		return counted64(m.shadowPrompt.WithLabelValues(names[len(names)-1])) == float64(total)
	})
	if n := counted64(m.shadowDropped); n != 0 {
		t.Fatalf("%v events were dropped", n)
	}
	for i, name := range names {
		predicted := counted64(m.shadowCached.WithLabelValues(name))
		replicas := fleetOf(t, 5)
		real := follow(t, replicas, func(c *Config) { c.Policy = shadows[i] })
		real.await(replicas...)
		delivered, _ := send(real, replicas)
		t.Logf("%-15s predicted %6.0f, delivered %6d of %d prompt tokens; random delivers %d", name, predicted, delivered, total, random)
		if d := predicted/float64(delivered) - 1; d < -0.01 || d > 0.01 {
			t.Errorf("%s: predicted %.0f tokens as a shadow, delivered %d in charge", name, predicted, delivered)
		}
	}
	// Where nobody watches, nothing is done.
	quiet := follow(t, replicas, nil)
	quiet.post(tokenBody(1, 64, 0, 10, ""))
	if n := len(quiet.shadows.queue); n != 0 {
		t.Errorf("%d events queued for no shadow", n)
	}
}

// A shadow forgets a replica's cache when the router does, and drops its own load with
// the requests.
func TestShadowsFollowTheFleet(t *testing.T) {
	p, err := policy.New("prefix_affinity", policy.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	rt := newTestRouter(t, 2, func(c *Config) { c.Shadows = []policy.Policy{p} })
	sh := rt.shadows.list[0]
	step := func() {
		for len(rt.shadows.queue) > 0 {
			rt.shadows.take(<-rt.shadows.queue)
		}
	}
	cached := func() float64 {
		return counted64(rt.metrics.shadowCached.WithLabelValues("prefix_affinity"))
	}
	post := func() {
		rt.post(tokenBody(1, 64, 0, 10, ""))
		step()
	}
	post()
	post()
	if cached() != 64 {
		t.Errorf("%v tokens predicted, want 64", cached())
	}
	for i := range rt.fakes {
		rt.registry.saw(rt.registry.replicas[i], sighting{kind: seenOK, epoch: "one"})
		rt.registry.saw(rt.registry.replicas[i], sighting{kind: seenOK, epoch: "two"})
	}
	post()
	if cached() != 64 {
		t.Errorf("%v tokens predicted after all replicas restarted, want no more than 64", cached())
	}
	for id, r := range sh.replicas {
		if r.load != (policy.Load{}) || r.active != 0 || len(sh.flying) != 0 {
			t.Errorf("%s: load %+v, %d active, %d in flight", id, r.load, r.active, len(sh.flying))
		}
	}
	// Behind, it drops and counts.
	for i := range shadowQueue + 5 {
		rt.shadows.tell(shadowEvent{request: uint64(i)})
	}
	if n := counted64(rt.metrics.shadowDropped); n != 5 {
		t.Errorf("%v events counted as dropped, want 5", n)
	}
}
