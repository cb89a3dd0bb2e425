package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"

	"tailor/model"
)

// twin is the forward pass once more, in float64 and plain loops, one position after
// the other: the same formulas with nothing of gorgonia in them.
type twin struct {
	cfg     model.Config
	tensors map[string]*tensor.Dense
}

func (t twin) of(name string) []float32 { return t.tensors[name].Float32s() }

// affine is x w + b for a weight [len(x)][n].
func (t twin) affine(prefix string, x []float64, n int) []float64 {
	w, b, y := t.of(prefix+".weight"), t.of(prefix+".bias"), make([]float64, n)
	for j := range y {
		y[j] = float64(b[j])
		for i, v := range x {
			y[j] += v * float64(w[i*n+j])
		}
	}
	return y
}

func (t twin) norm(prefix string, x []float64) []float64 {
	var mean, variance float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	gain, bias, y := t.of(prefix+".weight"), t.of(prefix+".bias"), make([]float64, len(x))
	for i, v := range x {
		y[i] = (v-mean)/math.Sqrt(variance+float64(t.cfg.Epsilon))*float64(gain[i]) + float64(bias[i])
	}
	return y
}

func (t twin) activation(v float64) float64 {
	if t.cfg.Activation == model.GELU {
		return v * (1 + math.Erf(v/math.Sqrt2)) / 2
	}
	return v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) / 2
}

func (t twin) logits(tokens []int32) []float64 {
	W, D := t.cfg.Width, t.cfg.Width/t.cfg.Heads
	wte, wpe, head := t.of("wte.weight"), t.of("wpe.weight"), t.of("wte.weight")
	if _, given := t.tensors["lm_head.weight"]; given {
		head = t.of("lm_head.weight")
	}
	keys := make([][][]float64, t.cfg.Layers) // [layer][position][W]
	values := make([][][]float64, t.cfg.Layers)
	var logits []float64
	for pos, id := range tokens {
		x := make([]float64, W)
		for i := range x {
			x[i] = float64(wte[int(id)*W+i]) + float64(wpe[pos*W+i])
		}
		for l := range t.cfg.Layers {
			p := fmt.Sprintf("h.%d.", l)
			qkv := t.affine(p+"attn.c_attn", t.norm(p+"ln_1", x), 3*W)
			keys[l], values[l] = append(keys[l], qkv[W:2*W]), append(values[l], qkv[2*W:])
			mixed := make([]float64, W)
			for h := range t.cfg.Heads {
				scores, sum := make([]float64, pos+1), 0.0
				for j := range scores {
					for i := h * D; i < (h+1)*D; i++ {
						scores[j] += qkv[i] * keys[l][j][i]
					}
					if t.cfg.ScaleAttn {
						scores[j] /= math.Sqrt(float64(D))
					}
					if t.cfg.ScaleByInverseLayer {
						scores[j] /= float64(l + 1)
					}
				}
				for j := range scores {
					scores[j] = math.Exp(scores[j])
					sum += scores[j]
				}
				for j, s := range scores {
					for i := h * D; i < (h+1)*D; i++ {
						mixed[i] += s / sum * values[l][j][i]
					}
				}
			}
			for i, v := range t.affine(p+"attn.c_proj", mixed, W) {
				x[i] += v
			}
			inner := t.affine(p+"mlp.c_fc", t.norm(p+"ln_2", x), t.cfg.Inner)
			for i, v := range inner {
				inner[i] = t.activation(v)
			}
			for i, v := range t.affine(p+"mlp.c_proj", inner, W) {
				x[i] += v
			}
		}
		x = t.norm("ln_f", x)
		for v := range t.cfg.Vocab {
			var sum float64
			for i := range x {
				sum += x[i] * float64(head[v*W+i])
			}
			logits = append(logits, sum)
		}
	}
	return logits
}

// randomModel draws a small configuration and a checkpoint for it. Every variant flag
// is drawn too, so that a few hundred draws meet every combination.
func randomModel(rnd *rand.Rand) (model.Config, map[string]*tensor.Dense) {
	heads := 1 + rnd.IntN(4)
	cfg := model.Config{
		Layers: 1 + rnd.IntN(3), Heads: heads, Width: heads * (1 + rnd.IntN(6)),
		Context: 1 + rnd.IntN(20), Vocab: 2 + rnd.IntN(30),
		Activation: []model.Activation{model.GELU, model.GELUNew}[rnd.IntN(2)],
		Epsilon:    []float32{1e-5, 1e-6, 1e-2}[rnd.IntN(3)],
		ScaleAttn:  rnd.IntN(2) == 0, ScaleByInverseLayer: rnd.IntN(2) == 0, TiedHead: rnd.IntN(2) == 0,
		EOS: -1,
	}
	cfg.Inner = []int{4 * cfg.Width, 1 + rnd.IntN(10)}[rnd.IntN(2)]
	if cfg.Width < 2 {
		cfg.Width = 2 * heads // the variance of one number is 0 and says nothing
	}

	tensors := map[string]*tensor.Dense{}
	put := func(name string, spread float64, shape ...int) {
		data := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range data {
			data[i] = float32(rnd.NormFloat64() * spread)
		}
		tensors[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
	}
	affine := func(prefix string, in, out int) {
		put(prefix+".weight", 0.5, in, out)
		put(prefix+".bias", 0.5, out)
	}
	norm := func(prefix string) { put(prefix+".weight", 1, cfg.Width); put(prefix+".bias", 0.5, cfg.Width) }
	put("wte.weight", 1, cfg.Vocab, cfg.Width)
	put("wpe.weight", 1, cfg.Context, cfg.Width)
	for l := range cfg.Layers {
		p := fmt.Sprintf("h.%d.", l)
		norm(p + "ln_1")
		norm(p + "ln_2")
		affine(p+"attn.c_attn", cfg.Width, 3*cfg.Width)
		affine(p+"attn.c_proj", cfg.Width, cfg.Width)
		affine(p+"mlp.c_fc", cfg.Width, cfg.Inner)
		affine(p+"mlp.c_proj", cfg.Inner, cfg.Width)
	}
	norm("ln_f")
	if !cfg.TiedHead || rnd.IntN(3) == 0 {
		put("lm_head.weight", 1, cfg.Vocab, cfg.Width)
	}
	return cfg, tensors
}

func randomTokens(rnd *rand.Rand, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(rnd.IntN(vocab))
	}
	return tokens
}

// TestRandomModelsAgainstTwin compares with relative differences: with drawn weights a
// logit may be large. float32 keeps seven digits, a layer costs one or two.
func TestRandomModelsAgainstTwin(t *testing.T) {
	draws := 300
	if testing.Short() {
		draws = 60
	}
	worst := 0.0
	for seed := range uint64(draws) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		cfg, tensors := randomModel(rnd)
		g, err := New(cfg, tensors)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, n := range []int{1, 1 + rnd.IntN(cfg.Context), cfg.Context} {
			tokens := randomTokens(rnd, n, cfg.Vocab)
			got, err := g.Logits(tokens)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			want := twin{cfg, tensors}.logits(tokens)
			if len(got) != len(want) {
				t.Fatalf("seed %d: %d logits, want %d", seed, len(got), len(want))
			}
			for i := range got {
				d := math.Abs(float64(got[i])-want[i]) / (1 + math.Abs(want[i]))
				if worst = max(worst, d); !(d < 1e-4) {
					t.Fatalf("seed %d, %+v, %d tokens: logit %d is %g, want %g", seed, cfg, n, i, got[i], want[i])
				}
			}
		}
	}
	t.Logf("largest relative difference %.2g", worst)
}
