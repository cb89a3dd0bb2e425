package graph

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"tailor/model"
)

var (
	// ErrTensor reports a checkpoint tensor that is missing or has another shape or
	// element type than the configuration asks for.
	ErrTensor = errors.New("graph: checkpoint does not fit the configuration")
	// ErrTokens reports a sequence the model cannot run: empty, longer than the
	// context, or with a token id outside the vocabulary.
	ErrTokens = errors.New("graph: sequence cannot be run")
)

// Graph runs one checkpoint. It holds its own copy of the weights and never writes to
// them; gorgonia attaches state to them while it runs, so a Graph serves one goroutine
// at a time.
type Graph struct {
	cfg    model.Config
	params *parameters
}

// New prepares the checkpoint's tensors, named as Hugging Face names them without the
// prefix "transformer.". A wrong or missing tensor is ErrTensor.
func New(cfg model.Config, tensors map[string]*tensor.Dense) (*Graph, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, err := newParameters(cfg, tensors)
	if err != nil {
		return nil, err
	}
	return &Graph{cfg: cfg, params: w}, nil
}

// Logits runs the whole sequence from position 0 and returns [len(tokens)][Vocab],
// row-major. Nothing is kept between calls. A sequence that cannot be run is ErrTokens.
func (g *Graph) Logits(tokens []int32) ([]float32, error) {
	if n := len(tokens); n == 0 || n > g.cfg.Context {
		return nil, fmt.Errorf("%w: %d tokens, the context holds 1 to %d", ErrTokens, n, g.cfg.Context)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= g.cfg.Vocab {
			return nil, fmt.Errorf("%w: token %d has id %d, the vocabulary ends at %d", ErrTokens, i, id, g.cfg.Vocab-1)
		}
	}

	x, err := run(func(b *builder) *gorgonia.Node { return g.embed(b, tokens) })
	for l := 0; l < g.cfg.Layers && err == nil; l++ {
		x, err = run(func(b *builder) *gorgonia.Node { return g.layer(b, l, x) })
	}
	if err == nil {
		x, err = run(func(b *builder) *gorgonia.Node { return g.head(b, x) })
	}
	if err != nil {
		return nil, err
	}
	return x.Float32s(), nil
}

// embed adds the token and the position embeddings: [T,W].
func (g *Graph) embed(b *builder, tokens []int32) *gorgonia.Node {
	ids, positions := make([]int, len(tokens)), make([]int, len(tokens))
	for i, id := range tokens {
		ids[i], positions[i] = int(id), i
	}
	return b.add(
		b.rows(b.input("wte", g.params.wte), b.indices("tokens", ids)),
		b.rows(b.input("wpe", g.params.wpe), b.indices("positions", positions)))
}

// layer is one transformer block over in, [T,W] to [T,W].
func (g *Graph) layer(b *builder, l int, in *tensor.Dense) *gorgonia.Node {
	w := &g.params.layers[l]
	f := form{b, g.cfg}
	x := b.input("x", in)

	a := f.norm("ln_1", x, w.ln1)
	for h, head := range w.heads {
		name := func(s string) string { return fmt.Sprintf("%s.%d", s, h) }
		q := f.affine(name("q"), a, head.q, head.qBias) // [T,D]
		k := f.affine(name("k"), a, head.k, head.kBias) // [T,D]
		v := f.affine(name("v"), a, head.v, head.vBias) // [T,D]
		p := b.apply(causalSoftmax{scale: g.scale(l)}, b.mul(q, b.transpose(k)))
		x = b.add(x, b.mul(b.mul(p, v), b.input(name("out"), head.out)))
	}
	x = f.eachRow(gorgonia.BroadcastAdd, x, b.input("out.bias", w.outBias))

	m := f.norm("ln_2", x, w.ln2)
	m = f.activation(f.affine("fc", m, w.fc, w.fcBias)) // [T,Inner]
	return b.add(x, f.affine("proj", m, w.proj, w.projBias))
}

// head is the final layer norm and the projection onto the vocabulary: [T,V].
func (g *Graph) head(b *builder, in *tensor.Dense) *gorgonia.Node {
	f := form{b, g.cfg}
	x := f.norm("ln_f", b.input("x", in), g.params.lnF)
	return b.mul(x, b.input("head", g.params.head))
}

// scale is the factor on layer l's attention scores.
func (g *Graph) scale(l int) float64 {
	s := 1.0
	if g.cfg.ScaleAttn {
		s /= math.Sqrt(float64(g.cfg.HeadDim()))
	}
	if g.cfg.ScaleByInverseLayer {
		s /= float64(l + 1)
	}
	return s
}
