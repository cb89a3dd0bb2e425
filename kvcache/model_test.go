package kvcache

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	modelOps  = flag.Int("model.ops", 60_000, "operations of the model-based test (a tenth with -short)")
	modelSeed = flag.Uint64("model.seed", 0, "seed of the model-based test; 0 takes one from the clock")
	soak      = flag.Duration("soak", 0, "run the model-based test again and again for this long")
)

// chooser makes the choices of a run: at random, or from a fuzzer's bytes.
type chooser interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
}

// bytesChooser takes each choice from the next byte; it is over when they are used up.
type bytesChooser struct{ left []byte }

func (c *bytesChooser) IntN(n int) int {
	if len(c.left) == 0 {
		return 0
	}
	b := c.left[0]
	c.left = c.left[1:]
	return int(b) % n
}

// world runs a Manager and its twin side by side.
type world struct {
	choose chooser
	vocab  int
	m      *Manager
	twin   *twin
	mirror *mirror

	met // so that a run that met none of these fails
}

// met counts what a run came across.
type met struct {
	hits, copied, refused, dedups, taken, forks int
	missed                                      [len(missNames)]int // explanations by reason
	told
	parted int // commits of which the tree had the first blocks and not the others
}

func newWorld(c chooser, cfg Config, vocab int) (*world, error) {
	w := &world{choose: c, vocab: vocab, twin: &twin{cfg: cfg, now: time.Unix(1e9, 0)}}
	var err error
	w.m, err = New(cfg, WithClock(func() time.Time { return w.twin.now }))
	if err == nil {
		w.mirror = newMirror(cfg.BlockSize)
		w.mirror.told = &w.told
		w.m.Watch(w.mirror)
	}
	return w, err
}

var worldSalts = []string{"", "a", "ab"}

// prompt returns a salt and at least one token, often beginning like something cached, or
// like a sequence that is still being computed.
func (w *world) prompt() (string, []int32) {
	salt, size := worldSalts[w.choose.IntN(len(worldSalts))], w.m.cfg.BlockSize
	var tokens []int32
	switch like := w.choose.IntN(5); {
	case like == 0:
	case like < 3 && len(w.twin.live) > 0:
		s := w.twin.live[w.choose.IntN(len(w.twin.live))]
		salt, tokens = s.salt, slices.Clone(s.tokens)
		if len(tokens) > 0 && w.choose.IntN(2) == 0 { // a fork may have none
			return salt, tokens
		}
	case len(w.twin.cached) > 0:
		b := w.twin.cached[w.choose.IntN(len(w.twin.cached))]
		salt, tokens = b.salt, slices.Clone(b.path[:w.choose.IntN(len(b.path)+1)])
	}
	for range 1 + w.choose.IntN(2*size+2) {
		tokens = append(tokens, int32(w.choose.IntN(w.vocab)))
	}
	return salt, tokens
}

// step does one random operation to both and compares them.
func (w *world) step() (op string, err error) {
	w.twin.now = w.twin.now.Add(time.Duration(w.choose.IntN(3)) * tickLength)
	kind := w.choose.IntN(20)
	i := 0
	if len(w.m.live) > 0 {
		i = w.choose.IntN(len(w.m.live))
	}
	switch {
	case kind == 0:
		op = "reset"
		if w.choose.IntN(4) == 0 {
			op = "reset, with nothing live"
			for len(w.m.live) > 0 {
				w.free(0)
			}
		}
		held, err := w.m.Reset()
		switch live := len(w.twin.live); {
		case live > 0 && (held != live || !sameError(err, ErrHeld)):
			return op, fmt.Errorf("with %d live sequences: %d, %v", live, held, err)
		case live == 0 && (held != 0 || err != nil):
			return op, fmt.Errorf("with no live sequence: %d, %v", held, err)
		case live == 0:
			w.twin.reset()
		}
	case kind < 5 && len(w.m.live) < 4 || len(w.m.live) == 0:
		salt, tokens := w.prompt()
		op = fmt.Sprintf("allocate %q %v", salt, tokens)
		if err := w.allocate(salt, tokens); err != nil {
			return op, err
		}
	case kind == 5 && len(w.m.live) < 4:
		s := w.m.live[i]
		op = fmt.Sprintf("fork %q %v, %d computed", s.salt, s.tokens, s.computed)
		if err := w.fork(i); err != nil {
			return op, err
		}
	case kind < 10:
		s, token := w.m.live[i], int32(w.choose.IntN(w.vocab))
		op = fmt.Sprintf("append %d to %q %v", token, s.salt, s.tokens)
		before := w.picture()
		got, want := w.m.Append(s, token), w.twin.append(w.twin.live[i], token)
		if !sameError(got, want) {
			return op, fmt.Errorf("got %v, want %v", got, want)
		}
		if got != nil {
			w.refused++
			if after := w.picture(); after != before {
				return op, fmt.Errorf("a failed append changed\n%s\nto\n%s", before, after)
			}
		}
		poison(s)
	case kind < 15:
		s := w.m.live[i]
		n := w.choose.IntN(s.Len() - s.Computed() + 1)
		op = fmt.Sprintf("commit %d of %q %v, %d computed", n, s.salt, s.tokens, s.computed)
		compute(s, s.computed, s.computed+n)
		held, stored := w.m.Stats().Held, w.stored
		w.m.Commit(s, n)
		w.twin.commit(w.twin.live[i], n)
		if w.m.Stats().Held < held {
			w.dedups++
			if w.stored > stored {
				w.parted++
			}
		}
	default:
		op = fmt.Sprintf("free %q %v, %d computed", w.m.live[i].salt, w.m.live[i].tokens, w.m.live[i].computed)
		w.free(i)
	}
	if err := w.compare(); err != nil {
		return op, err
	}
	return op, w.explain(w.prompt())
}

