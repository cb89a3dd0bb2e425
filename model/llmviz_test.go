package model

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorgonia.org/tensor"
)

// llmviz is a trained model of GPT-2's architecture with the intermediate results that
// PyTorch computed: 3 layers, 3 heads, width 48, context 11, vocabulary 3, batch 3.
const llmviz = "../../shared/data/models/llmviz-nano-gpt-sort"

type llmvizTensor struct {
	Shape []int  `json:"shape"`
	Data  string `json:"data"`
}

func readLLMViz(t *testing.T, file string) map[string]llmvizTensor {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(llmviz, file))
	if err != nil {
		t.Skipf("needs the llm-viz model: %v", err)
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "config")
	out := map[string]llmvizTensor{}
	for name, r := range all {
		var v llmvizTensor
		if err := json.Unmarshal(r, &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = v
	}
	return out
}

func (v llmvizTensor) floats(t *testing.T) []float32 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(v.Data)
	if err != nil {
		t.Fatal(err)
	}
	f := make([]float32, len(raw)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return f
}

func llmvizModel(t *testing.T) *Model {
	t.Helper()
	tensors := map[string]*tensor.Dense{}
	for name, v := range readLLMViz(t, "gpt-nano-sort-model.json") {
		name = strings.TrimPrefix(name, "transformer.")
		values, shape := v.floats(t), v.Shape
		if strings.Contains(name, ".c_") && strings.HasSuffix(name, ".weight") {
			// minGPT has Linear, [out][in]; GPT-2 ships Conv1D, [in][out].
			out, in := shape[0], shape[1]
			turned := make([]float32, len(values))
			for o := range out {
				for i := range in {
					turned[i*out+o] = values[o*in+i]
				}
			}
			values, shape = turned, []int{in, out}
		}
		tensors[name] = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
	}
	m, err := New(Config{
		Layers: 3, Heads: 3, Width: 48, Context: 11, Inner: 192, Vocab: 3,
		Activation: GELUNew, Epsilon: 1e-5, ScaleAttn: true, EOS: -1,
	}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLLMVizIntermediates compares every result inside block 0, every block's output,
// the final norm and the logits with PyTorch's.
func TestLLMVizIntermediates(t *testing.T) {
	m := llmvizModel(t)
	want := map[string][]float32{}
	for name, v := range readLLMViz(t, "gpt-nano-sort-t0-partials.json") {
		want[name] = v.floats(t)
	}
	const batch, length = 3, 11
	var chunks []Chunk
	for b := range batch {
		c := Chunk{Logits: length, KV: NewContiguousKV(m.config, 4, length)}
		for _, id := range want["idx"][b*length:][:length] {
			c.Tokens = append(c.Tokens, int32(id))
		}
		chunks = append(chunks, c)
	}
	w := m.NewWorkspace(batch*length, 2)
	defer w.Close()
	seen := 0
	compare := func(name string, got, want []float32) {
		seen++
		if len(got) != len(want) {
			t.Fatalf("%s has %d values, want %d", name, len(got), len(want))
		}
		for i := range got {
			if d := math.Abs(float64(got[i] - want[i])); !(d <= 1e-5*max(1, math.Abs(float64(want[i])))) {
				t.Fatalf("%s[%d] = %g, want %g", name, i, got[i], want[i])
			}
		}
	}
	w.observe = func(layer int, name string, values []float32) {
		switch {
		case name == "block":
			compare(name, values, want["block2"])
		case name == "ln_f":
			compare(name, values, want[name])
		case layer == 0:
			compare(name, values, want[name])
		case name == "x":
			compare(name, values, want[[]string{"", "block0", "block1"}[layer]])
		}
	}
	logits := w.Forward(chunks)
	compare("lm_head", logits, want["lm_head"])
	probs := append([]float32(nil), logits...)
	for i := 0; i < len(probs); i += 3 {
		var sum float64
		for j := range 3 {
			sum += math.Exp(float64(probs[i+j]))
		}
		for j := range 3 {
			probs[i+j] = float32(math.Exp(float64(probs[i+j])) / sum)
		}
	}
	compare("probs", probs, want["probs"])

	// Keys and values from their blocks, in PyTorch's order [batch][head][token][dim].
	const heads, dim = 3, 16
	keys, values := make([]float32, 0, len(want["k"])), make([]float32, 0, len(want["v"]))
	for _, c := range chunks {
		for h := range heads {
			for p := range length {
				k, v := c.KV.Keys(0, p/4)[h*dim*4:], c.KV.Values(0, p/4)[h*4*dim:]
				for d := range dim {
					keys = append(keys, k[d*4+p%4])
					values = append(values, v[p%4*dim+d])
				}
			}
		}
	}
	compare("k", keys, want["k"])
	compare("v", values, want["v"])
	if seen != 17 {
		t.Errorf("%d results were compared, want 17", seen)
	}
}
