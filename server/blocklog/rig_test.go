package blocklog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"tailor/kvcache"
)

const blockSize = 4

func newCache(t testing.TB, blocks int, eviction kvcache.Eviction) *kvcache.Manager {
	t.Helper()
	kv, err := kvcache.New(kvcache.Config{Blocks: blocks, BlockSize: blockSize, Layers: 1, Heads: 1, HeadDim: 1, Eviction: eviction})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// run computes tokens and lets go of them.
func run(t testing.TB, kv *kvcache.Manager, salt string, tokens ...int32) {
	t.Helper()
	s, err := kv.Allocate(salt, tokens)
	if err != nil {
		t.Fatal(err)
	}
	kv.Commit(s, s.Len()-s.Computed())
	kv.Free(s)
}

// held is a block as a reader knows it.
type held struct {
	salt   string
	parent kvcache.BlockID
	tokens []int32
}

// reader is a copy of a cache, kept as the package's text says and by nothing else.
type reader struct {
	log    *Log
	blocks map[kvcache.BlockID]held
	at     Position

	events, lost, beats int
	kinds               map[Kind]int
}

func newReader(l *Log) *reader {
	return &reader{log: l, kinds: map[Kind]int{}}
}

// begin takes a snapshot.
func (r *reader) begin(kv *kvcache.Manager) error {
	s := r.log.Snapshot(kv)
	r.at, r.blocks = s.Position, map[kvcache.BlockID]held{}
	for _, salt := range s.Salts {
		if len(salt.Blocks) == 0 {
			return fmt.Errorf("salt %q without blocks", salt.Salt)
		}
		for _, b := range salt.Blocks {
			if err := r.store(b.ID, held{salt.Salt, b.Parent, slices.Clone(b.Tokens)}); err != nil {
				return err
			}
		}
	}
	if s.BlockSize != blockSize || s.Digest != r.digest() {
		return fmt.Errorf("the snapshot's digest is %016x, its blocks' %016x; blocks of %d tokens", s.Digest, r.digest(), s.BlockSize)
	}
	return nil
}

// read takes in a batch of events. done says that there were no more.
func (r *reader) read(limit int) (done bool, err error) {
	events, head, err := r.log.After(r.at, limit)
	switch {
	case errors.Is(err, ErrLost):
		r.lost++
		return false, err
	case err != nil || len(events) > limit:
		return false, fmt.Errorf("%d events, %w", len(events), err)
	case len(events) == 0:
		r.beats++
		if head.Position != r.at || head.Digest != r.digest() || head.News == nil {
			return true, fmt.Errorf("at %v, with digest %016x: %+v", r.at, r.digest(), head)
		}
		return true, nil
	}
	for _, e := range events {
		if r.at.Seq++; e.Seq != r.at.Seq {
			return false, fmt.Errorf("event %d after %d", e.Seq, r.at.Seq-1)
		}
		r.events++
		r.kinds[e.Kind]++
		if err := r.apply(e); err != nil {
			return false, fmt.Errorf("event %+v: %w", e, err)
		}
	}
	return false, nil
}

func (r *reader) apply(e Event) error {
	if len(e.Blocks) > maxEventBlocks || (len(e.Blocks) == 0) != (e.Kind == Cleared) {
		return fmt.Errorf("%d blocks", len(e.Blocks))
	}
	parent := e.Parent
	for i, id := range e.Blocks {
		switch e.Kind {
		case Stored:
			if err := r.store(id, held{e.Salt, parent, e.Tokens[i*blockSize : (i+1)*blockSize]}); err != nil {
				return err
			}
			parent = id
		case Removed:
			if _, there := r.blocks[id]; !there {
				return fmt.Errorf("%d is not there", id)
			}
			delete(r.blocks, id)
		}
	}
	if e.Kind == Cleared {
		clear(r.blocks)
	}
	return nil
}

func (r *reader) store(id kvcache.BlockID, b held) error {
	above, known := r.blocks[b.parent]
	if _, there := r.blocks[id]; there || b.parent != kvcache.NoBlock && (!known || above.salt != b.salt) || len(b.tokens) != blockSize {
		return fmt.Errorf("block %d, %+v: its parent is %+v", id, b, above)
	}
	r.blocks[id] = b
	return nil
}

// digest goes from each block up to its root and hashes all at once.
func (r *reader) digest() uint64 {
	sum := uint64(0)
	for _, b := range r.blocks {
		path := []held{b}
		for at := b; at.parent != kvcache.NoBlock; path = append(path, at) {
			at = r.blocks[at.parent]
		}
		data := append(binary.AppendUvarint(nil, uint64(len(b.salt))), b.salt...)
		for _, at := range slices.Backward(path) {
			for _, token := range at.tokens {
				data = append(data, byte(token), byte(token>>8), byte(token>>16), byte(token>>24))
			}
		}
		sum += xxhash.Sum64(data)
	}
	return sum
}

// traffic does random things to a cache.
type traffic struct {
	t    testing.TB
	rnd  *rand.Rand
	kv   *kvcache.Manager
	live []*kvcache.Sequence
}

func (c *traffic) step() {
	i := -1
	if len(c.live) > 0 {
		i = c.rnd.IntN(len(c.live))
	}
	switch kind := c.rnd.IntN(16); {
	case kind < 6 && len(c.live) < 4:
		tokens := make([]int32, 1+c.rnd.IntN(6*blockSize))
		for i := range tokens {
			tokens[i] = int32(c.rnd.IntN(2))
		}
		salt := []string{"", "a", strings.Repeat("long ", 40)}[c.rnd.IntN(3)]
		if s, err := c.kv.Allocate(salt, tokens); err == nil {
			c.live = append(c.live, s)
		}
	case kind == 6 && i >= 0 && len(c.live) < 4:
		if s, err := c.kv.Fork(c.live[i]); err == nil {
			c.live = append(c.live, s)
		}
	case kind < 9 && i >= 0:
		_ = c.kv.Append(c.live[i], int32(c.rnd.IntN(2))) // or there is no room
	case kind < 14 && i >= 0:
		c.kv.Commit(c.live[i], c.rnd.IntN(c.live[i].Len()-c.live[i].Computed()+1))
	case kind == 14 && c.rnd.IntN(8) == 0:
		for len(c.live) > 0 {
			c.free(0)
		}
		if _, err := c.kv.Reset(); err != nil {
			c.t.Fatal(err)
		}
	case i >= 0:
		c.free(i)
	}
}

func (c *traffic) free(i int) {
	c.kv.Free(c.live[i])
	c.live = slices.Delete(c.live, i, i+1)
}