// fork forks live sequence i on both sides.
func (w *world) fork(i int) error {
	before, s := w.picture(), w.m.live[i]
	f, got := w.m.Fork(s)
	if want := w.twin.fork(w.twin.live[i]); !sameError(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	if got != nil {
		w.refused++
		if after := w.picture(); after != before {
			return fmt.Errorf("a failed fork changed\n%s\nto\n%s", before, after)
		}
		return nil
	}
	if shared := s.computed / s.BlockSize(); !slices.Equal(f.table.Blocks(0, shared), s.table.Blocks(0, shared)) {
		return fmt.Errorf("it has blocks %v, want the %d full ones of %v", f.table, shared, s.table)
	}
	w.forks++
	poison(f)
	return nil
}

// explain compares the two explanations of a prompt.
func (w *world) explain(salt string, tokens []int32) error {
	before := w.picture()
	got, want := w.m.Explain(salt, tokens), w.twin.explain(salt, tokens)
	if got != want {
		return fmt.Errorf("explanation of %q %v:\n%+v, want\n%+v", salt, tokens, got, want)
	}
	if sum := got.Cached + got.Cold + got.Evicted + got.Reset + got.Salt + got.Tail; sum != len(tokens) {
		return fmt.Errorf("explanation of %d tokens: %+v: of %d", len(tokens), got, sum)
	}
	if after := w.picture(); after != before {
		return fmt.Errorf("explain changed\n%s\nto\n%s", before, after)
	}
	w.missed[got.Miss]++
	return nil
}

// allocate does the same allocation on both sides.
func (w *world) allocate(salt string, tokens []int32) error {
	before, peek, free := w.picture(), w.m.Match(salt, tokens), w.m.Stats().Free
	if after := w.picture(); after != before {
		return fmt.Errorf("match changed\n%s\nto\n%s", before, after)
	}
	if want := w.twin.match(salt, tokens); peek != want {
		return fmt.Errorf("match of %d tokens, want %d", peek, want)
	}
	source := w.m.match(salt, tokens).Source
	s, got := w.m.Allocate(salt, tokens)
	if want := w.twin.allocate(salt, tokens); !sameError(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	if got != nil {
		w.refused++
		if after := w.picture(); after != before {
			return fmt.Errorf("a failed allocate changed\n%s\nto\n%s", before, after)
		}
		return nil
	}
	if s.Cached() != peek || s.Computed() != peek || s.Cached() >= s.Len() {
		return fmt.Errorf("%d cached, %d computed of %d tokens, want %d", s.Cached(), s.Computed(), s.Len(), peek)
	}
	if peek > 0 {
		w.hits++
	}
	if peek%s.BlockSize() > 0 {
		w.copied++
		if slices.Contains(s.table.Blocks(0, s.Blocks()), source) && free < s.Blocks() {
			w.taken++
		}
	}
	poison(s)
	return nil
}

// free ends live sequence i on both sides. The Manager fills the gap with its last
// sequence; the twin must follow, to keep its sequences in the same places.
func (w *world) free(i int) {
	w.m.Free(w.m.live[i])
	w.twin.freeSequence(i)
	if last := len(w.twin.live) - 1; i <= last {
		moved := w.twin.live[last]
		w.twin.live = slices.Insert(w.twin.live[:last], i, moved)
	}
}

// picture is all that a failed call must leave as it was: ref counts, free list, tables,
// and the tree with its locks and its order of eviction.
func (w *world) picture() string {
	tables := ""
	for _, s := range w.m.live {
		tables += fmt.Sprintln(s.tokens, s.table, s.computed)
	}
	return fmt.Sprintf("%+v\n%v\n%s%v", w.m.Stats(), *w.m.blocks, tables, w.m.tree)
}

func (w *world) compare() error {
	if err := w.m.Check(); err != nil {
		return err
	}
	if err := w.mirror.compare(w.m, w.twin); err != nil {
		return err
	}
	got := w.m.Stats()
	if got.Nodes = 0; got != w.twin.stats() {
		return fmt.Errorf("stats\n%+v, want\n%+v", got, w.twin.stats())
	}
	for i, s := range w.m.live {
		t := w.twin.live[i]
		if s.salt != t.salt || !slices.Equal(s.Tokens(), t.tokens) || s.Computed() != t.computed || s.Cached() != t.cached {
			return fmt.Errorf("sequence %d is %q %v, %d computed, %d cached; want %+v", i, s.salt, s.tokens, s.computed, s.cached, t)
		}
		if err := verify(s); err != nil {
			return err
		}
	}
	return nil
}

// drain frees every sequence where it stands; then all blocks must come back.
func (w *world) drain() error {
	for len(w.m.live) > 0 {
		w.free(0)
		if err := w.compare(); err != nil {
			return err
		}
	}
	if s := w.m.Stats(); s.Evictable != s.Cached || s.Held != s.Cached {
		return fmt.Errorf("no sequence is live: %+v", s)
	}
	if _, err := w.m.Reset(); err != nil {
		return err
	}
	if s := w.m.Stats(); s.Free != s.Total {
		return fmt.Errorf("after a reset: %+v", s)
	}
	return w.m.Check()
}

func TestModelManager(t *testing.T) {
	ops := *modelOps
	if testing.Short() {
		ops /= 10
	}
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for began := time.Now(); ; seed++ {
		modelManager(t, seed, ops)
		if t.Failed() || time.Since(began) >= *soak {
			return
		}
	}
}

func modelManager(t *testing.T, seed uint64, ops int) {
	orders, sizes, pools, vocabs := []Eviction{LRU, LFU}, []int{1, 3, 16}, []int{2, 3, 5, 10}, []int{2, 5}
	var all met
	copied16 := 0
	for _, order := range orders {
		for _, size := range sizes {
			for _, pool := range pools {
				for _, vocab := range vocabs {
					narrow := (size+pool+vocab)%2 == 0 // half of them, so that it costs no time
					t.Run(fmt.Sprintf("%v/block=%d/pool=%d/vocab=%d/bfloat16=%v", order, size, pool, vocab, narrow), func(t *testing.T) {
						t.Logf("-model.seed=%d", seed)
						cfg := Config{Blocks: pool, BlockSize: size, Layers: 2, Heads: 1, HeadDim: 2, BFloat16: narrow, Eviction: order}
						w, err := newWorld(rand.New(rand.NewPCG(seed, uint64(size*1000+pool*10+vocab))), cfg, vocab)
						if err != nil {
							t.Fatal(err)
						}
						for i := range ops / len(orders) / len(sizes) / len(pools) / len(vocabs) {
							if op, err := w.step(); err != nil {
								t.Fatalf("seed %d, operation %d, %s: %v\n%v", seed, i, op, err, w.m.tree)
							}
						}
						if err := w.drain(); err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
						all.add(w.met)
						if narrow {
							copied16 += w.copied
						}
					})
				}
			}
		}
	}
	t.Logf("%+v", all)
	if all.hits == 0 || all.copied == 0 || copied16 == 0 || all.taken == 0 || all.dedups == 0 || all.refused == 0 || all.forks == 0 || all.parted == 0 && !testing.Short() ||
		slices.Contains([]int{all.stored, all.removed, all.cleared, all.runs}, 0) || slices.Contains(all.missed[:], 0) {
		t.Errorf("seed %d met too little", seed)
	}
}

func (m *met) add(n met) {
	m.hits += n.hits
	m.copied += n.copied
	m.refused += n.refused
	m.dedups += n.dedups
	m.taken += n.taken
	m.forks += n.forks
	m.parted += n.parted
	m.stored += n.stored
	m.removed += n.removed
	m.cleared += n.cleared
	m.runs += n.runs
	for miss, count := range n.missed {
		m.missed[miss] += count
	}
}

func FuzzManager(f *testing.F) {
	f.Add([]byte("a cache keeps what it can"))
	f.Add([]byte{2, 3, 2, 4, 0, 0, 1, 1, 0, 9, 3, 12, 9, 2, 15, 0, 4, 1, 0, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &bytesChooser{data[:min(len(data), 400)]}
		cfg := Config{Blocks: 2 + c.IntN(9), BlockSize: 1 + c.IntN(4), Layers: 1, Heads: 1, HeadDim: 1, Eviction: Eviction(c.IntN(2)), BFloat16: c.IntN(2) == 1}
		w, err := newWorld(c, cfg, 2+c.IntN(4))
		if err != nil {
			t.Fatal(err)
		}
		for len(c.left) > 0 {
			if op, err := w.step(); err != nil {
				t.Fatalf("%s: %v\n%v", op, err, w.m.tree)
			}
		}
		if err := w.drain(); err != nil {
			t.Fatal(err)
		}
	})
}
