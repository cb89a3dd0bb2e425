package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"tailor/router/policy"
)

// naiveCache is a replica's cache as the plainest thing that can be one: a map from a
// block's path to its id. It makes the events that a replica would send.
type naiveCache struct {
	blockSize int
	paths     map[string]int64 // salt, then tokens, as digests take them
	ids       map[int64]*cachedPath
	next      int64
}

type cachedPath struct {
	salt     string
	tokens   []int32 // the whole path
	parent   int64
	children int
}

func newNaiveCache(blockSize int) *naiveCache {
	return &naiveCache{blockSize: blockSize, paths: map[string]int64{}, ids: map[int64]*cachedPath{}}
}

func pathKey(salt string, tokens []int32) string {
	b := binary.AppendUvarint(nil, uint64(len(salt)))
	b = append(b, salt...)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return string(b)
}

// matched is how many whole blocks of the prompt are there.
func (n *naiveCache) matched(salt string, tokens []int32) int {
	blocks := 0
	for (blocks+1)*n.blockSize <= len(tokens) {
		if _, ok := n.paths[pathKey(salt, tokens[:(blocks+1)*n.blockSize])]; !ok {
			break
		}
		blocks++
	}
	return blocks
}

// store enters a prompt's whole blocks and returns the event, or none if all were there.
func (n *naiveCache) store(salt string, tokens []int32) (e wireEvent, news bool) {
	e = wireEvent{Type: eventStored, Salt: salt, Parent: -1}
	for end := n.blockSize; end <= len(tokens); end += n.blockSize {
		key := pathKey(salt, tokens[:end])
		if id, ok := n.paths[key]; ok {
			e.Parent = id
			continue
		}
		parent := e.Parent
		if len(e.Blocks) > 0 {
			parent = e.Blocks[len(e.Blocks)-1].ID
		}
		if parent >= 0 {
			n.ids[parent].children++
		}
		n.paths[key] = n.next
		n.ids[n.next] = &cachedPath{salt: salt, tokens: tokens[:end], parent: parent}
		e.Blocks = append(e.Blocks, wireBlock{ID: n.next, Tokens: tokens[end-n.blockSize : end]})
		n.next++
	}
	return e, len(e.Blocks) > 0
}

// evict drops up to count leaves, any of them.
func (n *naiveCache) evict(count int, rng *rand.Rand) wireEvent {
	e := wireEvent{Type: eventRemoved}
	for range count {
		var leaves []int64
		for id := range n.next {
			if b := n.ids[id]; b != nil && b.children == 0 {
				leaves = append(leaves, id)
			}
		}
		if len(leaves) == 0 {
			break
		}
		id := leaves[rng.IntN(len(leaves))]
		b := n.ids[id]
		if b.parent >= 0 {
			n.ids[b.parent].children--
		}
		delete(n.paths, pathKey(b.salt, b.tokens))
		delete(n.ids, id)
		e.Blocks = append(e.Blocks, wireBlock{ID: id})
	}
	return e
}

func (n *naiveCache) clear() {
	n.paths, n.ids = map[string]int64{}, map[int64]*cachedPath{}
}

// digest as its definition has it: each block hashed with its whole path.
func (n *naiveCache) digest() uint64 {
	sum := uint64(0)
	for path := range n.paths {
		sum += xxhash.Sum64String(path)
	}
	return sum
}

func (n *naiveCache) snapshot(epoch, model string, seq uint64) string {
	out := fmt.Sprintf(`{"epoch":%q,"seq":%d,"block_size":%d,"model":%q,"digest":"%016x","salts":[`, epoch, seq, n.blockSize, model, n.digest())
	salts := map[string]string{}
	for id := range n.next { // parents have lower ids
		if b := n.ids[id]; b != nil {
			if salts[b.salt] != "" {
				salts[b.salt] += ","
			}
			salts[b.salt] += fmt.Sprintf(`{"id":%d,"parent":%d,"tokens":%s}`, id, b.parent, jsonInts(b.tokens[len(b.tokens)-n.blockSize:]))
		}
	}
	comma := ""
	for salt, blocks := range salts {
		out += fmt.Sprintf(`%s{"salt":%q,"blocks":[%s]}`, comma, salt, blocks)
		comma = ","
	}
	return out + "]}"
}

func jsonInts(tokens []int32) string {
	out := "["
	for i, t := range tokens {
		if i > 0 {
			out += ","
		}
		out += fmt.Sprint(t)
	}
	return out + "]"
}

// randomPrompt makes prompts that share beginnings: few tokens, few salts.
func randomPrompt(rng *rand.Rand, longest int) (salt string, tokens []int32) {
	tokens = make([]int32, 1+rng.IntN(longest))
	for i := range tokens {
		tokens[i] = rng.Int32N(2)
		if i%4 > 0 {
			tokens[i] = 7
		}
	}
	return []string{"", "a", "b"}[rng.IntN(3)], tokens
}

