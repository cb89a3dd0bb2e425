package engine

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"

	"gorgonia.org/tensor"

	"tailor/model"
	"tailor/weights"
)

var tinyShape = model.Config{
	Layers: 2, Heads: 4, Width: 32, Context: 256, Inner: 96, Vocab: 64,
	Epsilon: 1e-5, ScaleAttn: true, TiedHead: true, EOS: 63,
}

var tinyModel = sync.OnceValues(func() (*model.Model, error) {
	r := rand.New(rand.NewPCG(1, 1))
	tensors := map[string]*tensor.Dense{}
	add := func(name string, mean, spread float64, shape ...int) {
		values := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range values {
			values[i] = float32(mean + spread*r.NormFloat64())
		}
		tensors[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
	}
	linear := func(name string, in, out int) {
		add(name+".weight", 0, 0.3, in, out)
		add(name+".bias", 0, 0.1, out)
	}
	norm := func(name string) {
		add(name+".weight", 1, 0.1, tinyShape.Width)
		add(name+".bias", 0, 0.1, tinyShape.Width)
	}
	w := tinyShape.Width
	add("wte.weight", 0, 0.5, tinyShape.Vocab, w)
	add("wpe.weight", 0, 0.5, tinyShape.Context, w)
	norm("ln_f")
	for i := range tinyShape.Layers {
		h := fmt.Sprintf("h.%d.", i)
		norm(h + "ln_1")
		norm(h + "ln_2")
		linear(h+"attn.c_attn", w, 3*w)
		linear(h+"attn.c_proj", w, w)
		linear(h+"mlp.c_fc", w, tinyShape.Inner)
		linear(h+"mlp.c_proj", tinyShape.Inner, w)
	}
	return model.New(tinyShape, tensors)
})

// tiny is a real transformer with random weights, small enough for thousands of steps.
func tiny(t testing.TB) subject {
	t.Helper()
	return withWeights(t, tinyModel)
}

func withWeights(t testing.TB, load func() (*model.Model, error)) subject {
	t.Helper()
	m, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return subject{shape: m.Config(), open: func(cfg Config) forwarder {
		return m.NewWorkspace(cfg.MaxBatchedTokens, cfg.Threads)
	}}
}

var bundledModel = sync.OnceValues(func() (*model.Model, error) {
	folder := weights.Bundled()
	text, err := fs.ReadFile(folder.FS(), "config.json")
	if err != nil {
		return nil, err
	}
	cfg, err := model.ParseConfig(text)
	if err != nil {
		return nil, err
	}
	tensors, err := folder.Tensors()
	if err != nil {
		return nil, err
	}
	return model.New(cfg, tensors)
})

// bundled is the model that the server has built in: real weights, and matrices wide
// enough for every path of the kernels.
func bundled(t testing.TB) subject {
	t.Helper()
	return withWeights(t, bundledModel)
}
