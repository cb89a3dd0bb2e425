package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gorgonia.org/tensor"
)

// randomTensors makes a checkpoint of random weights, of the size trained ones have.
func randomTensors(cfg Config, r *rand.Rand) map[string]*tensor.Dense {
	tensors := map[string]*tensor.Dense{}
	add := func(name string, mean, spread float64, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(mean + spread*r.NormFloat64())
		}
		tensors[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
	}
	w := cfg.Width
	add("wte.weight", 0, .5, cfg.Vocab, w)
	add("wpe.weight", 0, .2, cfg.Context, w)
	add("ln_f.weight", 1, .1, w)
	add("ln_f.bias", 0, .1, w)
	for i := range cfg.Layers {
		h := fmt.Sprintf("h.%d.", i)
		for _, n := range []string{"ln_1", "ln_2"} {
			add(h+n+".weight", 1, .1, w)
			add(h+n+".bias", 0, .1, w)
		}
		for _, l := range []struct {
			name    string
			in, out int
		}{{"attn.c_attn", w, 3 * w}, {"attn.c_proj", w, w}, {"mlp.c_fc", w, cfg.Inner}, {"mlp.c_proj", cfg.Inner, w}} {
			add(h+l.name+".weight", 0, 1/math.Sqrt(float64(l.in)), l.in, l.out)
			add(h+l.name+".bias", 0, .1, l.out)
		}
	}
	if !cfg.TiedHead {
		add("lm_head.weight", 0, .5, cfg.Vocab, w)
	}
	return tensors
}

