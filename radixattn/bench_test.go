package radixattn

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"tailor/paging"
)

// A forest is a tree of about so many tokens, all unlocked, in one of three shapes. Blocks
// have 16 rows, token ids are GPT-2's.
type forest struct {
	tree    *Tree
	shape   string
	r       *rand.Rand
	next    paging.BlockID
	systems [10][]int32
	buffer  []int32
	begun   []int32 // what the next prompt goes on from, in the shapes in which it does
}

const (
	benchBlock = 16
	benchVocab = 50257
)

// prompt is an optional system prompt and the tokens after it. It is put together only
// when it is used: a real prompt comes hot from the tokenizer, and 50,000 whole ones would
// push the tree out of the CPU's caches.
type prompt struct {
	system int // -1: none
	tail   []int32
}

func newForest(shape string, order Eviction) *forest {
	f := &forest{tree: New(benchBlock, WithEviction(order)), shape: shape, r: rand.New(rand.NewPCG(1, 2)), buffer: make([]int32, 0, 4096)}
	for i := range f.systems {
		f.systems[i] = f.random(500)
	}
	return f
}

func (f *forest) random(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(f.r.IntN(benchVocab))
	}
	return tokens
}

// prompt makes a new prompt of whole blocks. In the first two shapes 20 tokens of it are
// its own, on average, so that 1,000,000 tokens are 50,000 sequences.
func (f *forest) prompt() prompt {
	switch f.shape {
	case "flat": // all children of one root
		return prompt{-1, f.random(16 + 16*(f.r.IntN(4)/3))}
	case "chat": // ten system prompts, each with questions that part inside a block
		return prompt{f.r.IntN(len(f.systems)), f.random(12 + 16*f.r.IntN(2))}
	case "pairs": // every two share their first 8 tokens: as many splits as there can be
		return prompt{-1, slices.Concat(f.sharedByTwo(8), f.random(8+16*f.r.IntN(2)))}
	case "hits": // every two share a block and a half, so that the block is hit
		return prompt{-1, slices.Concat(f.sharedByTwo(24), f.random(8))}
	case "turns": // chats of 8 turns, each of which adds a block to what it hits
		if len(f.begun) == 8*benchBlock {
			f.begun = nil
		}
		f.begun = slices.Concat(f.begun, f.random(benchBlock))
		return prompt{-1, f.begun}
	case "long": // documents
		return prompt{-1, f.random(2000)}
	}
	panic("no such shape: " + f.shape)
}

// sharedByTwo returns the same n tokens twice, then others.
func (f *forest) sharedByTwo(n int) []int32 {
	tokens := f.begun
	if f.begun = nil; tokens == nil {
		tokens = f.random(n)
		f.begun = tokens
	}
	return tokens
}

// tokens puts a prompt together. The result is valid until the next call.
func (f *forest) tokens(p prompt) []int32 {
	if p.system < 0 {
		return p.tail
	}
	return append(append(f.buffer, f.systems[p.system]...), p.tail...)
}

// insert does what a request does to the tree: match, lock, insert, unlock.
func (f *forest) insert(tokens []int32) {
	l := f.tree.Lock(f.tree.Match("", tokens))
	rest := tokens[l.Tokens():]
	var blocks [2000 / benchBlock]paging.BlockID
	n := len(rest) / benchBlock
	for i := range n {
		blocks[i] = f.next
		f.next++
	}
	f.tree.Insert(l, rest, blocks[:n])
	f.tree.Unlock(l)
}

// grow adds new prompts until the tree has that many tokens, and returns them.
func (f *forest) grow(tokens int) (prompts []prompt) {
	for f.tree.Stats().Tokens < tokens {
		p := f.prompt()
		f.insert(f.tokens(p))
		prompts = append(prompts, p)
	}
	return prompts
}

// eachForest runs a benchmark for all shapes and sizes.
func eachForest(b *testing.B, bench func(b *testing.B, shape string, tokens int)) {
	for _, shape := range []string{"flat", "chat", "long"} {
		for _, tokens := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/tokens=%d", shape, tokens), func(b *testing.B) { bench(b, shape, tokens) })
		}
	}
}

// BenchmarkMatch finds prompts that are in the tree.
func BenchmarkMatch(b *testing.B) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		f := newForest(shape, LRU)
		prompts := f.grow(tokens)
		i := 0
		for b.Loop() {
			i = (i + 7919) % len(prompts)
			tokens := f.tokens(prompts[i])
			if m := f.tree.Match("", tokens); m.Tokens != len(tokens) {
				b.Fatalf("match of %d tokens of %d", m.Tokens, len(tokens))
			}
		}
	})
}

// BenchmarkLock finds, locks and unlocks prompts that are in the tree.
func BenchmarkLock(b *testing.B) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		f := newForest(shape, LRU)
		prompts := f.grow(tokens)
		i := 0
		for b.Loop() {
			i = (i + 7919) % len(prompts)
			f.tree.Unlock(f.tree.Lock(f.tree.Match("", f.tokens(prompts[i]))))
		}
	})
}

