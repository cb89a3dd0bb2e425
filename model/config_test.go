package model

import (
	"errors"
	"strings"
	"testing"

	"gorgonia.org/tensor"
)

const gpt2Config = `{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_ctx": 1024,
	"vocab_size": 50257, "layer_norm_epsilon": 1e-05, "activation_function": "gelu_new", "eos_token_id": 50256, "n_inner": null}`

func TestParseConfig(t *testing.T) {
	gpt2 := Config{Layers: 12, Heads: 12, Width: 768, Context: 1024, Inner: 3072, Vocab: 50257,
		Epsilon: 1e-5, ScaleAttn: true, TiedHead: true, EOS: 50256}
	small := Config{Layers: 1, Heads: 2, Width: 4, Context: 8, Inner: 16, Vocab: 5, Epsilon: 1e-5, ScaleAttn: true, TiedHead: true, EOS: -1}
	with := func(f func(*Config)) Config { c := small; f(&c); return c }
	const dims = `"n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 5`
	for _, c := range []struct {
		json string
		want Config
	}{
		{gpt2Config, gpt2},
		{`{` + dims + `}`, small},
		{`{` + dims + `, "eos_token_id": null}`, small},
		{`{` + dims + `, "eos_token_id": [3, 4]}`, with(func(c *Config) { c.EOS = 3 })},
		{strings.Replace(`{`+dims+`}`, "n_positions", "n_ctx", 1), small},
		{`{` + dims + `, "n_inner": 7, "activation_function": "gelu", "layer_norm_epsilon": 0.001}`,
			with(func(c *Config) { c.Inner, c.Activation, c.Epsilon = 7, GELU, 1e-3 })},
		{`{` + dims + `, "scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true, "tie_word_embeddings": false}`,
			with(func(c *Config) { c.ScaleAttn, c.ScaleByInverseLayer, c.TiedHead = false, true, false })},
	} {
		got, err := ParseConfig([]byte(c.json))
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", c.json, got, err, c.want)
		}
	}
	for _, c := range []struct{ json, want string }{
		{`{`, "unexpected end"},
		{`{"n_embd": "wide"}`, "n_embd"},
		{`{"n_layer": 1}`, "n_head is missing"},
		{`{` + dims + `, "model_type": "llama"}`, `model_type is "llama"`},
		{`{` + dims + `, "activation_function": "relu"}`, `activation_function is "relu"`},
		{`{` + dims + `, "eos_token_id": 5}`, "eos_token_id is 5, vocab_size 5"},
		{`{` + dims + `, "eos_token_id": "end"}`, `eos_token_id is "end"`},
		{`{` + dims + `, "layer_norm_epsilon": 0}`, "layer_norm_epsilon is 0"},
		{`{` + dims + `, "n_inner": -1}`, "n_inner is -1"},
		{`{` + dims + `, "add_cross_attention": true}`, "add_cross_attention"},
		{strings.Replace(`{`+dims+`}`, `"n_head": 2`, `"n_head": 3`, 1), "n_embd 4 is not a multiple of n_head 3"},
		{strings.Replace(`{`+dims+`}`, `"n_layer": 1`, `"n_layer": 99999999999`, 1), "n_layer is 99999999999"},
	} {
		_, err := ParseConfig([]byte(c.json))
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.json, err, c.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(gpt2Config))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err == nil && (c.Validate() != nil || c.HeadDim()*c.Heads != c.Width) {
			t.Errorf("accepted %+v", c)
		}
	})
}

func TestNewNamesTheTensor(t *testing.T) {
	cfg := variants[1]
	for _, c := range []struct {
		break_ func(map[string]*tensor.Dense)
		want   string
	}{
		{func(m map[string]*tensor.Dense) { delete(m, "h.2.mlp.c_fc.bias") }, "h.2.mlp.c_fc.bias is missing, want shape [70]"},
		{func(m map[string]*tensor.Dense) { m["h.9.ln_1.bias"] = m["h.0.ln_1.bias"] }, "h.9.ln_1.bias has no place"},
		{func(m map[string]*tensor.Dense) { delete(m, "lm_head.weight") }, "lm_head.weight is missing, want shape [50 51]"},
		{func(m map[string]*tensor.Dense) {
			m["wpe.weight"] = tensor.New(tensor.WithShape(3, 51), tensor.Of(tensor.Float32))
		},
			"wpe.weight has shape [3 51], want [300 51]"},
		{func(m map[string]*tensor.Dense) {
			m["ln_f.bias"] = tensor.New(tensor.WithShape(51), tensor.Of(tensor.Float64))
		},
			"ln_f.bias has type float64, want float32"},
		{func(m map[string]*tensor.Dense) {
			if err := m["h.0.attn.c_attn.weight"].T(); err != nil {
				panic(err)
			}
		}, "h.0.attn.c_attn.weight has shape [153 51], want [51 153]"},
		{func(m map[string]*tensor.Dense) {
			square := m["h.0.attn.c_proj.weight"]
			if err := square.T(); err != nil {
				panic(err)
			}
		}, "h.0.attn.c_proj.weight is a view"},
	} {
		tensors := randomTensors(cfg, newRand(t))
		c.break_(tensors)
		_, err := New(cfg, tensors)
		if !errors.Is(err, ErrTensor) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestForwardPanicsOnCallerBugs(t *testing.T) {
	cfg := variants[0]
	w := randomModel(t, F32, cfg, newRand(t)).NewWorkspace(4, 1)
	defer w.Close()
	kv := NewContiguousKV(cfg, 16, cfg.Context)
	for _, c := range []struct {
		chunk Chunk
		want  string
	}{
		{Chunk{KV: kv}, "0 tokens"},
		{Chunk{Tokens: make([]int32, 5), KV: kv}, "batch of 5 tokens, workspace is for 4"},
		{Chunk{Tokens: make([]int32, 2), Start: 299, KV: kv}, "2 tokens from position 299, 0 with logits; context is 300"},
		{Chunk{Tokens: []int32{1, 97}, KV: kv}, "token 1 is 97, vocabulary is 97"},
		{Chunk{Tokens: []int32{-1}, KV: kv}, "token 0 is -1"},
		{Chunk{Tokens: []int32{1}, Logits: 2, KV: kv}, "2 with logits"},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want %q", got, c.want)
				}
			}()
			w.Forward([]Chunk{c.chunk})
		}()
	}
	if got := w.Forward(nil); len(got) != 0 {
		t.Errorf("an empty batch has %d logits", len(got))
	}
}
