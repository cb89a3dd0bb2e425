package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/tensor"
)

// keepBits rounds every weight matrix of a checkpoint to n bits of fraction, toward zero;
// what is below 2^-14, where halves lose bits, becomes zero.
func keepBits(tensors map[string]*tensor.Dense, n int) map[string]*tensor.Dense {
	out := map[string]*tensor.Dense{}
	for name, t := range tensors {
		t = t.Clone().(*tensor.Dense)
		for i, v := range t.Float32s() {
			v = math.Float32frombits(math.Float32bits(v) &^ (1<<(23-n) - 1))
			if math.Abs(float64(v)) < 0x1p-14 {
				v = 0
			}
			t.Float32s()[i] = v
		}
		out[name] = t
	}
	return out
}

// forwardAll is the logits of every position.
func forwardAll(m *Model, tokens []int32) []float32 {
	w := m.NewWorkspace(len(tokens), 2)
	defer w.Close()
	kv := NewContiguousKV(m.config, 16, len(tokens))
	return slices.Clone(w.Forward([]Chunk{{Tokens: tokens, KV: kv, Logits: len(tokens)}}))
}

func someTokens(cfg Config, n int, r *rand.Rand) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.IntN(cfg.Vocab))
	}
	return tokens
}

// TestAutoHasTheBitsOfF32: weights that 16 bits hold exactly are kept in them, and nothing
// else changes. 7 bits of fraction are a bfloat16's, 10 a half's.
func TestAutoHasTheBitsOfF32(t *testing.T) {
	r := newRand(t)
	for _, c := range []struct {
		bits   int
		format string
	}{{7, "bfloat16"}, {10, "float16"}, {11, "float32"}} {
		for v, cfg := range variants {
			tensors := keepBits(randomTensors(cfg, r), c.bits)
			wide, err := NewAs(F32, cfg, tensors)
			if err != nil {
				t.Fatal(err)
			}
			auto, err := New(cfg, tensors)
			if err != nil {
				t.Fatal(err)
			}
			if got := auto.Formats(); !slices.Equal(got, []string{c.format}) && hasVectors(auto) {
				t.Errorf("variant %d: %d bits of fraction are kept in %v, want %s", v, c.bits, got, c.format)
			}
			tokens := someTokens(cfg, 40, r)
			want := forwardAll(wide, tokens)
			for i, got := range forwardAll(auto, tokens) {
				if math.Float32bits(got) != math.Float32bits(want[i]) {
					t.Fatalf("variant %d in %v: logit %d is %g, in float32 %g", v, auto.Formats(), i, got, want[i])
				}
			}
		}
	}
}

// hasVectors is false for the portable loops, where Auto keeps float32.
func hasVectors(m *Model) bool {
	w := m.NewWorkspace(1, 1)
	defer w.Close()
	return w.Instructions() != "portable"
}

// TestAutoBundled: the bundled checkpoint is stored in halves.
func TestAutoBundled(t *testing.T) {
	if m := bundled(t); hasVectors(m) && !slices.Equal(m.Formats(), []string{"float16"}) {
		t.Errorf("kept in %v", m.Formats())
	}
}

// TestBF16 compares with the formulas in float64, over the rounded weights: what is left is
// the rounding of rows, 2^-9 at most for each number that meets a weight.
func TestBF16(t *testing.T) {
	// Always the same draw: the largest of a thousand differences is a matter of luck.
	r := rand.New(rand.NewPCG(1, 0))
	for v, cfg := range variants {
		tensors := randomTensors(cfg, r)
		m, err := NewAs(BF16, cfg, tensors)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.Formats(), []string{"bfloat16"}) {
			t.Errorf("kept in %v", m.Formats())
		}
		tokens := someTokens(cfg, 20, r)
		got := forwardAll(m, tokens)
		var worst, spread, squares, n float64
		for p, row := range reference(cfg, roundMatrices(tensors), tokens) {
			for j, want := range row {
				off := math.Abs(float64(got[p*cfg.Vocab+j]) - want)
				worst, spread = max(worst, off), max(spread, math.Abs(want))
				squares, n = squares+off*off, n+1
			}
		}
		mean := math.Sqrt(squares / n)
		t.Logf("variant %d: differences of %.3g in the mean of squares, %.3g at most; largest logit %.3g", v, mean, worst, spread)
		if !(mean < spread/200) || !(worst < spread/50) {
			t.Errorf("variant %d: differences of %g in the mean of squares, %g at most; largest logit %g", v, mean, worst, spread)
		}
	}
}

// roundMatrices rounds what BF16 keeps in bfloat16: matrices, but not positions.
func roundMatrices(tensors map[string]*tensor.Dense) map[string]*tensor.Dense {
	out := map[string]*tensor.Dense{}
	for name, t := range tensors {
		t = t.Clone().(*tensor.Dense)
		if len(t.Shape()) == 2 && name != "wpe.weight" {
			for i, v := range t.Float32s() {
				// Nearest of the two neighbours; random numbers are no ties.
				low := math.Float32frombits(math.Float32bits(v) &^ 0xffff)
				high := math.Float32frombits(math.Float32bits(low) + 0x10000)
				if math.Abs(float64(v-low)) > math.Abs(float64(high-v)) {
					low = high
				}
				t.Float32s()[i] = low
			}
		}
		out[name] = t
	}
	return out
}

func TestDTypeText(t *testing.T) {
	for d, want := range map[DType]string{Auto: "auto", F32: "f32", BF16: "bf16"} {
		text, err := d.MarshalText()
		if err != nil || string(text) != want || fmt.Sprint(d) != want {
			t.Errorf("%d is %q, %v; want %q", d, text, err, want)
		}
		back := DType(-1)
		if err := back.UnmarshalText(text); err != nil || back != d {
			t.Errorf("%q becomes %v, %v", text, back, err)
		}
	}
	var d DType
	if err := d.UnmarshalText([]byte("F32")); !errors.Is(err, ErrDType) || d != Auto {
		t.Errorf("F32 gives %v, %v", d, err)
	}
}

// TestWeightBytes counts the packed weights of a shape that needs no padding.
func TestWeightBytes(t *testing.T) {
	cfg := Config{Layers: 2, Heads: 2, Width: 48, Context: 8, Inner: 96, Vocab: 144, Epsilon: 1e-5, TiedHead: true, EOS: -1}
	const weights, biases = 2*(48*144+48*48+2*48*96) + 48*144, 2*(144+48+96+48) + 144
	for _, dtype := range []DType{F32, BF16} {
		m := randomModel(t, dtype, cfg, newRand(t))
		size := 4
		if dtype == BF16 {
			size = 2
		}
		if got, want := m.WeightBytes(), size*weights+4*biases; got != want {
			t.Errorf("%v: %d bytes, want %d", dtype, got, want)
		}
	}
}
