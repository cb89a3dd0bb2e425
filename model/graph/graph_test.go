package graph

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"tailor/model"
	"tailor/weights"
)

func bundled(t testing.TB) (model.Config, map[string]*tensor.Dense) {
	t.Helper()
	folder := weights.Bundled()
	raw, err := fs.ReadFile(folder.FS(), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := model.ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := folder.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	return cfg, tensors
}

// TestBundledGoldens holds the last position's logits against PyTorch's, which
// golden.json gives with five digits after the point (the mean with four).
func TestBundledGoldens(t *testing.T) {
	const tolerance = 1e-4
	cfg, tensors := bundled(t)
	g, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../weights/bundled/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens []struct {
		Text  string
		IDs   []int32
		First struct {
			TopIDs    []int32   `json:"top5_ids"`
			TopLogits []float64 `json:"top5_logits"`
			Mean      float64
			Logit0    float64 `json:"logit_0"`
			Logit4095 float64 `json:"logit_4095"`
		}
	}
	if err := json.Unmarshal(raw, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) != 10 {
		t.Fatalf("%d goldens, want 10", len(goldens))
	}
	worst := 0.0
	for _, c := range goldens {
		if testing.Short() && len(c.IDs) > 100 {
			continue
		}
		all, err := g.Logits(c.IDs)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != len(c.IDs)*cfg.Vocab {
			t.Fatalf("%q: %d logits for %d tokens", c.Text, len(all), len(c.IDs))
		}
		logits := all[len(all)-cfg.Vocab:]
		check := func(what string, got float32, want float64) {
			d := math.Abs(float64(got) - want)
			if worst = max(worst, d); !(d < tolerance) {
				t.Errorf("%q: %s is %g, want %g", c.Text, what, got, want)
			}
		}
		for i, id := range c.First.TopIDs {
			check("a top logit", logits[id], c.First.TopLogits[i])
		}
		check("logit 0", logits[0], c.First.Logit0)
		check("logit 4095", logits[4095], c.First.Logit4095)
		var mean float64
		for _, v := range logits {
			mean += float64(v) / float64(len(logits))
		}
		check("the mean", float32(mean), c.First.Mean)
		if top := topIDs(logits, len(c.First.TopIDs)); !slices.Equal(top, c.First.TopIDs) {
			t.Errorf("%q: the top ids are %v, want %v", c.Text, top, c.First.TopIDs)
		}
	}
	t.Logf("largest difference %.2g", worst)
}

func topIDs(logits []float32, n int) []int32 {
	ids := make([]int32, len(logits))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortFunc(ids, func(a, b int32) int {
		if logits[a] > logits[b] {
			return -1
		}
		return 1
	})
	return ids[:n]
}

// encoded is a tensor in llm-viz's JSON.
type encoded struct {
	Shape []int
	Data  []byte // base64 of little-endian float32
}

func (e encoded) floats() []float32 {
	out := make([]float32, len(e.Data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(e.Data[4*i:]))
	}
	return out
}

// llmviz reads one of the files of bbycroft/llm-viz's sorting model.
func llmviz(t *testing.T, name string) map[string]encoded {
	t.Helper()
	dir := filepath.FromSlash("../../../shared/data/models/llmviz-nano-gpt-sort")
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the data set is not here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]encoded{}
	for name, raw := range all {
		var e encoded
		if name == "config" {
			continue
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		out[name] = e
	}
	return out
}

// TestLLMViz holds a trained three-layer model against PyTorch's own numbers: what comes
// out of every block, the logits and the probabilities at all positions.
func TestLLMViz(t *testing.T) {
	const tolerance = 1e-5
	cfg := model.Config{
		Layers: 3, Heads: 3, Width: 48, Context: 11, Inner: 192, Vocab: 3,
		Activation: model.GELUNew, Epsilon: 1e-5, ScaleAttn: true, EOS: -1,
	}
	tensors := map[string]*tensor.Dense{}
	for name, e := range llmviz(t, "gpt-nano-sort-model.json") {
		name = strings.TrimPrefix(name, "transformer.")
		data, shape := e.floats(), e.Shape
		// Its layers are PyTorch's Linear, [out,in], where GPT-2's checkpoints have [in,out].
		if strings.HasPrefix(name, "h.") && len(shape) == 2 {
			m := transposed(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)))
			data, shape = m.Float32s(), m.Shape()
		}
		tensors[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
	}
	g, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}

	want := llmviz(t, "gpt-nano-sort-t0-partials.json")
	worst := 0.0
	check := func(name string, batch int, got []float32) {
		t.Helper()
		w := want[name].floats()[batch*len(got):][:len(got)]
		for i := range got {
			d := math.Abs(float64(got[i] - w[i]))
			if worst = max(worst, d); !(d < tolerance) {
				t.Fatalf("sequence %d: %s[%d] is %g, want %g", batch, name, i, got[i], w[i])
			}
		}
	}
	ids := want["idx"].floats()
	for batch := range 3 {
		tokens := make([]int32, cfg.Context)
		for i := range tokens {
			tokens[i] = int32(ids[batch*cfg.Context+i])
		}
		x, err := run(func(b *builder) *gorgonia.Node { return g.embed(b, tokens) })
		if err != nil {
			t.Fatal(err)
		}
		check("x", batch, x.Float32s())
		for l, name := range []string{"block0", "block1", "block2"} {
			if x, err = run(func(b *builder) *gorgonia.Node { return g.layer(b, l, x) }); err != nil {
				t.Fatal(err)
			}
			check(name, batch, x.Float32s())
		}
		logits, err := g.Logits(tokens)
		if err != nil {
			t.Fatal(err)
		}
		check("lm_head", batch, logits)
		check("probs", batch, softmax(logits, cfg.Vocab))
	}
	t.Logf("largest difference %.2g", worst)
}

