package speed

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/tensor"

	"tailor/model"
)

// GPT2Small is the shape of GPT-2 with 124 million parameters.
var GPT2Small = model.Config{
	Layers: 12, Heads: 12, Width: 768, Context: 1024, Inner: 3072, Vocab: 50257,
	Epsilon: 1e-5, ScaleAttn: true, TiedHead: true, EOS: 50256,
}

// RandomTensors is a checkpoint of a shape with weights of the size that trained ones
// have: speed does not depend on their values, as long as these are ordinary.
func RandomTensors(cfg model.Config) map[string]*tensor.Dense {
	tensors := map[string]*tensor.Dense{}
	r := rand.NewPCG(1, 2)
	add := func(name string, mean, spread float32, shape ...int) {
		values := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range values {
			// 24 random bits: -1 to 1.
			values[i] = mean + spread*(float32(r.Uint64()>>40)/(1<<23)-1)
		}
		tensors[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
	}
	w := cfg.Width
	add("wte.weight", 0, .04, cfg.Vocab, w)
	add("wpe.weight", 0, .02, cfg.Context, w)
	add("ln_f.weight", 1, .1, w)
	add("ln_f.bias", 0, .1, w)
	for i := range cfg.Layers {
		h := fmt.Sprintf("h.%d.", i)
		for _, norm := range []string{"ln_1", "ln_2"} {
			add(h+norm+".weight", 1, .1, w)
			add(h+norm+".bias", 0, .1, w)
		}
		for _, l := range []struct {
			name    string
			in, out int
		}{{"attn.c_attn", w, 3 * w}, {"attn.c_proj", w, w}, {"mlp.c_fc", w, cfg.Inner}, {"mlp.c_proj", cfg.Inner, w}} {
			add(h+l.name+".weight", 0, .04, l.in, l.out)
			add(h+l.name+".bias", 0, .02, l.out)
		}
	}
	if !cfg.TiedHead {
		add("lm_head.weight", 0, .04, cfg.Vocab, w)
	}
	return tensors
}