// The index against as many naive caches, through any history of theirs.
func TestBlockIndexModel(t *testing.T) {
	const seed, blockSize, model = 11, 4, "m"
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	x := newBlockIndex(blockSize, 1<<20)
	caches := make([]*naiveCache, 70) // more than a word of the set has bits
	copies := make([]*cacheCopy, len(caches))
	open := func(i int) {
		var err error
		if copies[i], err = x.open("e", model); err != nil {
			t.Fatal(err)
		}
		x.activate(copies[i])
		caches[i] = newNaiveCache(blockSize)
	}
	for i := range caches {
		open(i)
	}
	steps := 4000
	if testing.Short() {
		steps = 800
	}
	for step := range steps {
		i := rng.IntN(len(caches))
		n, c := caches[i], copies[i]
		switch rng.IntN(10) {
		case 0, 1, 2, 3, 4, 5:
			salt, tokens := randomPrompt(rng, 40)
			if e, news := n.store(salt, tokens); news {
				if err := x.store(c, e.Salt, e.Parent, e.Blocks); err != nil {
					t.Fatal(err)
				}
			}
		case 6, 7, 8:
			if err := x.remove(c, n.evict(1+rng.IntN(5), rng).Blocks); err != nil {
				t.Fatal(err)
			}
		case 9: // it restarts
			if rng.IntN(5) == 0 {
				x.retire(c)
				for !x.clear(c, 3) {
				}
				open(i)
				c, n = copies[i], caches[i]
			}
		}
		if c.digest != n.digest() || len(c.ids) != len(n.ids) {
			t.Fatalf("step %d: digest %x of %d blocks, the cache itself says %x, %d", step, c.digest, len(c.ids), n.digest(), len(n.ids))
		}
		salt, tokens := randomPrompt(rng, 40)
		chain := policy.Salted(policy.ChainTokens(policy.Root(policy.UnitTokens, model), tokens, blockSize, 100), salt)
		var lengths [maxFollowed]int
		x.match(chain, &lengths)
		for j := range caches {
			if got, want := lengths[copies[j].number], caches[j].matched(salt, tokens); got != want {
				t.Fatalf("step %d: replica %d matches %d blocks, its cache %d", step, j, got, want)
			}
		}
	}
	entries, distinct := 0, map[string]bool{}
	for _, n := range caches {
		entries += len(n.paths)
		for path := range n.paths {
			distinct[path] = true
		}
	}
	if x.entries != entries || len(x.blocks) != len(distinct) {
		t.Errorf("%d entries, %d blocks; the caches have %d and %d", x.entries, len(x.blocks), entries, len(distinct))
	}
}

func TestBlockIndexRefusesNonsense(t *testing.T) {
	block := func(id int64, first int32) wireBlock { return wireBlock{ID: id, Tokens: []int32{first, 0}} }
	for _, tt := range []struct {
		name string
		do   func(x *blockIndex, c *cacheCopy) error
		want error
	}{
		{"an unknown parent", func(x *blockIndex, c *cacheCopy) error { return x.store(c, "", 9, []wireBlock{block(1, 1)}) }, errEvent},
		{"an id twice", func(x *blockIndex, c *cacheCopy) error { return x.store(c, "", 0, []wireBlock{block(0, 1)}) }, errEvent},
		{"a path twice", func(x *blockIndex, c *cacheCopy) error { return x.store(c, "", -1, []wireBlock{block(5, 1)}) }, errEvent},
		{"a negative id", func(x *blockIndex, c *cacheCopy) error { return x.store(c, "", -1, []wireBlock{block(-2, 2)}) }, errEvent},
		{"a block of another size", func(x *blockIndex, c *cacheCopy) error {
			return x.store(c, "", -1, []wireBlock{{ID: 3, Tokens: []int32{1}}})
		}, errEvent},
		{"an unknown block removed", func(x *blockIndex, c *cacheCopy) error { return x.remove(c, []wireBlock{{ID: 4}}) }, errEvent},
		{"too many", func(x *blockIndex, c *cacheCopy) error {
			return x.store(c, "", -1, []wireBlock{block(3, 3), block(4, 4), block(5, 5), block(6, 6)})
		}, errIndexFull},
	} {
		x := newBlockIndex(2, 4)
		c, err := x.open("e", "m")
		if err != nil {
			t.Fatal(err)
		}
		if err := x.store(c, "", -1, []wireBlock{block(0, 1)}); err != nil {
			t.Fatal(err)
		}
		if err := tt.do(x, c); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if x.entries > x.limit {
			t.Errorf("%s: %d entries of %d", tt.name, x.entries, x.limit)
		}
	}
	x := newBlockIndex(2, 10)
	for i := range maxFollowed {
		if _, err := x.open("e", "m"); err != nil {
			t.Fatalf("copy %d: %v", i, err)
		}
	}
	if _, err := x.open("e", "m"); !errors.Is(err, errIndexFull) {
		t.Errorf("one copy too many: %v", err)
	}
}

// A replica that drops a parent before its child breaks its own tree, not the router.
func TestBlockIndexSurvivesOrphans(t *testing.T) {
	const blockSize = 2
	x := newBlockIndex(blockSize, 100)
	c, err := x.open("e", "m")
	if err != nil {
		t.Fatal(err)
	}
	store := func(parent int64, blocks ...wireBlock) {
		t.Helper()
		if err := x.store(c, "", parent, blocks); err != nil {
			t.Fatal(err)
		}
	}
	store(-1, wireBlock{ID: 0, Tokens: []int32{1, 1}}, wireBlock{ID: 1, Tokens: []int32{2, 2}})
	if err := x.remove(c, []wireBlock{{ID: 0}}); err != nil {
		t.Fatal(err)
	}
	store(1, wireBlock{ID: 2, Tokens: []int32{3, 3}}) // takes the parent's place
	store(2, wireBlock{ID: 3, Tokens: []int32{4, 4}})
	store(-1, wireBlock{ID: 4, Tokens: []int32{1, 1}})
	for !x.clear(c, 1) {
	}
	if c.digest != 0 || x.entries != 0 || len(x.blocks) != 0 {
		t.Errorf("cleared: digest %x, %d entries, %d blocks", c.digest, x.entries, len(x.blocks))
	}
}
