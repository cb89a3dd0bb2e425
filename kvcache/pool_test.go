package kvcache

import (
	"errors"
	"math"
	"runtime"
	"testing"
)

func TestPoolBytes(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		cfg := Config{Blocks: 3, BlockSize: 16, Layers: 4, Heads: 4, HeadDim: 32, BFloat16: narrow}
		block := 4 * 2 * 4 * 32 * 16 * 4 // layers, keys and values, heads, dimensions, rows, bytes of a float32
		if narrow {
			block /= 2
		}
		if cfg.BlockBytes() != block || cfg.PoolBytes() != 3*block {
			t.Errorf("%d bytes a block, %d in all, want %d and three times that", cfg.BlockBytes(), cfg.PoolBytes(), block)
		}
		for _, c := range []struct{ bytes, want int }{
			{-1, 0}, {0, 0}, {block - 1, 0}, {block, 1}, {2*block - 1, 1}, {2 * block, 2}, {1 << 30, 1 << 30 / block},
			{math.MaxInt, math.MaxInt32},
		} {
			got := cfg.BlocksFor(c.bytes)
			if got != c.want {
				t.Errorf("%d blocks for %d bytes, want %d", got, c.bytes, c.want)
			}
			if cfg.Blocks = got; cfg.PoolBytes() > max(0, c.bytes) {
				t.Errorf("%d blocks take %d bytes of %d", got, cfg.PoolBytes(), c.bytes)
			}
		}
	}
	mustPanic(t, "blocks of no bytes", func() { Config{}.BlocksFor(1) })
}

// TestLargePool: from 64 MiB on, a pool is none of the collector's business.
func TestLargePool(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skipf("pools are mapped on linux, this is %s", runtime.GOOS)
	}
	cfg := Config{BlockSize: 4, Layers: 2, Heads: 2, HeadDim: 64}
	for i := range 4 {
		large := i%2 == 1
		cfg.BFloat16 = i >= 2
		cfg.Blocks = mapFrom / cfg.BlockBytes()
		if !large {
			cfg.Blocks--
		}
		before := heapBytes()
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := heapBytes() - before; large != (got < mapFrom/2) {
			t.Errorf("a pool of %d bytes: %d on the heap", cfg.PoolBytes(), got)
		}
		// The last block and the first have rows like any other.
		a, b := start(t, m, "", count(0, 4*cfg.Blocks-4), 0), start(t, m, "", count(9, 4), 0)
		compute(b, 0, 4)
		compute(a, 0, 4)
		if err := verify(b); err != nil {
			t.Error(err)
		}
		if err := m.Close(); !errors.Is(err, ErrHeld) {
			t.Errorf("close with 2 live sequences: %v", err)
		}
		m.Free(a)
		m.Free(b)
		if err := m.Check(); err != nil {
			t.Errorf("after a refused close: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		mustPanic(t, "allocate after close", func() { _, _ = m.Allocate("", count(0, 4)) })
	}
}

func heapBytes() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestBookkeeping holds all that a full cache needs beside its rows, remembered departures
// included, to 400 bytes per block, with sequences as short as 20 tokens: a block of 16
// tokens takes 65,536 bytes in a model as small as 4 layers of 4 heads of 32.
func TestBookkeeping(t *testing.T) {
	cfg := Config{Blocks: 60_000, BlockSize: 16, Layers: 1, Heads: 1, HeadDim: 1}
	if testing.Short() {
		cfg.Blocks = 6000
	}
	before := heapBytes()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	token := int32(0)
	for m.Stats().Evicted < uint64(cfg.Blocks) {
		s, err := m.Allocate("", count(int(token), 16+16*int(token/16%4/3)))
		if err != nil {
			t.Fatal(err)
		}
		token += int32(s.Len())
		m.Commit(s, s.Len())
		m.Free(s)
	}
	stats := m.Stats()
	got := float64(heapBytes()-before-cfg.PoolBytes()) / float64(cfg.Blocks)
	t.Logf("%.0f bytes per block, %.1f per token, %d nodes", got, got*float64(cfg.Blocks)/float64(stats.Tokens), stats.Nodes)
	if got > 400 {
		t.Errorf("%.0f bytes per block, want 400 at most", got)
	}
	runtime.KeepAlive(m)
}

// TestTouchOfACacheInUse: rows that somebody holds are not to be written over.
func TestTouchOfACacheInUse(t *testing.T) {
	m, err := New(Config{Blocks: 2, BlockSize: 4, Layers: 1, Heads: 1, HeadDim: 1})
	if err != nil {
		t.Fatal(err)
	}
	m.Touch()
	s := start(t, m, "", count(0, 4), 0)
	mustPanic(t, "touch a pool in use", m.Touch)
	m.Free(s)
}
