package radixattn

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tailor/paging"
)

var (
	modelOps  = flag.Int("model.ops", 60_000, "operations of a model-based test (a tenth with -short)")
	modelSeed = flag.Uint64("model.seed", 0, "seed of the model-based tests; 0 takes one from the clock")
	soak      = flag.Duration("soak", 0, "run the model-based test of the tree again and again for this long")
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

// world runs a tree and its twin side by side.
type world struct {
	choose chooser
	size   int
	vocab  int
	most   int // blocks in the tree above which eviction is the likeliest operation

	tree  *Tree
	twin  *twin
	locks []*Lock
	twins []*twinLock
	next  paging.BlockID

	matches, views                     int
	hits, partial, duplicates, evicted int // so that a run that met none of these fails
}

func newWorld(c chooser, e Eviction, size, vocab, most int) *world {
	w := &world{choose: c, size: size, vocab: vocab, most: most, twin: &twin{size: size, order: e}}
	w.tree = New(size, WithEviction(e), WithClock(func() uint32 { return uint32(w.twin.clock) }))
	return w
}

var worldSalts = []string{"", "a", "ab"}

func (w *world) tokens(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(w.choose.IntN(w.vocab))
	}
	return tokens
}

// prompt returns a salt and tokens that often begin like something in the tree. With a
// large vocabulary it is seldom, so that roots get many children.
func (w *world) prompt() (string, []int32) {
	if len(w.twin.blocks) > 0 && w.choose.IntN(4) > w.vocab/20 {
		b := w.twin.blocks[w.choose.IntN(len(w.twin.blocks))]
		return b.salt, slices.Concat(b.path[:w.choose.IntN(len(b.path)+1)], w.tokens(w.choose.IntN(2*w.size)))
	}
	return worldSalts[w.choose.IntN(len(worldSalts))], w.tokens(w.choose.IntN(4 * w.size))
}

// step does one random operation to both and compares them.
func (w *world) step() (op string, err error) {
	kind := w.choose.IntN(10)
	switch {
	case kind < 2 || len(w.twin.blocks) > w.most && kind < 6:
		n := 1 + w.choose.IntN(4)
		op = fmt.Sprintf("evict %d", n)
		got, want := w.tree.Evict(n), w.twin.evict(n)
		w.evicted += len(got)
		if !slices.Equal(got, want) {
			return op, fmt.Errorf("evicted %v, want %v", got, want)
		}
	case kind < 4 || len(w.locks) == 0:
		salt, tokens := w.prompt()
		op = fmt.Sprintf("lock %q %v", salt, tokens)
		m, err := w.match(salt, tokens)
		if err != nil {
			return op, err
		}
		w.locks = append(w.locks, w.tree.Lock(m))
		l := &twinLock{salt, tokens[:m.Whole()*w.size]}
		w.twins = append(w.twins, l)
		w.twin.lock(salt, l.path)
	case kind == 4 && len(w.locks) < 6:
		i := w.choose.IntN(len(w.locks))
		l := *w.twins[i]
		op = fmt.Sprintf("share %q %v", l.salt, l.path)
		w.locks = append(w.locks, w.tree.Share(w.locks[i]))
		w.twins = append(w.twins, &l)
		w.twin.hold(l.salt, l.path, 0, 1)
	case kind < 8 && len(w.locks) < 6:
		i := w.choose.IntN(len(w.locks))
		l := w.twins[i]
		tokens := w.tokens(w.size * (1 + w.choose.IntN(3)))
		if b := w.longerThan(l); b != nil && w.choose.IntN(2) == 0 {
			// Go where another went: all the way, or up to any token.
			went := b.path[len(l.path):]
			if w.choose.IntN(2) == 0 {
				went = went[:w.choose.IntN(len(went)+1)]
			}
			copy(tokens, went)
		}
		ids := make([]paging.BlockID, len(tokens)/w.size)
		for k := range ids {
			ids[k] = w.next
			w.next++
		}
		op = fmt.Sprintf("insert at %q %v: %v in %v", l.salt, l.path, tokens, ids)
		got, want := w.tree.Insert(w.locks[i], tokens, ids), w.twin.insert(l, tokens, ids)
		w.duplicates += len(got)
		if !slices.Equal(got, want) {
			return op, fmt.Errorf("duplicates %v, want %v", got, want)
		}
	default:
		i := w.choose.IntN(len(w.locks))
		op = fmt.Sprintf("unlock %q %v", w.twins[i].salt, w.twins[i].path)
		w.tree.Unlock(w.locks[i])
		w.twin.hold(w.twins[i].salt, w.twins[i].path, 0, -1)
		w.locks = slices.Delete(w.locks, i, i+1)
		w.twins = slices.Delete(w.twins, i, i+1)
	}

	if err := w.tree.Check(w.locks); err != nil {
		return op, err
	}
	for i, l := range w.locks {
		if l.Tokens() != len(w.twins[i].path) {
			return op, fmt.Errorf("lock %d covers %d tokens, want %d", i, l.Tokens(), len(w.twins[i].path))
		}
	}
	got, want := w.tree.Stats(), w.twin.stats(w.twins)
	if got.Nodes = 0; got != want {
		return op, fmt.Errorf("stats %+v, want %+v", got, want)
	}
	if err := w.walk(); err != nil {
		return op, fmt.Errorf("walk: %w", err)
	}
	if err := w.view(); err != nil {
		return op, fmt.Errorf("view: %w", err)
	}
	salt, tokens := w.prompt()
	_, err = w.match(salt, tokens)
	return op, err
}

