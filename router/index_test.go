package router

import (
	"math/rand/v2"
	"testing"
	"time"

	"tailor/router/policy"
)

// chain is a path in a tree of prefixes: the hash of a block tells its whole past.
func chain(root policy.Hash, steps ...int32) []policy.Hash {
	return policy.ChainTokens(root, steps, 1, 1<<20)
}

func TestIndexMatchesWhatWasSent(t *testing.T) {
	x, now := newPrefixIndex(100, time.Hour), time.Unix(0, 0)
	a, b := chain(0, 1, 2, 3, 4), chain(0, 1, 2, 9, 9, 9)
	if n := x.match(a, now); n != 0 {
		t.Errorf("an empty index matches %d blocks", n)
	}
	x.begin(a, now)
	if n := x.match(a, now); n != 4 {
		t.Errorf("in flight: %d blocks match, want 4", n)
	}
	if n := x.match(b, now); n != 2 {
		t.Errorf("half the prefix: %d blocks match, want 2", n)
	}
	x.end(a, true, now)
	if n := x.match(a, now); n != 4 {
		t.Errorf("computed: %d blocks match, want 4", n)
	}
	x.begin(b, now)
	x.end(b, false, now)
	if n := x.match(b, now); n != 2 || len(x.blocks) != 4 {
		t.Errorf("failed: %d blocks match, %d held; want 2, 4", n, len(x.blocks))
	}
}

// Two requests with one prefix in flight: the first fails, the second still has it.
func TestIndexKeepsWhatAnotherRequestHasInFlight(t *testing.T) {
	x, now := newPrefixIndex(100, time.Hour), time.Unix(0, 0)
	a, b := chain(0, 1, 2, 3), chain(0, 1, 2, 8)
	x.begin(a, now)
	x.begin(b, now)
	x.end(a, false, now)
	if n := x.match(a, now); n != 2 {
		t.Errorf("%d blocks match, want the 2 that the other request shares", n)
	}
	x.end(b, false, now)
	if len(x.blocks) != 0 {
		t.Errorf("%d blocks left", len(x.blocks))
	}
}

func TestIndexForgetsTheLeastRecent(t *testing.T) {
	x, now := newPrefixIndex(6, time.Hour), time.Unix(0, 0)
	visit := func(c []policy.Hash) { x.begin(c, now); x.end(c, true, now) }
	a, b, c := chain(0, 1, 1, 1), chain(0, 2, 2, 2), chain(0, 3, 3)
	visit(a)
	visit(b)
	visit(a) // b is now the least recent
	visit(c)
	if x.match(a, now) != 3 || x.match(b, now) != 1 || x.match(c, now) != 2 {
		t.Errorf("matches %d, %d, %d of a, b, c; want 3, 1, 2: the end of b goes first",
			x.match(a, now), x.match(b, now), x.match(c, now))
	}
}

func TestIndexForgetsTheOld(t *testing.T) {
	x, now := newPrefixIndex(100, time.Minute), time.Unix(0, 0)
	a := chain(0, 1, 2, 3)
	x.begin(a, now)
	if n := x.match(a, now.Add(time.Hour)); n != 3 {
		t.Errorf("in flight for an hour: %d blocks match, want 3", n)
	}
	x.end(a, true, now)
	if n := x.match(a, now.Add(time.Minute)); n != 3 {
		t.Errorf("after a minute: %d blocks match, want 3", n)
	}
	later := now.Add(time.Minute + 1)
	if n := x.match(a, later); n != 0 {
		t.Errorf("after more than a minute: %d blocks match", n)
	}
	x.begin(a, later)
	x.end(a, false, later)
	if len(x.blocks) != 0 {
		t.Errorf("blocks too old to match came back by a request that failed: %d", len(x.blocks))
	}
}

// naiveIndex is the index without its cleverness: every rule applied by going through all
// blocks.
type naiveIndex struct {
	capacity int
	age      time.Duration
	blocks   map[policy.Hash]*naiveBlock
	stamp    int
}

type naiveBlock struct {
	pending  int
	computed bool
	used     time.Time
	recency  int
}

func (x *naiveIndex) trim(now time.Time) {
	for {
		var oldest policy.Hash
		found := false
		for h, b := range x.blocks {
			if b.pending == 0 && (!found || b.recency < x.blocks[oldest].recency) {
				oldest, found = h, true
			}
		}
		if !found || (len(x.blocks) <= x.capacity && now.Sub(x.blocks[oldest].used) <= x.age) {
			return
		}
		delete(x.blocks, oldest)
	}
}

func (x *naiveIndex) begin(c []policy.Hash, now time.Time) {
	x.trim(now)
	for _, h := range c {
		if x.blocks[h] == nil {
			x.blocks[h] = &naiveBlock{}
		}
		x.blocks[h].pending++
	}
	x.trim(now)
}

func (x *naiveIndex) end(c []policy.Hash, computed bool, now time.Time) {
	for i := len(c) - 1; i >= 0; i-- {
		b := x.blocks[c[i]]
		b.pending--
		b.computed = b.computed || computed
		if b.pending == 0 && !b.computed {
			delete(x.blocks, c[i])
		} else if b.pending == 0 {
			x.stamp++
			b.used, b.recency = now, x.stamp
		}
	}
	x.trim(now)
}

func (x *naiveIndex) match(c []policy.Hash, now time.Time) int {
	for i, h := range c {
		if b := x.blocks[h]; b == nil || (b.pending == 0 && now.Sub(b.used) > x.age) {
			return i
		}
	}
	return len(c)
}

func TestIndexAgainstNaive(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, capacity := range []int{1, 10, 60} {
		x := newPrefixIndex(capacity, 50*time.Second)
		naive := &naiveIndex{capacity: capacity, age: 50 * time.Second, blocks: map[policy.Hash]*naiveBlock{}}
		now := time.Unix(0, 0)
		var flying [][]policy.Hash
		inFlight := map[policy.Hash]int{}
		draw := func() []policy.Hash {
			steps := make([]int32, 1+rng.IntN(8))
			for i := range steps {
				steps[i] = rng.Int32N(3)
			}
			return chain(0, steps...)
		}
		hits := 0
		for range 5000 {
			now = now.Add(time.Duration(rng.IntN(4)) * time.Second)
			if rng.IntN(100) == 0 {
				now = now.Add(time.Minute)
			}
			if len(flying) < 6 && rng.IntN(2) == 0 {
				c := draw()
				x.begin(c, now)
				naive.begin(c, now)
				flying = append(flying, c)
				for _, h := range c {
					inFlight[h]++
				}
			} else if len(flying) > 0 {
				i := rng.IntN(len(flying))
				c, ok := flying[i], rng.IntN(4) > 0
				flying = append(flying[:i], flying[i+1:]...)
				x.end(c, ok, now)
				naive.end(c, ok, now)
				for _, h := range c {
					if inFlight[h]--; inFlight[h] == 0 {
						delete(inFlight, h)
					}
				}
			}
			for range 3 {
				c := draw()
				got, want := x.match(c, now), naive.match(c, now)
				if got != want {
					t.Fatalf("capacity %d: %d blocks match, naively %d", capacity, got, want)
				}
				hits += got
			}
			if len(x.blocks) != len(naive.blocks) || len(x.blocks) > max(capacity, len(inFlight)) {
				t.Fatalf("capacity %d: %d blocks, naively %d, %d in flight", capacity, len(x.blocks), len(naive.blocks), len(inFlight))
			}
		}
		if hits == 0 {
			t.Fatal("nothing ever matched")
		}
	}
}