func softmax(logits []float32, n int) []float32 {
	out := make([]float32, len(logits))
	for start := 0; start < len(logits); start += n {
		var sum float64
		for _, v := range logits[start : start+n] {
			sum += math.Exp(float64(v))
		}
		for i := start; i < start+n; i++ {
			out[i] = float32(math.Exp(float64(logits[i])) / sum)
		}
	}
	return out
}

// TestRepeats: a Graph keeps no state, neither its own nor in the caller's tensors.
func TestRepeats(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	cfg, tensors := randomModel(rnd)
	before := map[string][]float32{}
	for name, x := range tensors {
		before[name] = slices.Clone(x.Float32s())
	}
	g, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	tokens := randomTokens(rnd, cfg.Context, cfg.Vocab)
	first, err := g.Logits(tokens)
	if err != nil {
		t.Fatal(err)
	}
	kept := slices.Clone(first)
	for n := 1; n <= len(tokens); n++ {
		again, err := g.Logits(tokens[:n])
		if err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if d := math.Abs(float64(again[i] - kept[i])); !(d < 1e-4) {
				t.Fatalf("logit %d of the first %d tokens is %g, was %g in the whole sequence", i, n, again[i], kept[i])
			}
		}
		if n == len(tokens) && !slices.Equal(again, kept) {
			t.Error("the same sequence has other bits the second time")
		}
	}
	if !slices.Equal(first, kept) {
		t.Error("a later call wrote into an earlier result")
	}
	for name, x := range tensors {
		if !slices.Equal(before[name], x.Float32s()) {
			t.Errorf("%s was written to", name)
		}
	}
}

func TestBadTokens(t *testing.T) {
	cfg, tensors := randomModel(rand.New(rand.NewPCG(3, 3)))
	g, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for name, tokens := range map[string][]int32{
		"none":                      {},
		"more than the context":     make([]int32, cfg.Context+1),
		"an id below 0":             {-1},
		"an id past the vocabulary": {int32(cfg.Vocab)},
	} {
		if _, err := g.Logits(tokens); !errors.Is(err, ErrTokens) {
			t.Errorf("%s: got %v, want ErrTokens", name, err)
		}
	}
}

func TestBadTensors(t *testing.T) {
	double := tensor.New(tensor.WithShape(3), tensor.WithBacking([]float64{1, 2, 3}))
	for seed := range uint64(4) { // with and without a head of its own
		cfg, tensors := randomModel(rand.New(rand.NewPCG(seed, 2)))
		for name, good := range tensors {
			wide := tensor.New(tensor.WithShape(1, good.Size()), tensor.WithBacking(good.Float32s()))
			if wide.Shape().Eq(good.Shape()) {
				wide = filled(2, good.Size(), 0)
			}
			view, err := filled(2*good.Shape()[0], good.Size()/good.Shape()[0], 0).Slice(tensor.S(0, 2*good.Shape()[0], 2))
			if err != nil {
				t.Fatal(err)
			}
			for fault, bad := range map[string]*tensor.Dense{
				"missing": nil, "of another shape": wide, "in float64": double, "a view": view.(*tensor.Dense),
			} {
				if tensors[name] = bad; bad == nil {
					delete(tensors, name)
				}
				if name == "lm_head.weight" && bad == nil && cfg.TiedHead {
					continue // the embedding stands in
				}
				if _, err := New(cfg, tensors); !errors.Is(err, ErrTensor) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s %s: got %v, want ErrTensor with the name", name, fault, err)
				}
			}
			tensors[name] = good
		}
	}
}

func BenchmarkLogits1000(b *testing.B) {
	cfg, tensors := bundled(b)
	g, err := New(cfg, tensors)
	if err != nil {
		b.Fatal(err)
	}
	tokens := randomTokens(rand.New(rand.NewPCG(1, 1)), 1000, cfg.Vocab)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Logits(tokens); err != nil {
			b.Fatal(err)
		}
	}
}
