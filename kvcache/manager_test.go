package kvcache

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"tailor/paging"
)

func TestTooLong(t *testing.T) {
	m := newCache(t, 2)
	if _, err := m.Allocate("", count(0, 9)); !errors.Is(err, ErrTooLong) || errors.Is(err, ErrNoFreeBlocks) {
		t.Errorf("9 tokens in 2 blocks of 4: %v, want ErrTooLong", err)
	}
	s := start(t, m, "", count(0, 8), 0)
	if err := m.Append(s, 1); !errors.Is(err, ErrTooLong) {
		t.Errorf("a ninth token: %v, want ErrTooLong", err)
	}
	if s.Len() != 8 {
		t.Errorf("%d tokens after a failed append", s.Len())
	}
	sound(t, m)
}

// TestAppendTakesTheLastBlock: decode evicts what nobody holds, then reports shortage and
// changes nothing, then goes on once another sequence is freed.
func TestAppendTakesTheLastBlock(t *testing.T) {
	m := newCache(t, 3)
	serve(t, m, "", count(50, 4), 0)
	a, b := start(t, m, "", count(0, 4), 0), start(t, m, "", count(100, 4), 0)
	if err := m.Append(a, 4); err != nil || m.Stats().Evicted != 1 {
		t.Fatalf("append: %v, %d evicted, want 1", err, m.Stats().Evicted)
	}
	if err := m.Append(b, 4); !errors.Is(err, ErrNoFreeBlocks) || b.Len() != 4 || b.Blocks() != 1 {
		t.Fatalf("append: %v, %d tokens, %d blocks", err, b.Len(), b.Blocks())
	}
	m.Free(a)
	if err := m.Append(b, 4); err != nil || !slices.Equal(b.Tokens(), []int32{100, 101, 102, 103, 4}) {
		t.Fatalf("append: %v, %v", err, b.Tokens())
	}
	sound(t, m)
}

// TestGeneratedTokensHit: the next turn of a chat reuses the answer, down to the token.
func TestGeneratedTokensHit(t *testing.T) {
	m := newCache(t, 20)
	s := start(t, m, "", count(0, 6), 0)
	run(t, m, s, 6)
	for i := range 10 {
		if err := m.Append(s, int32(6+i)); err != nil {
			t.Fatal(err)
		}
		run(t, m, s, 1)
	}
	m.Free(s)
	start(t, m, "", append(count(0, 16), 90, 91), 16)
	start(t, m, "", append(count(0, 13), 90, 91), 13)
}

// TestFiveHundredTokensSaveFiveHundred: reuse is exact to the token, not to the block.
func TestFiveHundredTokensSaveFiveHundred(t *testing.T) {
	m, err := New(Config{Blocks: 100, BlockSize: 16, Layers: 1, Heads: 1, HeadDim: 1})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, m, "", append(count(0, 500), count(1000, 100)...), 0)
	serve(t, m, "", append(count(0, 500), count(2000, 50)...), 500)
}

// TestCopyLeavesTheSourceAlone: writing the rest of a copied block does not touch the
// block that the rows came from.
func TestCopyLeavesTheSourceAlone(t *testing.T) {
	m := newCache(t, 20)
	a := start(t, m, "", count(0, 8), 0)
	run(t, m, a, 8)
	b := start(t, m, "", append(count(0, 6), 90, 91, 92), 6)
	if a.table.At(1) == b.table.At(1) || a.table.At(0) != b.table.At(0) {
		t.Errorf("tables %v and %v: want the first block shared, the second not", a.table, b.table)
	}
	run(t, m, b, 3) // run checks every row of both
}

func TestCommitBeyondTheTokens(t *testing.T) {
	m := newCache(t, 4)
	s := start(t, m, "", count(0, 5), 0)
	mustPanic(t, "commit of 6 tokens of 5", func() { m.Commit(s, 6) })
	mustPanic(t, "commit of -1 token", func() { m.Commit(s, -1) })
	mustPanic(t, "allocate of no token", func() { _, _ = m.Allocate("", nil) })
	mustPanic(t, "another manager's sequence", func() { newCache(t, 4).Free(s) })
	if s.Computed() != 0 {
		t.Errorf("%d tokens computed", s.Computed())
	}
	sound(t, m)
}

// TestPoolLayout: keys lie a column per token, values a row per token, in one allocation
// without gaps or overlaps.
func TestPoolLayout(t *testing.T) {
	cfg := Config{Blocks: 3, BlockSize: 4, Layers: 2, Heads: 2, HeadDim: 3}
	wide, err := newPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.BFloat16 = true
	narrow, err := newPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(wide.narrow.data)+len(narrow.wide.data) != 0 {
		t.Error("a pool has two storages")
	}
	t.Run("float32", func(t *testing.T) { storageLayout(t, wide, &wide.wide, 4) })
	t.Run("bfloat16", func(t *testing.T) { storageLayout(t, narrow, &narrow.narrow, 2) })
}

