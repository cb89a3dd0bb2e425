package report

import (
	"math"
	"testing"

	"tailor/internal/bench"
)

func TestTypicalRunIsTheMedian(t *testing.T) {
	for _, c := range []struct{ computed, want []int64 }{
		{[]int64{30, 10, 20}, []int64{20}}, {[]int64{10}, []int64{10}}, {[]int64{40, 10, 30, 20}, []int64{20}}, {nil, nil},
	} {
		g := &bench.Group{}
		for _, n := range c.computed {
			g.Runs = append(g.Runs, bench.Run{Computed: n})
		}
		switch r := typicalRun(g); {
		case len(c.want) == 0 && r != nil, len(c.want) > 0 && (r == nil || r.Computed != c.want[0]):
			t.Errorf("of %v: %+v", c.computed, r)
		}
	}
}

func TestShownCapacity(t *testing.T) {
	r := &bench.Report{Groups: []bench.Group{{KVBlocks: 64}, {KVBlocks: 256}, {KVBlocks: 128}}}
	for verdict, want := range map[int]int{0: 256, 64: 64, 128: 128, 1000: 256} {
		r.Verdict.KVBlocks = verdict
		if got := shownCapacity(r); got != want {
			t.Errorf("verdict for %d: shown %d, want %d", verdict, got, want)
		}
	}
}

func TestColoursFollowThePolicy(t *testing.T) {
	r := &bench.Report{Groups: []bench.Group{{Policy: "a", KVBlocks: 1}, {Policy: "b", KVBlocks: 1}, {Policy: "c", KVBlocks: 1}, {Policy: "a", KVBlocks: 2}}}
	r.Verdict.Policy = "c"
	if got := policyIndex(r); len(got) != 3 || got["c"] != 0 || got["a"] != 1 || got["b"] != 2 {
		t.Errorf("%v", got)
	}
}

// The bound of a capacity is that of as many blocks as all replicas have together.
func TestBoundForAllReplicas(t *testing.T) {
	r := &bench.Report{Replicas: 4, Reach: bench.Reach{Unit: "tokens", Prompt: 1000, Infinite: 900, Bounds: []bench.Bound{
		{Blocks: 64, Reused: 100, LRU: 50}, {Blocks: 256, Reused: 700, LRU: 600}, {Blocks: 258, Reused: 1, LRU: 1},
	}}}
	if best, lru, known := boundFor(r, 64); !known || best != .7 || lru != .6 {
		t.Errorf("64 blocks on each of 4: %g, %g, %t", best, lru, known)
	}
	if _, _, known := boundFor(r, 65); known {
		t.Error("there is no bound for 65 blocks each")
	}
}

func TestFiguresLeaveOutWhatIsUnknown(t *testing.T) {
	runs := []bench.Run{{TokenHitRate: .5}, {TokenHitRate: math.NaN()}, {TokenHitRate: .1, Unknown: []string{"token_hit_rate"}}, {TokenHitRate: .7}}
	if s, known := figTokenHitRate.spreadOf(runs); !known || s != (bench.Spread{Median: .6, Min: .5, Max: .7}) {
		t.Errorf("%+v, %t", s, known)
	}
	runs = []bench.Run{{Unknown: []string{"ttft_seconds"}, TTFT: bench.Distribution{P99: 3}}}
	if s, known := ttftFigures[2].spreadOf(runs); known {
		t.Errorf("%+v", s)
	}
}

func TestLoadLineIsTheMeanOfStretches(t *testing.T) {
	s := &bench.LoadSeries{Replica: "r", Step: .5}
	for i := range 4 * loadBins {
		s.InFlight = append(s.InFlight, i%4) // each stretch of four has mean 1.5
	}
	l, ok := loadLineOf(s)
	if !ok || l.seconds != 2*loadBins || len(l.mean) != loadBins {
		t.Fatalf("%+v, %t", l, ok)
	}
	for i, v := range l.mean {
		if v != 1.5 {
			t.Fatalf("stretch %d: %g", i, v)
		}
	}
}
