package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"
)

// reference is GPT-2 as the formulas say it, in float64, over the whole sequence at
// once, with nothing packed, cached or shared: the logits of every position.
func reference(cfg Config, tensors map[string]*tensor.Dense, tokens []int32) [][]float64 {
	get := func(name string) []float64 {
		var out []float64
		for _, v := range tensors[name].Float32s() {
			out = append(out, float64(v))
		}
		return out
	}
	linear := func(x []float64, name string) []float64 {
		w, b := get(name+".weight"), get(name+".bias")
		y := append([]float64(nil), b...)
		for i, v := range x {
			for j := range y {
				y[j] += v * w[i*len(y)+j]
			}
		}
		return y
	}
	norm := func(x []float64, name string) []float64 {
		g, b := get(name+".weight"), get(name+".bias")
		var mean, variance float64
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x))
		}
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = (v-mean)/math.Sqrt(variance+float64(cfg.Epsilon))*g[i] + b[i]
		}
		return y
	}
	act := func(v float64) float64 {
		if cfg.Activation == GELU {
			return v / 2 * (1 + math.Erf(v/math.Sqrt2))
		}
		return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
	w := cfg.Width
	wte, wpe := get("wte.weight"), get("wpe.weight")
	var x [][]float64
	for p, id := range tokens {
		row := make([]float64, w)
		for i := range row {
			row[i] = wte[int(id)*w+i] + wpe[p*w+i]
		}
		x = append(x, row)
	}
	for l := range cfg.Layers {
		h := fmt.Sprintf("h.%d.", l)
		var qkv [][]float64
		for _, row := range x {
			qkv = append(qkv, linear(norm(row, h+"ln_1"), h+"attn.c_attn"))
		}
		dim := w / cfg.Heads
		for p := range x {
			y := make([]float64, w)
			for head := range cfg.Heads {
				s := make([]float64, p+1)
				var sum float64
				for q := range s {
					for d := range dim {
						s[q] += qkv[p][head*dim+d] * qkv[q][w+head*dim+d]
					}
					if cfg.ScaleAttn {
						s[q] /= math.Sqrt(float64(dim))
					}
					if cfg.ScaleByInverseLayer {
						s[q] /= float64(l + 1)
					}
					sum += math.Exp(s[q])
				}
				for q := range s {
					for d := range dim {
						y[head*dim+d] += math.Exp(s[q]) / sum * qkv[q][2*w+head*dim+d]
					}
				}
			}
			for i, v := range linear(y, h+"attn.c_proj") {
				x[p][i] += v
			}
			inner := linear(norm(x[p], h+"ln_2"), h+"mlp.c_fc")
			for i := range inner {
				inner[i] = act(inner[i])
			}
			for i, v := range linear(inner, h+"mlp.c_proj") {
				x[p][i] += v
			}
		}
	}
	head := wte
	if t := tensors["lm_head.weight"]; t != nil {
		head = get("lm_head.weight")
	}
	var logits [][]float64
	for _, row := range x {
		f := norm(row, "ln_f")
		out := make([]float64, cfg.Vocab)
		for j := range out {
			for i, v := range f {
				out[j] += v * head[j*w+i]
			}
		}
		logits = append(logits, out)
	}
	return logits
}

// TestReference compares every variant with the formulas, all positions.
func TestReference(t *testing.T) {
	r := newRand(t)
	for v, cfg := range variants {
		tensors := randomTensors(cfg, r)
		compareWithReference(t, fmt.Sprint("variant ", v), cfg, tensors, r)
	}
	// A head that is given counts even where the config says tied.
	cfg := variants[1]
	tensors := randomTensors(cfg, r)
	cfg.TiedHead = true
	compareWithReference(t, "tied, with a head of its own", cfg, tensors, r)
}

func compareWithReference(t *testing.T, what string, cfg Config, tensors map[string]*tensor.Dense, r *rand.Rand) {
	t.Helper()
	m, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, 20)
	for i := range tokens {
		tokens[i] = int32(r.IntN(cfg.Vocab))
	}
	w := m.NewWorkspace(len(tokens), 2)
	defer w.Close()
	got := w.Forward([]Chunk{{Tokens: tokens, KV: NewContiguousKV(cfg, 16, len(tokens)), Logits: len(tokens)}})
	for p, row := range reference(cfg, tensors, tokens) {
		for j, want := range row {
			if g := float64(got[p*cfg.Vocab+j]); !(math.Abs(g-want) < 1e-4*(1+math.Abs(want))) {
				t.Fatalf("%s: position %d logit %d is %g, want %g", what, p, j, g, want)
			}
		}
	}
}

// TestTiedHeadIsPackedOnce: a head equal to the embedding needs no second copy.
func TestTiedHeadIsPackedOnce(t *testing.T) {
	cfg := variants[0]
	tensors := randomTensors(cfg, newRand(t))
	tensors["lm_head.weight"] = tensors["wte.weight"].Clone().(*tensor.Dense)
	cfg.TiedHead = false
	m, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if m.embedding != m.head {
		t.Error("the embedding is stored twice")
	}
	compareWithReference(t, "equal head", cfg, tensors, newRand(t))
}