func randomModel(t testing.TB, dtype DType, cfg Config, r *rand.Rand) *Model {
	t.Helper()
	m, err := NewAs(dtype, cfg, randomTensors(cfg, r))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newRand prints its seed, so that a failure can be run again.
func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// variants are configurations that differ in every switch, with awkward sizes.
var variants = []Config{
	{Layers: 2, Heads: 2, Width: 32, Context: 300, Inner: 128, Vocab: 97, Epsilon: 1e-5, ScaleAttn: true, TiedHead: true, EOS: -1},
	{Layers: 3, Heads: 3, Width: 51, Context: 300, Inner: 70, Vocab: 50, Activation: GELU, Epsilon: 1e-3, TiedHead: false, EOS: -1},
	{Layers: 2, Heads: 1, Width: 80, Context: 300, Inner: 200, Vocab: 64, Epsilon: 1e-5, ScaleAttn: true, ScaleByInverseLayer: true, TiedHead: true, EOS: 3},
}

// shuffledKV is a KV whose blocks lie in random places of a pool of noise, as a block
// table has them.
type shuffledKV struct {
	*ContiguousKV
	table []int
}

func newShuffledKV(kind DType, cfg Config, blockSize, tokens int, r *rand.Rand) *shuffledKV {
	blocks := (tokens + blockSize - 1) / blockSize
	kv := &shuffledKV{NewContiguousKVAs(kind, cfg, blockSize, blocks*blockSize), r.Perm(blocks)}
	for i := range kv.keys {
		kv.keys[i], kv.values[i] = float32(math.NaN()), float32(math.Inf(1))
	}
	for i := range kv.keys16 {
		const nan, inf = 0x7fc0, 0x7f80
		kv.keys16[i], kv.values16[i] = nan, inf
	}
	return kv
}

func (kv *shuffledKV) Keys(layer, block int) []float32 {
	return kv.ContiguousKV.Keys(layer, kv.table[block])
}

func (kv *shuffledKV) Values(layer, block int) []float32 {
	return kv.ContiguousKV.Values(layer, kv.table[block])
}

func (kv *shuffledKV) Keys16(layer, block int) []uint16 {
	return kv.ContiguousKV.Keys16(layer, kv.table[block])
}

func (kv *shuffledKV) Values16(layer, block int) []uint16 {
	return kv.ContiguousKV.Values16(layer, kv.table[block])
}

// TestSameBits runs sequences in random chunks, beside random others, on 1 to 8 threads
// and in blocks of several sizes, and compares the bits of all logits with those of
// each sequence alone, token by token, on one thread; for both types of weights and of
// keys and values.
func TestSameBits(t *testing.T) {
	r := newRand(t)
	rounds := 12
	if testing.Short() {
		rounds = 2
	}
	for v, cfg := range variants {
		for _, dtype := range []DType{F32, BF16} {
			m := randomModel(t, dtype, cfg, r)
			for _, kind := range []DType{F32, BF16} {
				t.Run(fmt.Sprintf("%d, %v, KV %v", v, dtype, kind), func(t *testing.T) {
					sameBits(t, m, kind, rounds, r)
				})
			}
		}
	}
}

func sameBits(t *testing.T, m *Model, kind DType, rounds int, r *rand.Rand) {
	cfg := m.config
	const sequences, longest = 4, 280
	tokens, want := make([][]int32, sequences), make([][]float32, sequences)
	alone := m.NewWorkspace(1, 1)
	defer alone.Close()
	for s := range tokens {
		kv := NewContiguousKVAs(kind, cfg, 16, longest)
		for p := range 1 + r.IntN(longest) {
			tokens[s] = append(tokens[s], int32(r.IntN(cfg.Vocab)))
			want[s] = append(want[s], alone.Forward([]Chunk{{Tokens: tokens[s][p:], Start: p, KV: kv, Logits: 1}})...)
		}
	}
	for range rounds {
		threads, blockSize := 1+r.IntN(8), []int{1, 3, 16, 256}[r.IntN(4)]
		w := m.NewWorkspace(sequences*longest, threads)
		longestChunk := 1 + r.IntN(longest)
		got, at := make([][]float32, sequences), make([]int, sequences)
		var kvs []KV
		for s := range tokens {
			kvs = append(kvs, newShuffledKV(kind, cfg, blockSize, len(tokens[s]), r))
		}
		for {
			var chunks []Chunk
			var who []int
			for _, s := range r.Perm(sequences) {
				if left := len(tokens[s]) - at[s]; left > 0 && r.IntN(3) > 0 {
					n := min(left, 1+r.IntN(longestChunk))
					chunks = append(chunks, Chunk{Tokens: tokens[s][at[s]:][:n], Start: at[s], KV: kvs[s], Logits: r.IntN(n + 1)})
					who = append(who, s)
					at[s] += n
				}
			}
			logits := w.Forward(chunks)
			for i, c := range chunks {
				s := who[i]
				for len(got[s]) < (c.Start+len(c.Tokens)-c.Logits)*cfg.Vocab {
					got[s] = append(got[s], float32(math.Inf(-1))) // not asked for
				}
				got[s] = append(got[s], logits[:c.Logits*cfg.Vocab]...)
				logits = logits[c.Logits*cfg.Vocab:]
			}
			done := true
			for s := range tokens {
				done = done && at[s] == len(tokens[s])
			}
			if done {
				break
			}
		}
		w.Close()
		compared := 0
		for s := range got {
			for i, g := range got[s] {
				if math.IsInf(float64(g), -1) {
					continue
				}
				compared++
				if math.Float32bits(g) != math.Float32bits(want[s][i]) {
					t.Fatalf("%d threads, blocks of %d, chunks up to %d: sequence %d position %d logit %d is %g, alone %g",
						threads, blockSize, longestChunk, s, i/cfg.Vocab, i%cfg.Vocab, g, want[s][i])
				}
			}
		}
		if compared == 0 {
			t.Error("nothing was compared")
		}
	}
}

// TestForwardDoesNotAllocate runs steps of decode, and of decode beside prefill, in a steady
// state, for both types of weights and of keys and values.
func TestForwardDoesNotAllocate(t *testing.T) {
	cfg := variants[0]
	for _, dtype := range []DType{F32, BF16} {
		m := randomModel(t, dtype, cfg, newRand(t))
		for _, kind := range []DType{F32, BF16} {
			for _, threads := range []int{1, 2} {
				w := m.NewWorkspace(64, threads)
				a, b := NewContiguousKVAs(kind, cfg, 16, cfg.Context), NewContiguousKVAs(kind, cfg, 16, cfg.Context)
				prompt := make([]int32, 40)
				w.Forward([]Chunk{{Tokens: prompt, KV: a, Logits: 2}})
				step := []Chunk{{Tokens: prompt[:1], Start: 40, KV: a, Logits: 1}, {Tokens: prompt[:30], KV: b}}
				for _, chunks := range [][]Chunk{step[:1], step} {
					if n := testing.AllocsPerRun(20, func() { w.Forward(chunks) }); n != 0 {
						t.Errorf("%v, KV %v: a step of %d chunks on %d threads allocates %v times", dtype, kind, len(chunks), threads, n)
					}
				}
				w.Close()
			}
		}
	}
}