func storageLayout[T number](t *testing.T, pool *pool, p *storage[T], bytes int) {
	for i := range p.data {
		p.data[i] = T(i)
	}
	if len(p.data)*bytes != p.cfg.Blocks*p.cfg.BlockBytes() {
		t.Errorf("%d numbers, want %d bytes", len(p.data), p.cfg.Blocks*p.cfg.BlockBytes())
	}
	next := T(0)
	for id := range paging.BlockID(3) {
		for layer := range 2 {
			for _, part := range [][]T{p.keys(layer, id), p.values(layer, id)} {
				if len(part) != 2*3*4 || cap(part) != len(part) || part[0] != next {
					t.Fatalf("block %d, layer %d: %d numbers from %v, want 24 from %v", id, layer, len(part), part[0], next)
				}
				next += 24
			}
		}
	}

	before := slices.Clone(p.data)
	pool.copyRows(2, 0, 3)
	for id := range paging.BlockID(3) {
		for layer := range 2 {
			for head := range 2 {
				for dim := range 3 {
					for row := range 4 {
						from := id
						if id == 2 && row < 3 {
							from = 0
						}
						key, value := (head*3+dim)*4+row, (head*4+row)*3+dim
						base := (int(from)*2 + layer) * 48
						if got := p.keys(layer, id)[key]; got != before[base+key] {
							t.Errorf("key of block %d, layer %d, head %d, dim %d, row %d: %v, want %v", id, layer, head, dim, row, got, before[base+key])
						}
						if got := p.values(layer, id)[value]; got != before[base+24+value] {
							t.Errorf("value of block %d, layer %d, head %d, dim %d, row %d: %v, want %v", id, layer, head, dim, row, got, before[base+24+value])
						}
					}
				}
			}
		}
	}
}

func TestConfigValidate(t *testing.T) {
	good := Config{Blocks: 4, BlockSize: 4, Layers: 1, Heads: 1, HeadDim: 1}
	for name, bad := range map[string]func(c *Config){
		"Blocks":            func(c *Config) { c.Blocks = 0 },
		"BlockSize":         func(c *Config) { c.BlockSize = -1 },
		"Layers":            func(c *Config) { c.Layers = 0 },
		"Heads":             func(c *Config) { c.Heads = math.MaxInt },
		"HeadDim":           func(c *Config) { c.HeadDim = 0 },
		"eviction":          func(c *Config) { c.Eviction = 2 },
		"beyond all memory": func(c *Config) { c.Blocks, c.BlockSize, c.Layers = math.MaxInt32, math.MaxInt32, math.MaxInt32 },
	} {
		c := good
		bad(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want it to say %q", c, err, name)
		}
	}
	m, err := New(good)
	if err != nil || m.Config() != good {
		t.Errorf("%v, %+v", err, m.Config())
	}
}

// TestCheckFindsWhatIsBroken breaks each invariant that binds allocator, tree and tables.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for _, d := range []struct {
		what string
		do   func(m *Manager, s *Sequence)
		want string
	}{
		{"an allocator that knows nothing", func(m *Manager, s *Sequence) { m.blocks = paging.NewAllocator(10) }, "block"},
		{"a reference leaked", func(m *Manager, s *Sequence) { m.blocks.Retain(s.table.At(0)) }, "block 0 has 3 refs"},
		{"a reference lost", func(m *Manager, s *Sequence) { m.blocks.Release(s.table.At(0)) }, "block 0 has 1 refs"},
		{"a lock lost", func(m *Manager, s *Sequence) { m.tree.Unlock(s.lock) }, "lock"},
		{"a block leaked", func(m *Manager, s *Sequence) { _, _ = m.blocks.Alloc(1) }, "tables and tree hold it 0 times"},
		{"a sequence lost", func(m *Manager, s *Sequence) { m.live = nil }, "lock"},
		{"a sequence misplaced", func(m *Manager, s *Sequence) { s.index = 3 }, "thinks it is 3"},
		{"more computed than committed", func(m *Manager, s *Sequence) { s.computed = 8 }, "lock covers"},
		{"more cached than computed", func(m *Manager, s *Sequence) { s.cached = 7 }, "7 tokens cached"},
		{"a block too few", func(m *Manager, s *Sequence) { s.tokens = append(s.tokens, 1, 2, 3) }, "holds 3 blocks"},
		{"other tokens than the tree's", func(m *Manager, s *Sequence) { s.tokens[0] = 99 }, "the tree has 0"},
		{"blocks in the wrong order", func(m *Manager, s *Sequence) { s.table.Replace(0, s.table.Replace(1, s.table.At(0))) }, "the tree's is"},
		{"a block of its own shared", func(m *Manager, s *Sequence) {
			m.blocks.Release(s.table.Replace(1, s.table.At(2)))
			m.blocks.Retain(s.table.At(2))
		}, "not its own"},
	} {
		m := newCache(t, 10)
		s := start(t, m, "", count(0, 10), 0)
		run(t, m, s, 6)
		d.do(m, s)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: got %v, want it to say %q", d.what, err, d.want)
		}
	}
}
