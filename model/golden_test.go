package model

import (
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"slices"
	"testing"

	"tailor/weights"
)

// golden is what PyTorch computed in fp32 with the bundled weights.
type golden struct {
	Text  string  `json:"text"`
	IDs   []int32 `json:"ids"`
	First struct {
		IDs    []int32   `json:"top5_ids"`
		Logits []float64 `json:"top5_logits"`
		Mean   float64   `json:"mean"`
		Logit0 float64   `json:"logit_0"`
		Last   float64   `json:"logit_4095"`
	} `json:"first"`
	Greedy []int32 `json:"greedy_ids"`
	Margin float64 `json:"smallest_top2_margin"`
}

func bundled(t testing.TB) *Model {
	t.Helper()
	folder := weights.Bundled()
	raw, err := fs.ReadFile(folder.FS(), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := folder.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGolden compares the bundled model with PyTorch: logits after the prompt, and the
// greedy continuation where no two tokens are so close that rounding may choose.
func TestGolden(t *testing.T) {
	m := bundled(t)
	raw, err := os.ReadFile("../weights/bundled/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	w := m.NewWorkspace(256, 2)
	defer w.Close()
	texts := 0
	for i, g := range all {
		kv := NewContiguousKV(m.config, 16, len(g.IDs)+len(g.Greedy))
		logits := w.Forward([]Chunk{{Tokens: g.IDs, KV: kv, Logits: 1}})
		near := func(what string, got, want float64) {
			if !(math.Abs(got-want) < 1e-4) {
				t.Errorf("%d: %s is %.5f, want %.5f", i, what, got, want)
			}
		}
		var sum float64
		for _, l := range logits {
			sum += float64(l)
		}
		near("mean", sum/float64(len(logits)), g.First.Mean)
		near("logit 0", float64(logits[0]), g.First.Logit0)
		near("logit 4095", float64(logits[4095]), g.First.Last)
		for k, id := range g.First.IDs {
			near("top logit", float64(logits[id]), g.First.Logits[k])
		}
		if g.Margin < 0.01 {
			continue
		}
		texts++
		var greedy []int32
		for p := len(g.IDs); ; p++ {
			id := int32(0)
			for j, l := range logits {
				if l > logits[id] {
					id = int32(j)
				}
			}
			if greedy = append(greedy, id); len(greedy) == len(g.Greedy) {
				break
			}
			logits = w.Forward([]Chunk{{Tokens: greedy[len(greedy)-1:], Start: p, KV: kv, Logits: 1}})
		}
		if !slices.Equal(greedy, g.Greedy) {
			t.Errorf("%d: greedy %v, want %v", i, greedy, g.Greedy)
		}
	}
	if texts == 0 {
		t.Error("no greedy text was compared")
	}
}
