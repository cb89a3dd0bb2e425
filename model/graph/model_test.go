package graph

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"

	"tailor/model"
)

var prompts = flag.Int("prompts", 4, "random prompts to compare on the bundled model")

// modelLogits runs package model over the whole sequence from an empty cache.
func modelLogits(t *testing.T, m *model.Model, w *model.Workspace, tokens []int32) []float32 {
	t.Helper()
	const blockSize = 16
	kv := model.NewContiguousKV(m.Config(), blockSize, len(tokens))
	return w.Forward([]model.Chunk{{Tokens: tokens, KV: kv, Logits: len(tokens)}})
}

func newModel(t *testing.T, cfg model.Config, tensors map[string]*tensor.Dense) *model.Model {
	t.Helper()
	m, err := model.New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestModelOnBundled compares every logit of every position over random prompts:
//
//	go test ./model/graph -run TestModelOnBundled -prompts 200
func TestModelOnBundled(t *testing.T) {
	const tolerance = 1e-4
	const seed = 20
	longest := 1000
	if testing.Short() {
		longest = 64
	}
	cfg, tensors := bundled(t)
	g, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(t, cfg, tensors)
	w := m.NewWorkspace(longest, 2)
	defer w.Close()

	rnd := rand.New(rand.NewPCG(seed, 0))
	worst, total := 0.0, 0
	for i := range *prompts {
		n := 1 + rnd.IntN(longest)
		if i == 0 {
			n = longest
		}
		tokens := randomTokens(rnd, n, cfg.Vocab)
		want, err := g.Logits(tokens)
		if err != nil {
			t.Fatal(err)
		}
		got := modelLogits(t, m, w, tokens)
		if len(got) != len(want) {
			t.Fatalf("%d logits, want %d", len(got), len(want))
		}
		for j := range got {
			if d := math.Abs(float64(got[j] - want[j])); !(d < tolerance) {
				t.Fatalf("seed %d, prompt %d of %d tokens, position %d, id %d: model %g, graph %g",
					seed, i, n, j/cfg.Vocab, j%cfg.Vocab, got[j], want[j])
			} else if d > worst {
				worst = d
			}
		}
		total += n
	}
	t.Logf("%d prompts, %d tokens: largest difference %.2g", *prompts, total, worst)
}

// TestModelOnRandomModels meets every variant of the configuration; see
// TestRandomModelsAgainstTwin for the measure.
func TestModelOnRandomModels(t *testing.T) {
	draws := 200
	if testing.Short() {
		draws = 40
	}
	worst := 0.0
	for seed := range uint64(draws) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		cfg, tensors := randomModel(rnd)
		g, err := New(cfg, tensors)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		tokens := randomTokens(rnd, 1+rnd.IntN(cfg.Context), cfg.Vocab)
		want, err := g.Logits(tokens)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		m := newModel(t, cfg, tensors)
		w := m.NewWorkspace(len(tokens), 1)
		got := modelLogits(t, m, w, tokens)
		for i := range want {
			d := math.Abs(float64(got[i]-want[i])) / (1 + math.Abs(float64(want[i])))
			if worst = max(worst, d); !(d < 1e-4) {
				t.Fatalf("seed %d, %+v, %d tokens: logit %d is %g, want %g", seed, cfg, len(tokens), i, got[i], want[i])
			}
		}
		w.Close()
	}
	t.Logf("largest relative difference %.2g", worst)
}
