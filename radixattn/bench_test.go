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
	twin    []int32
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

func newForest(shape string) *forest {
	f := &forest{tree: New(benchBlock), shape: shape, r: rand.New(rand.NewPCG(1, 2)), buffer: make([]int32, 0, 4096)}
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
		if f.twin == nil {
			f.twin = f.random(8)
			return prompt{-1, slices.Concat(f.twin, f.random(8+16*f.r.IntN(2)))}
		}
		defer func() { f.twin = nil }()
		return prompt{-1, slices.Concat(f.twin, f.random(8+16*f.r.IntN(2)))}
	case "long": // documents
		return prompt{-1, f.random(2000)}
	}
	panic("no such shape: " + f.shape)
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
		f := newForest(shape)
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
		f := newForest(shape)
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
		perToken := bookkeeping(shape, tokens)
		f := newForest(shape)
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
		f := newForest(shape)
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
// the slowest of a thousand.
func BenchmarkChurn(b *testing.B) {
	eachForest(b, func(b *testing.B, shape string, tokens int) {
		f := newForest(shape)
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

// bookkeeping returns the heap bytes per token of a tree of that shape and size.
func bookkeeping(shape string, tokens int) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := newForest(shape)
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
	for _, shape := range []string{"flat", "pairs", "chat", "long"} {
		got := bookkeeping(shape, tokens)
		t.Logf("%s: %.1f bytes per token", shape, got)
		if got >= 16 {
			t.Errorf("%s: %.1f bytes per token, want less than 16", shape, got)
		}
	}
}
