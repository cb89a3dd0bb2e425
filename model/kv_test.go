package model

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

// nearest16 is the bfloat16 nearest to a finite number: of its two neighbours, the one that
// is nearer, or has an even last bit.
func nearest16(x float32) float32 {
	low := math.Float32bits(x) &^ 0xffff
	a, b := math.Float32frombits(low), math.Float32frombits(low+0x10000)
	toA, toB := math.Abs(float64(x)-float64(a)), math.Abs(float64(x)-float64(b))
	if toA < toB || toA == toB && low&0x10000 == 0 {
		return a
	}
	return b
}

// TestBFloat16KVIsRoundingAlone: a KV of bfloat16 gives the bits of a KV of float32 whose
// rows are rounded by hand, in each layer, after they are written and before anything
// attends to them: a chunk's own rows too.
func TestBFloat16KVIsRoundingAlone(t *testing.T) {
	r := newRand(t)
	for _, dtype := range []DType{F32, BF16} {
		for v, cfg := range variants {
			m := randomModel(t, dtype, cfg, r)
			tokens := someTokens(cfg, 60, r)
			w := m.NewWorkspace(60, 2)
			narrow, wide := NewContiguousKVAs(BF16, cfg, 16, 60), NewContiguousKV(cfg, 16, 60)
			got := slices.Clone(w.Forward([]Chunk{{Tokens: tokens, KV: narrow, Logits: 60}}))
			rounded := 0
			w.observe = func(_ int, name string, _ []float32) {
				if name != "qkv" {
					return
				}
				for _, numbers := range [][]float32{wide.keys, wide.values} {
					for i, x := range numbers {
						if numbers[i] = nearest16(x); numbers[i] != x {
							rounded++
						}
					}
				}
			}
			want := w.Forward([]Chunk{{Tokens: tokens, KV: wide, Logits: 60}})
			if rounded == 0 {
				t.Error("nothing was rounded")
			}
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%v, variant %d: position %d, logit %d is %g, want %g", dtype, v, i/cfg.Vocab, i%cfg.Vocab, got[i], want[i])
				}
			}
			w.Close()
		}
	}
}

// TestBFloat16KVIsClose bounds what rounded keys and values change in the bundled model, on
// its own texts, as a share of the largest logit. A bfloat16 is off by 2^-9 of its value at
// most; errors of that size, which are independent of each other, partly cancel in the sums
// over dimensions and positions.
func TestBFloat16KVIsClose(t *testing.T) {
	m := bundled(t)
	raw, err := os.ReadFile("../weights/bundled/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		all = all[:3]
	}
	w := m.NewWorkspace(256, 2)
	defer w.Close()
	var worst, scale, square float64
	positions, others, n := 0, 0, 0
	for _, g := range all {
		tokens := slices.Concat(g.IDs, g.Greedy)
		logits := func(kind DType) []float32 {
			kv := NewContiguousKVAs(kind, m.config, 16, len(tokens))
			return slices.Clone(w.Forward([]Chunk{{Tokens: tokens, KV: kv, Logits: len(tokens)}}))
		}
		wide, narrow := logits(F32), logits(BF16)
		for i, x := range wide {
			d := math.Abs(float64(narrow[i]) - float64(x))
			worst, scale = max(worst, d), max(scale, math.Abs(float64(x)))
			square += d * d
		}
		n += len(wide)
		for v := m.config.Vocab; len(wide) > 0; wide, narrow = wide[v:], narrow[v:] {
			positions++
			if slices.Index(wide[:v], slices.Max(wide[:v])) != slices.Index(narrow[:v], slices.Max(narrow[:v])) {
				others++
			}
		}
	}
	t.Logf("%d positions: logits up to %.3g differ by %.3g at most, %.3g in the mean; %d have another likeliest token",
		positions, scale, worst, math.Sqrt(square/float64(n)), others)
	if !(worst > 0 && worst < 0.005*scale) {
		t.Errorf("logits up to %g differ by %g", scale, worst)
	}
	if others > positions/50 {
		t.Errorf("%d of %d positions have another likeliest token", others, positions)
	}
}

// TestContiguousKVHasOneType: asking for the other one is a caller's mistake.
func TestContiguousKVHasOneType(t *testing.T) {
	for kind, wrong := range map[DType]func(kv KV){
		F32:  func(kv KV) { kv.Keys16(0, 0) },
		Auto: func(kv KV) { kv.Values16(0, 0) },
		BF16: func(kv KV) { kv.Keys(0, 0) },
	} {
		kv := NewContiguousKVAs(kind, variants[0], 4, 8)
		if kv.BFloat16() != (kind == BF16) {
			t.Errorf("%v: bfloat16 %v", kind, kv.BFloat16())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: the other type does not panic", kind)
				}
			}()
			wrong(kv)
		}()
	}
}
