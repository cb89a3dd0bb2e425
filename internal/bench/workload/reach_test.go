package workload_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"tailor/internal/bench/workload"
	"tailor/kvcache"
)

// random makes requests over a few units, so that prompts share beginnings of all lengths,
// repeat each other, end at block boundaries and continue answers.
func random(draw *rand.Rand, requests, longest, units int) []workload.Sent {
	sent := make([]workload.Sent, requests)
	for i := range sent {
		s := &sent[i]
		if draw.IntN(8) == 0 {
			s.Salt = "other"
		}
		if i > 0 && draw.IntN(3) > 0 {
			before := sent[draw.IntN(i)]
			all := append(append([]int32{}, before.Prompt...), before.Output...)
			s.Prompt = all[:draw.IntN(len(all)+1)]
			s.Salt = before.Salt
		}
		for n := draw.IntN(longest); len(s.Prompt) <= n; {
			s.Prompt = append(s.Prompt, draw.Int32N(int32(units)))
		}
		s.Prompt = s.Prompt[:min(len(s.Prompt), longest)]
		for range draw.IntN(longest / 2) {
			s.Output = append(s.Output, draw.Int32N(int32(units)))
		}
	}
	return sent
}

// naiveInfinite compares each prompt with all that was kept of every earlier request.
func naiveInfinite(sent []workload.Sent, size int) (r workload.Reached) {
	distinct := map[string]bool{}
	type text struct {
		salt  string
		units []int32
	}
	var kept []text
	for _, s := range sent {
		longest := 0
		for _, k := range kept {
			n := 0
			for k.salt == s.Salt && n < len(k.units) && n < len(s.Prompt)-1 && k.units[n] == s.Prompt[n] {
				n++
			}
			longest = max(longest, n)
		}
		r.Prompt += int64(len(s.Prompt))
		r.Reused += int64(longest)
		if longest > 0 {
			r.Hits++
		}
		rows := append([]int32{}, s.Prompt...)
		for i := 0; i < len(s.Output)-1; i++ {
			rows = append(rows, s.Output[i])
		}
		for len(rows)%size > 0 {
			rows = rows[:len(rows)-1]
		}
		kept = append(kept, text{s.Salt, rows})
		for end := size; end <= len(rows); end += size {
			distinct[s.Salt+fmt.Sprint(rows[:end])] = true
		}
	}
	r.Blocks = len(distinct)
	return r
}

