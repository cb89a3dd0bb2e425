package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Errors of loading a model; the text says which field or tensor, and what was wanted.
var (
	ErrConfig = errors.New("model config")
	ErrTensor = errors.New("model tensor")
	ErrDType  = errors.New("weight type")
)

// Activation is the nonlinearity of the feed-forward layers.
type Activation int

// The activations that GPT-2 checkpoints use.
const (
	GELUNew Activation = iota // the tanh formula, Hugging Face's "gelu_new"
	GELU                      // the error function, "gelu"
)

func (a Activation) String() string {
	switch a {
	case GELUNew:
		return "gelu_new"
	case GELU:
		return "gelu"
	}
	return "Activation(" + strconv.Itoa(int(a)) + ")"
}

// Config is the architecture of a GPT-2-class model.
type Config struct {
	Layers  int // n_layer
	Heads   int // n_head
	Width   int // n_embd, the length of a residual row
	Context int // n_positions: positions are learned, so this is a hard limit
	Inner   int // n_inner, the width of the feed-forward layer
	Vocab   int // vocab_size

	Activation Activation
	Epsilon    float32 // layer_norm_epsilon

	ScaleAttn           bool // scale_attn_weights: scores are divided by sqrt(HeadDim)
	ScaleByInverseLayer bool // scale_attn_by_inverse_layer_idx: and by layer+1
	TiedHead            bool // tie_word_embeddings: the head is the embedding

	EOS int32 // eos_token_id; -1: none
}

// HeadDim is the length of one head's query, key or value.
func (c Config) HeadDim() int { return c.Width / c.Heads }

// Validate says what, if anything, makes the configuration unusable.
func (c Config) Validate() error {
	// No dimension of a real checkpoint comes near the limit; it keeps products of two
	// dimensions, and three times that, far from overflow.
	const limit = 1 << 24
	for _, f := range []struct {
		name  string
		value int
	}{
		{"n_layer", c.Layers}, {"n_head", c.Heads}, {"n_embd", c.Width},
		{"n_positions", c.Context}, {"n_inner", c.Inner}, {"vocab_size", c.Vocab},
	} {
		if f.value < 1 || f.value > limit {
			return fmt.Errorf("%w: %s is %d, want 1 to %d", ErrConfig, f.name, f.value, limit)
		}
	}
	switch {
	case c.Width%c.Heads != 0:
		return fmt.Errorf("%w: n_embd %d is not a multiple of n_head %d", ErrConfig, c.Width, c.Heads)
	case c.Activation != GELUNew && c.Activation != GELU:
		return fmt.Errorf("%w: activation_function is %v", ErrConfig, c.Activation)
	case !(c.Epsilon > 0 && c.Epsilon < 1):
		return fmt.Errorf("%w: layer_norm_epsilon is %g, want more than 0 and less than 1", ErrConfig, c.Epsilon)
	case c.EOS < -1 || int(c.EOS) >= c.Vocab:
		return fmt.Errorf("%w: eos_token_id is %d, vocab_size %d", ErrConfig, c.EOS, c.Vocab)
	}
	return nil
}

// configFile is the part of Hugging Face's config.json that matters here. Fields that
// may be absent are pointers.
type configFile struct {
	ModelType   *string         `json:"model_type"`
	Layers      *int            `json:"n_layer"`
	Heads       *int            `json:"n_head"`
	Width       *int            `json:"n_embd"`
	Positions   *int            `json:"n_positions"`
	OldContext  *int            `json:"n_ctx"`
	Inner       *int            `json:"n_inner"`
	Vocab       *int            `json:"vocab_size"`
	Activation  *string         `json:"activation_function"`
	Epsilon     *float32        `json:"layer_norm_epsilon"`
	ScaleAttn   *bool           `json:"scale_attn_weights"`
	ScaleLayer  *bool           `json:"scale_attn_by_inverse_layer_idx"`
	TieHead     *bool           `json:"tie_word_embeddings"`
	CrossAttend *bool           `json:"add_cross_attention"`
	EOS         json.RawMessage `json:"eos_token_id"`
}

// ParseConfig reads a config.json as Hugging Face writes it. Dimensions must be there;
// everything else has GPT-2's defaults, except that without eos_token_id there is none.
func ParseConfig(configJSON []byte) (Config, error) {
	var f configFile
	if err := json.Unmarshal(configJSON, &f); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if t := or(f.ModelType, "gpt2"); t != "gpt2" {
		return Config{}, fmt.Errorf("%w: model_type is %q, only gpt2 is supported", ErrConfig, t)
	}
	if or(f.CrossAttend, false) {
		return Config{}, fmt.Errorf("%w: add_cross_attention is true, only decoders are supported", ErrConfig)
	}
	if f.Positions == nil {
		f.Positions = f.OldContext
	}
	for _, d := range []struct {
		name  string
		value *int
	}{
		{"n_layer", f.Layers}, {"n_head", f.Heads}, {"n_embd", f.Width},
		{"n_positions", f.Positions}, {"vocab_size", f.Vocab},
	} {
		if d.value == nil {
			return Config{}, fmt.Errorf("%w: %s is missing", ErrConfig, d.name)
		}
	}
	c := Config{
		Layers:              *f.Layers,
		Heads:               *f.Heads,
		Width:               *f.Width,
		Context:             *f.Positions,
		Inner:               or(f.Inner, 4**f.Width),
		Vocab:               *f.Vocab,
		Epsilon:             or(f.Epsilon, 1e-5),
		ScaleAttn:           or(f.ScaleAttn, true),
		ScaleByInverseLayer: or(f.ScaleLayer, false),
		TiedHead:            or(f.TieHead, true),
	}
	var err error
	if c.Activation, err = parseActivation(or(f.Activation, "gelu_new")); err != nil {
		return Config{}, err
	}
	if c.EOS, err = parseEOS(f.EOS); err != nil {
		return Config{}, err
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func parseActivation(name string) (Activation, error) {
	switch name {
	case "gelu_new", "gelu_pytorch_tanh", "gelu_fast":
		// One function in three ways of writing it.
		return GELUNew, nil
	case "gelu":
		return GELU, nil
	}
	return 0, fmt.Errorf("%w: activation_function is %q, want gelu_new or gelu", ErrConfig, name)
}

// parseEOS reads an id, null, or a list of ids, of which the first counts.
func parseEOS(raw json.RawMessage) (int32, error) {
	if raw == nil {
		return -1, nil
	}
	var one *int32
	if err := json.Unmarshal(raw, &one); err == nil {
		return or(one, -1), nil
	}
	var list []int32
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return 0, fmt.Errorf("%w: eos_token_id is %s, want a token id", ErrConfig, raw)
	}
	return list[0], nil
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
