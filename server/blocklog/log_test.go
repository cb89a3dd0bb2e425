package blocklog

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"tailor/kvcache"
)

var (
	modelOps  = flag.Int("model.ops", 20_000, "operations of the model-based test (a tenth with -short)")
	modelSeed = flag.Uint64("model.seed", rand.Uint64(), "seed of the model-based test")
)

// Readers of any speed, each with a copy of its own, beside random traffic: whatever a
// reader's position, its copy's digest is the log's, computed by another way, and whoever
// is told that events are gone is right again from the next snapshot on.
func TestModelCopiesAreRight(t *testing.T) {
	t.Logf("-model.seed=%d", *modelSeed)
	ops := *modelOps
	if testing.Short() {
		ops /= 10
	}
	sum := newReader(nil)
	for _, eviction := range []kvcache.Eviction{kvcache.LRU, kvcache.LFU} {
		for _, blocks := range []int{7, 24} {
			t.Run(fmt.Sprintf("%v/blocks=%d", eviction, blocks), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(*modelSeed, uint64(blocks)))
				kv := newCache(t, blocks, eviction)
				run(t, kv, "before", 1, 2, 3, 4, 5, 6, 7, 8)
				l := New(kv)
				l.most = 12 // so that readers fall behind
				c := &traffic{t: t, rnd: rnd, kv: kv}
				readers := make([]*reader, 3)
				for i := range readers {
					readers[i] = newReader(l)
					if err := readers[i].begin(kv); err != nil {
						t.Fatal(err)
					}
				}
				for op := range ops / 4 {
					c.step()
					if err := l.Check(kv); err != nil {
						t.Fatalf("operation %d: %v", op, err)
					}
					// Reader 0 reads all there is, the others now and then, or one event.
					for i, r := range readers {
						if i > 0 && rnd.IntN(4*i) > 0 {
							continue
						}
						for done := false; !done; {
							var err error
							if done, err = r.read(1 + rnd.IntN(3)); errors.Is(err, ErrLost) {
								err = r.begin(kv)
							}
							if err != nil {
								t.Fatalf("operation %d, reader %d: %v", op, i, err)
							}
							done = done || i == 2
						}
					}
				}
				for _, r := range readers {
					sum.events += r.events
					sum.lost += r.lost
					sum.beats += r.beats
					for kind, n := range r.kinds {
						sum.kinds[kind] += n
					}
				}
			})
		}
	}
	t.Logf("%d events %v, %d times behind, %d digests compared", sum.events, sum.kinds, sum.lost, sum.beats)
	if sum.kinds[Stored] == 0 || sum.kinds[Removed] == 0 || sum.kinds[Cleared] == 0 || sum.lost == 0 || sum.beats == 0 {
		t.Error("met too little")
	}
}

// The values are of an implementation of XXH64 in Python, from its description.
func TestDigestIsThatOfTheDescription(t *testing.T) {
	kv := newCache(t, 16, kvcache.LRU)
	l := New(kv)
	want := uint64(0)
	for _, c := range []struct {
		salt   string
		tokens []int32
		adds   []uint64
	}{
		{"", []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, []uint64{0x664ba5e36ec4cf0c, 0xd6a03d0a369e95eb, 0xd75409755fbc5afe}},
		{"", []int32{1, 2, 3, 4, 9, 9, 9, 50256}, []uint64{0x811bf1e0126ebb26}},
		{strings.Repeat("s", 200), []int32{1, 2, 3, 4}, []uint64{0xdba4f69fe521ee66}},
	} {
		run(t, kv, c.salt, c.tokens...)
		for _, n := range c.adds {
			want += n
		}
		if got := l.Snapshot(kv).Digest; got != want {
			t.Errorf("with %d tokens under %q: %016x, want %016x", len(c.tokens), c.salt, got, want)
		}
	}
	if want != 0x7100d4e2fcb06981 {
		t.Errorf("they add up to %016x", want)
	}
}

func TestPositionsThatAreNot(t *testing.T) {
	kv := newCache(t, 16, kvcache.LRU)
	l := New(kv)
	first := l.Epoch()
	run(t, kv, "", 1, 2, 3, 4)
	if _, err := kv.Reset(); err != nil {
		t.Fatal(err)
	}
	second := l.Epoch()
	run(t, kv, "", 1, 2, 3, 4)
	run(t, kv, "", 5, 6, 7, 8)
	kinds := func(p Position, limit int) string {
		events, head, err := l.After(p, limit)
		if head.Epoch != second || head.Seq != 2 {
			t.Errorf("after %v: the head is %+v", p, head)
		}
		if err != nil {
			return err.Error()
		}
		text := ""
		for _, e := range events {
			text += fmt.Sprint(e.Kind, e.Seq, " ")
		}
		return text
	}
	lost := ErrLost.Error()
	for _, c := range []struct {
		epoch string
		seq   uint64
		limit int
		want  string
	}{
		{first, 0, 9, "stored1 cleared2 "}, // an epoch's events end with it
		{first, 0, 1, "stored1 "},
		{first, 1, 9, "cleared2 "},
		{first, 2, 9, lost},
		{first, 3, 9, lost},
		{second, 0, 9, "stored1 stored2 "},
		{second, 1, 9, "stored2 "},
		{second, 2, 9, ""},
		{second, 3, 9, lost},
		{second, math.MaxUint64, 9, lost},
		{"", 0, 9, lost},
		{"0", 0, 9, lost},
		{"other.1", 0, 9, lost},
		{strings.TrimSuffix(second, "1") + "01", 0, 9, lost},
		{strings.TrimSuffix(second, "1") + "2", 0, 9, lost},
		{second + "x", 0, 9, lost},
	} {
		if got := kinds(Position{c.epoch, c.seq}, c.limit); got != c.want {
			t.Errorf("after %q %d: %q, want %q", c.epoch, c.seq, got, c.want)
		}
	}
	if got := l.Oldest(); got != (Position{second, 0}) {
		t.Errorf("oldest: %v", got)
	}
	l.most = 1
	run(t, kv, "", 9, 9, 9, 9)
	if got := l.Oldest(); got != (Position{second, 2}) || len(l.events) != 1 || l.kept != 2 {
		t.Errorf("oldest: %v, with %d events of weight %d", got, len(l.events), l.kept)
	}
	if other := New(newCache(t, 1, kvcache.LRU)); other.Epoch() == second || other.Epoch() == first {
		t.Error("two logs have the same epoch")
	}
}