// BenchmarkInsert matches, locks, inserts and unlocks new prompts. Outside the time
// measured the tree is cut back to its size after every 500. It also reports the memory
// of a tree that has just been grown.
func BenchmarkInsert(b *testing.B) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		perToken := bookkeeping(shape, LRU, tokens)
		f := newForest(shape, LRU)
		f.grow(tokens)
		full := f.tree.Stats().Blocks
		prompts := make([]prompt, 500)
		b.ResetTimer()
		for i := range b.N {
			if i%len(prompts) == 0 {
				b.StopTimer()
				f.tree.Evict(f.tree.Stats().Blocks - full)
				for k := range prompts {
					prompts[k] = f.prompt()
				}
				b.StartTimer()
			}
			f.insert(f.tokens(prompts[i%len(prompts)]))
		}
		b.ReportMetric(perToken, "bytes/token")
	})
}

// BenchmarkEvict takes single blocks out of the tree. Outside the time measured the tree is
// grown again whenever a tenth of it is gone.
func BenchmarkEvict(b *testing.B) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		f := newForest(shape, LRU)
		f.grow(tokens)
		b.ResetTimer()
		for range b.N {
			f.tree.Evict(1)
			if f.tree.Stats().Tokens < tokens-tokens/10 {
				b.StopTimer()
				f.grow(tokens)
				b.StartTimer()
			}
		}
	})
}

// BenchmarkChurn is a full cache at work: a new prompt comes in, and as many blocks as it
// brought are evicted. The mean includes making the prompt; p99.9 is of the tree's part,
// the slowest of a thousand. It is wall time: on a machine that is not idle it is mostly
// the time that the goroutine waited for a processor.
func BenchmarkChurn(b *testing.B) {
	for _, order := range []Eviction{LRU, LFU} {
		b.Run(order.String(), func(b *testing.B) { benchmarkChurn(b, order) })
	}
}

func benchmarkChurn(b *testing.B, order Eviction) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		f := newForest(shape, order)
		f.grow(tokens)
		full := f.tree.Stats().Blocks
		times := make([]time.Duration, 0, 1<<20)
		for b.Loop() {
			prompt := f.tokens(f.prompt())
			start := time.Now()
			f.insert(prompt)
			f.tree.Evict(f.tree.Stats().Blocks - full)
			if len(times) < cap(times) {
				times = append(times, time.Since(start))
			}
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)*999/1000]), "p99.9-ns")
	})
}

// BenchmarkRanks locks and unlocks sequences that were hit 0 to 1999 times, evicts the first
// to go and inserts another, under LFU: as many ranks as there could ever be.
func BenchmarkRanks(b *testing.B) {
	f := newForest("flat", LFU)
	prompts := f.grow(1_000_000)
	for i, p := range prompts {
		l := f.tree.Lock(f.tree.Match("", p.tail))
		if n := l.node; n.parent.isRoot() && n.kids == nil {
			n.hits = uint32(i % 2000) // as if it had been locked so often
		}
		f.tree.Unlock(l)
	}
	full, i := f.tree.Stats().Blocks, 0
	for b.Loop() {
		i = (i + 7919) % len(prompts)
		f.tree.Unlock(f.tree.Lock(f.tree.Match("", prompts[i].tail)))
		f.insert(f.prompt().tail)
		f.tree.Evict(f.tree.Stats().Blocks - full)
	}
}

// BenchmarkView describes the 1000 nodes that stay longest.
func BenchmarkView(b *testing.B) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		f := newForest(shape, LRU)
		f.grow(tokens)
		for b.Loop() {
			f.tree.View(nil, 1000)
		}
	})
}

// bookkeeping returns the heap bytes per token of a tree of that shape and size.
func bookkeeping(shape string, order Eviction, tokens int) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := newForest(shape, order)
	f.grow(tokens)
	runtime.GC()
	runtime.ReadMemStats(&after)
	bytes := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	return bytes / float64(f.tree.Stats().Tokens)
}

// TestBookkeeping holds the tree to less than 16 bytes per token, the tokens themselves
// (4 bytes) included, with sequences as short as 20 tokens.
func TestBookkeeping(t *testing.T) {
	tokens := 1_000_000
	if testing.Short() {
		tokens = 100_000
	}
	for _, shape := range []string{"flat", "pairs", "hits", "turns", "chat", "long"} {
		for _, order := range []Eviction{LRU, LFU} {
			got := bookkeeping(shape, order, tokens)
			t.Logf("%s, %v: %.1f bytes per token", shape, order, got)
			if got >= 16 {
				t.Errorf("%s, %v: %.1f bytes per token, want less than 16", shape, order, got)
			}
		}
	}
}

// TestHitsDoNotCopy: what is asked for again and again is not cut where the match ends and
// joined afterwards, each time anew. The garbage of such copies, or rather its collection,
// was what made one request of a thousand slow.
func TestHitsDoNotCopy(t *testing.T) {
	const requests = 200
	for _, order := range []Eviction{LRU, LFU} {
		f := newForest("chat", order)
		f.grow(20_000)
		asked := make([][]int32, requests)
		for i := range asked {
			asked[i] = slices.Concat(f.systems[0], f.random(12))
		}
		before := allocatedBytes()
		for _, tokens := range asked {
			f.insert(tokens)
		}
		got := (allocatedBytes() - before) / requests
		t.Logf("%v: %d bytes per request", order, got)
		if got >= 500*4 { // as much as one copy of what is hit
			t.Errorf("%v: %d bytes allocated for a hit of 500 tokens and 12 tokens more", order, got)
		}
	}
}

func allocatedBytes() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}