// longerThan returns some block whose path goes on from the lock's, or nil.
func (w *world) longerThan(l *twinLock) *twinBlock {
	skip := w.choose.IntN(len(w.twin.blocks) + 1)
	for _, b := range slices.Concat(w.twin.blocks[skip:], w.twin.blocks[:skip]) {
		if b.salt == l.salt && len(b.path) > len(l.path) && slices.Equal(b.path[:len(l.path)], l.path) {
			return b
		}
	}
	return nil
}

// match compares the two matches of a prompt in all they say.
func (w *world) match(salt string, tokens []int32) (Match, error) {
	look := w.matches%8 == 0 // drawing the tree twice takes longer than all the rest
	w.matches++
	before := ""
	if look {
		before = w.tree.String()
	}
	m := w.tree.Match(salt, tokens)
	if look && w.tree.String() != before {
		return m, fmt.Errorf("match changed the tree from\n%s\nto\n%s", before, w.tree)
	}
	n := w.twin.match(salt, tokens)
	if m.Tokens != n {
		return m, fmt.Errorf("match of %q %v: %d tokens, want %d", salt, tokens, m.Tokens, n)
	}
	whole := w.twin.whole(salt, tokens[:n-n%w.size])
	if got := m.Blocks(); !slices.Equal(got, whole) {
		return m, fmt.Errorf("match of %q %v: blocks %v, want %v", salt, tokens, got, whole)
	}
	if n%w.size == 0 && m.Source != paging.NoBlock || n%w.size > 0 && !slices.Contains(w.twin.sources(salt, tokens[:n]), m.Source) {
		return m, fmt.Errorf("match of %q %v: source %d, want one of %v", salt, tokens, m.Source, w.twin.sources(salt, tokens[:n]))
	}
	idle := 0
	for end := w.size; end <= n; end += w.size {
		if w.twin.at(salt, tokens[:end]).locks == 0 {
			idle++
		}
	}
	if m.Idle() != idle {
		return m, fmt.Errorf("match of %q %v: %d idle blocks, want %d", salt, tokens, m.Idle(), idle)
	}
	if n > 0 {
		w.hits++
	}
	if n%w.size > 0 {
		w.partial++
	}
	return m, nil
}

// drain unlocks and evicts everything; nothing may be left.
func (w *world) drain() error {
	for _, l := range w.locks {
		w.tree.Unlock(l)
	}
	w.tree.Evict(w.tree.Stats().Blocks)
	if s := w.tree.Stats(); s != (Stats{}) {
		return fmt.Errorf("after all is unlocked and evicted: %+v", s)
	}
	return w.tree.Check(nil)
}

func TestModelTree(t *testing.T) {
	ops := *modelOps
	if testing.Short() {
		ops /= 10
	}
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for began := time.Now(); ; seed++ {
		modelTree(t, seed, ops)
		if t.Failed() || time.Since(began) >= *soak {
			return
		}
	}
}

func modelTree(t *testing.T, seed uint64, ops int) {
	orders, sizes, vocabs := []Eviction{LRU, LFU}, []int{1, 2, 3, 16}, []int{2, 3, 12, 40} // 12 and 40: enough for nodes with an index of children
	hits, partial, evicted, duplicates := 0, 0, 0, 0
	for _, order := range orders {
		for _, size := range sizes {
			for _, vocab := range vocabs {
				t.Run(fmt.Sprintf("%v/block=%d/vocab=%d", order, size, vocab), func(t *testing.T) {
					t.Logf("-model.seed=%d", seed)
					w := newWorld(rand.New(rand.NewPCG(seed, uint64(size*100+vocab))), order, size, vocab, 20+vocab)
					for i := range ops / len(orders) / len(sizes) / len(vocabs) {
						if op, err := w.step(); err != nil {
							t.Fatalf("seed %d, operation %d, %s: %v\n%v", seed, i, op, err, w.tree)
						}
					}
					hits += w.hits
					partial += w.partial
					evicted += w.evicted
					duplicates += w.duplicates
					if err := w.drain(); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
		}
	}
	if hits == 0 || partial == 0 || evicted == 0 || duplicates == 0 {
		t.Errorf("seed %d met too little: %d hits, %d partial, %d evicted, %d duplicates", seed, hits, partial, evicted, duplicates)
	}
}

func FuzzTree(f *testing.F) {
	f.Add([]byte("a tree grows by what it is given"))
	f.Add([]byte{2, 0, 0, 8, 1, 1, 0, 1, 9, 2, 2, 0, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &bytesChooser{data[:min(len(data), 400)]}
		w := newWorld(c, Eviction(c.IntN(2)), 1+c.IntN(4), 2+c.IntN(11), 12)
		for len(c.left) > 0 {
			if op, err := w.step(); err != nil {
				t.Fatalf("%s: %v\n%v", op, err, w.tree)
			}
		}
		if err := w.drain(); err != nil {
			t.Fatal(err)
		}
	})
}