// What happens at once is told in parts, each with a digest of its own.
func TestLargeEventsAreSplit(t *testing.T) {
	const blocks = maxEventBlocks + 5
	kv := newCache(t, blocks, kvcache.LRU)
	l := New(kv)
	l.most = 3 * blocks // what is evicted and stored at once
	r := newReader(l)
	if err := r.begin(kv); err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, blocks*blockSize)
	catchUp := func() {
		t.Helper()
		for done := false; !done; {
			var err error
			if done, err = r.read(1); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, kv, "", tokens...)
	stored := r.at.Seq
	catchUp()
	tokens[0] = 1
	run(t, kv, "", tokens...)
	catchUp()
	if stored != 0 || r.at.Seq != 6 || r.kinds[Stored] != 4 || r.kinds[Removed] != 2 || len(r.blocks) != blocks {
		t.Errorf("%d events %v, %d blocks", r.at.Seq, r.kinds, len(r.blocks))
	}
}

// Who waits is woken, and who waits no more is none of the log's concern.
func TestNews(t *testing.T) {
	kv := newCache(t, 16, kvcache.LRU)
	l := New(kv)
	at := Position{l.Epoch(), 0}
	head := func() Head {
		events, head, err := l.After(at, 9)
		if err != nil || len(events) != 0 {
			t.Fatal(events, err)
		}
		return head
	}
	one, two := head(), head()
	select {
	case <-one.News:
		t.Fatal("news of nothing")
	default:
	}
	run(t, kv, "", 1, 2, 3, 4)
	<-one.News
	<-two.News
	if l.news != nil {
		t.Error("somebody is thought to wait")
	}
	at.Seq = 1
	select {
	case <-head().News:
		t.Error("news of nothing")
	default:
	}
}

// Readers on other goroutines, some of them slow, while the cache is used; its owner waits
// for none of them.
func TestReadersBesideTheCache(t *testing.T) {
	kv := newCache(t, 24, kvcache.LRU)
	l := New(kv)
	l.most = 200
	snapshots := make(chan chan Snapshot)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			at, lost := Position{}, 0
			for {
				events, head, err := l.After(at, 1+rnd.IntN(20))
				switch {
				case err != nil:
					answer := make(chan Snapshot, 1)
					select {
					case snapshots <- answer:
						at = (<-answer).Position
						lost++
					case <-stop:
						return
					}
				case len(events) > 0:
					if events[0].Seq != at.Seq+1 {
						t.Errorf("event %d after %d", events[0].Seq, at.Seq)
					}
					at.Seq = events[len(events)-1].Seq
				default:
					select {
					case <-head.News:
					case <-stop:
						if lost == 0 {
							t.Error("this reader never took a snapshot")
						}
						return
					}
				}
			}
		})
	}
	c := &traffic{t: t, rnd: rand.New(rand.NewPCG(5, 5)), kv: kv}
	for range 5000 {
		c.step()
		select {
		case answer := <-snapshots:
			answer <- l.Snapshot(kv)
		default:
		}
	}
	close(stop)
	running.Wait()
	if err := l.Check(kv); err != nil {
		t.Error(err)
	}
}

// The check is worth something.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	kv := newCache(t, 16, kvcache.LRU)
	l := New(kv)
	run(t, kv, "", 1, 2, 3, 4)
	l.digest++
	if l.Check(kv) == nil {
		t.Error("a wrong digest")
	}
	l.digest--
	kv.Watch(nil)
	run(t, kv, "", 1, 2, 3, 4, 5, 6, 7, 8)
	if l.Check(kv) == nil {
		t.Error("a block that the log was not told of")
	}
}

// An event that is kept shares nothing with the cache, which goes on changing.
func TestEventsAreCopies(t *testing.T) {
	kv := newCache(t, 16, kvcache.LRU)
	l := New(kv)
	s, err := kv.Allocate("", []int32{1, 2, 3, 4, 5})
	if err != nil {
		t.Fatal(err)
	}
	kv.Commit(s, 4)
	s.Tokens()[0] = 77 // nobody may, but then nothing else changes
	events, _, err := l.After(Position{l.Epoch(), 0}, 1)
	if err != nil || !slices.Equal(events[0].Tokens, []int32{1, 2, 3, 4}) {
		t.Errorf("%+v, %v", events, err)
	}
}