// engineLRU sends the requests through the engine's own cache.
func engineLRU(t *testing.T, sent []workload.Sent, size, blocks int) (r workload.Reached) {
	m, err := kvcache.New(kvcache.Config{Blocks: blocks, BlockSize: size, Layers: 1, Heads: 1, HeadDim: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, s := range sent {
		r.Prompt += int64(len(s.Prompt))
		if rows := len(s.Prompt) + max(0, len(s.Output)-1); (rows+size-1)/size > blocks {
			r.Refused++
			continue
		}
		seq, err := m.Allocate(s.Salt, s.Prompt)
		if err != nil {
			t.Fatal(err)
		}
		r.Reused += int64(seq.Cached())
		if seq.Cached() > 0 {
			r.Hits++
		}
		m.Commit(seq, len(s.Prompt)-seq.Cached())
		for i := 0; i < len(s.Output)-1; i++ {
			if err := m.Append(seq, s.Output[i]); err != nil {
				t.Fatal(err)
			}
			m.Commit(seq, 1)
		}
		m.Free(seq)
	}
	r.Blocks = m.Stats().Cached
	return r
}

func TestReachAgainstTwins(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rounds := 400
	if testing.Short() {
		rounds = 80
	}
	var evicted, refused, below int
	for round := range rounds {
		draw := rand.New(rand.NewPCG(seed, uint64(round)))
		size := 1 + draw.IntN(5)
		sent := random(draw, 1+draw.IntN(60), 2+draw.IntN(30), 1+draw.IntN(4))
		all := naiveInfinite(sent, size)
		if got := workload.Infinite(sent, size); got != all {
			t.Fatalf("seed %d round %d: Infinite %+v, twin %+v", seed, round, got, all)
		}
		for _, blocks := range []int{1 + draw.IntN(12), 1 + draw.IntN(60), all.Blocks + 100} {
			lru, want := workload.LRU(sent, size, blocks), engineLRU(t, sent, size, blocks)
			if lru != want {
				t.Fatalf("seed %d round %d: LRU of %d blocks of %d: %+v, the engine's cache %+v", seed, round, blocks, size, lru, want)
			}
			bound := workload.Bound(sent, size, blocks)
			if lru.Reused > bound || bound > all.Reused {
				t.Fatalf("seed %d round %d: %d blocks of %d: LRU %d, bound %d, infinite %d, want them ascending",
					seed, round, blocks, size, lru.Reused, bound, all.Reused)
			}
			if blocks > all.Blocks+60 {
				if lru != all || bound != all.Reused {
					t.Fatalf("seed %d round %d: %d blocks of %d: LRU %+v, bound %d, want %+v", seed, round, blocks, size, lru, bound, all)
				}
			}
			refused += int(lru.Refused)
			if lru.Reused < all.Reused {
				evicted++
			}
			if bound < all.Reused {
				below++
			}
		}
	}
	// Or nothing has been tested.
	if evicted == 0 || refused == 0 || below == 0 {
		t.Errorf("seed %d: LRU below infinite %d times, %d requests refused, bound below infinite %d times", seed, evicted, refused, below)
	}
}

// TestBoundHoldsForTheBestPolicy compares with the best of all ways to choose what is kept
// after each request: any of the blocks there were and those of the request, as many as
// there is room for.
func TestBoundHoldsForTheBestPolicy(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	var exact, tight, short int
	for round := range rounds {
		draw := rand.New(rand.NewPCG(seed, uint64(round)))
		size := 1 + draw.IntN(3)
		sent := random(draw, 2+draw.IntN(14), 2+draw.IntN(3*size), 2+draw.IntN(2))
		blocks := 1 + draw.IntN(4)
		best := bestReuse(sent, size, blocks)
		bound := workload.Bound(sent, size, blocks)
		if best < 0 {
			continue
		}
		exact++
		if best < workload.Infinite(sent, size).Reused {
			short++
		}
		if bound < best {
			t.Fatalf("seed %d round %d: %d blocks of %d: bound %d, but %d can be reused of %v", seed, round, blocks, size, bound, best, sent)
		}
		if bound == best {
			tight++
		}
	}
	t.Logf("seed %d: %d of %d rounds small enough to try everything; room was short in %d; the bound was reached in %d", seed, exact, rounds, short, tight)
	if exact < rounds/4 || short < exact/20 || tight < exact/4 {
		t.Error("too few of them to mean anything")
	}
}

// TestBoundCountsBlocksBeside: with room for two of three blocks it is best to keep one of
// the two that are nearly alike, and to find 3 of its 4 tokens when the other is asked for.
func TestBoundCountsBlocksBeside(t *testing.T) {
	var sent []workload.Sent
	const turns = 6
	for range turns {
		for _, block := range [][]int32{{1, 2, 3, 4}, {1, 2, 3, 5}, {9, 9, 9, 9}} {
			sent = append(sent, workload.Sent{Prompt: append(block, 0)})
		}
	}
	best := bestReuse(sent, 4, 2)
	if want := int64(3 + (turns-1)*(4+3+4)); best != want {
		t.Fatalf("the best is %d, want %d: the test is wrong", best, want)
	}
	bound := workload.Bound(sent, 4, 2)
	if all := workload.Infinite(sent, 4).Reused; bound < best || bound >= all {
		t.Errorf("bound %d, want from the best, %d, to below the infinite cache's %d", bound, best, all)
	}
}

// bestReuse returns -1 where there are too many blocks to try all sets of them.
func bestReuse(sent []workload.Sent, size, blocks int) int64 {
	numbers := map[string]int{}
	number := func(salt string, path []int32) int {
		key := salt + fmt.Sprint(path)
		if _, ok := numbers[key]; !ok {
			numbers[key] = len(numbers)
		}
		return numbers[key]
	}
	var paths [][]int32
	var salts []string
	var asks []uint // the blocks of each request, as bits
	for _, s := range sent {
		rows := append([]int32{}, s.Prompt...)
		rows = append(rows, s.Output[:max(0, len(s.Output)-1)]...)
		ask := uint(0)
		for end := size; end <= len(rows); end += size {
			k := number(s.Salt, rows[:end])
			if k == len(paths) {
				paths, salts = append(paths, rows[:end]), append(salts, s.Salt)
			}
			ask |= 1 << k
		}
		asks = append(asks, ask)
	}
	if len(paths) > 11 {
		return -1
	}
	reuse := func(s workload.Sent, mask uint) int64 {
		findable, n := s.Prompt[:len(s.Prompt)-1], 0
		for n+size <= len(findable) {
			k, ok := numbers[s.Salt+fmt.Sprint(findable[:n+size])]
			if !ok || mask&(1<<k) == 0 {
				break
			}
			n += size
		}
		more := 0
		for k, path := range paths {
			if mask&(1<<k) == 0 || salts[k] != s.Salt || len(path) != n+size {
				continue
			}
			c := 0
			for c < len(path) && c < len(findable) && path[c] == findable[c] {
				c++
			}
			more = max(more, c-n)
		}
		return int64(n + more)
	}
	best := map[uint]int64{0: 0}
	for i, s := range sent {
		if rows := len(s.Prompt) + max(0, len(s.Output)-1); (rows+size-1)/size > blocks {
			continue // refused
		}
		next := map[uint]int64{}
		for mask, sum := range best {
			sum += reuse(s, mask)
			all := mask | asks[i]
			for keep := all; ; keep = (keep - 1) & all { // every subset
				if bits.OnesCount(keep) <= blocks {
					if old, ok := next[keep]; !ok || sum > old {
						next[keep] = sum
					}
				}
				if keep == 0 {
					break
				}
			}
		}
		best = next
	}
	top := int64(0)
	for _, sum := range best {
		top = max(top, sum)
	}
	return top
}

func TestReachByHand(t *testing.T) {
	a := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	for _, c := range []struct {
		what   string
		sent   []workload.Sent
		blocks int
		reused int64
	}{
		{"the last token is computed", []workload.Sent{{Prompt: a}, {Prompt: a}}, 100, 7},
		{"rows that fill no block are lost", []workload.Sent{{Prompt: a[:7]}, {Prompt: a}}, 100, 4},
		{"an answer is found but for its last token", []workload.Sent{{Prompt: a[:3], Output: a[3:6]}, {Prompt: a}}, 100, 4},
		{"an answer fills a block", []workload.Sent{{Prompt: a[:3], Output: append(a[3:8:8], 9)}, {Prompt: append(a[:8:8], 9)}}, 100, 8},
		{"parted inside a block", []workload.Sent{{Prompt: a}, {Prompt: []int32{1, 2, 3, 4, 5, 6, 0, 0, 0}}}, 100, 6},
		{"another salt", []workload.Sent{{Prompt: a}, {Prompt: a, Salt: "x"}}, 100, 0},
		{"evicted from the end", []workload.Sent{{Prompt: a}, {Prompt: []int32{9, 9, 9, 9}}, {Prompt: a}}, 2, 4},
	} {
		if got := workload.LRU(c.sent, 4, c.blocks); got.Reused != c.reused {
			t.Errorf("%s: %+v, want %d reused", c.what, got, c.reused)
		}
	}
}

func TestBoundOfACycle(t *testing.T) {
	// Prompts of one block and one token more, asked in turn: LRU with one block too few
	// finds nothing; MIN keeps all but one.
	const prompts, turns, size = 5, 20, 8
	var sent []workload.Sent
	for range turns {
		for p := range int32(prompts) {
			sent = append(sent, workload.Sent{Prompt: []int32{p, 1, 2, 3, 4, 5, 6, 7, 8}})
		}
	}
	for _, c := range []struct{ blocks, lru, kept int }{{2, 0, 2}, {4, 0, 4}, {5, 0, 5}, {6, 5, 5}} {
		if got, want := workload.LRU(sent, size, c.blocks).Reused, int64((turns-1)*c.lru*size); got != want {
			t.Errorf("%d blocks: LRU %d, want %d", c.blocks, got, want)
		}
		got := workload.Bound(sent, size, c.blocks)
		// Of the prompts in excess of the room some hits remain: MIN changes which it keeps.
		if low := int64((turns - 1) * (c.kept - 1) * size); got < low || got > int64((turns-1)*c.kept*size) {
			t.Errorf("%d blocks: bound %d, want %d to %d", c.blocks, got, low, (turns-1)*c.kept*size)
		}
	}
}

func BenchmarkReach(b *testing.B) {
	w, err := workload.Hot(workload.HotConfig{
		PrefixRepetitionConfig: workload.PrefixRepetitionConfig{
			Target: workload.Target{Vocab: 50257, Context: 1024}, Requests: 10000, Prefixes: 500, PrefixTokens: 600, SuffixTokens: 400, OutputTokens: 24,
		},
		Exponent: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	sent, err := w.Sent(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("infinite", func(b *testing.B) {
		for b.Loop() {
			workload.Infinite(sent, 16)
		}
	})
	b.Run("lru", func(b *testing.B) {
		for b.Loop() {
			workload.LRU(sent, 16, 10000)
		}
	})
	b.Run("bound", func(b *testing.B) {
		for b.Loop() {
			workload.Bound(sent, 16, 10000)
		}
	})
}
