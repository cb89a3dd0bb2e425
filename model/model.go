package model

import (
	"math"
	"slices"

	"gorgonia.org/tensor"

	"tailor/model/kernel"
)

// Model is a checkpoint ready to run. It is immutable and safe for concurrent use, so
// replicas in one process share it. Its weights lie outside the Go heap and are given
// back when the collector finds the Model unreachable.
type Model struct {
	config    Config
	dtype     DType
	embedding *kernel.Matrix // Width x Vocab, a token's is a column; head itself if tied
	positions []float32      // [Context][Width]
	layers    []layer
	norm      norm
	head      *kernel.Matrix // Width x Vocab
	memory    *kernel.Memory // where all of them lie
}

// layer is one transformer block.
type layer struct {
	norm1, norm2 norm
	qkv          *kernel.Matrix // Width x 3*Width: queries, keys, values
	attnOut      *kernel.Matrix // Width x Width
	inner        *kernel.Matrix // Width x Inner
	innerOut     *kernel.Matrix // Inner x Width
	heads        kernel.Heads
}

type norm struct{ gain, bias []float32 }

// New packs a checkpoint's float32 tensors, named as Hugging Face ships GPT-2, without
// the prefix "transformer.", each in the fewest bytes that hold its values exactly.
// Tensors it does not know are ignored. It does not keep tensors.
func New(cfg Config, tensors map[string]*tensor.Dense) (*Model, error) {
	return NewAs(Auto, cfg, tensors)
}

// NewAs is New with weight matrices kept in a type of the caller's choice.
func NewAs(dtype DType, cfg Config, tensors map[string]*tensor.Dense) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := readCheckpoint(cfg, tensors)
	if err != nil {
		return nil, err
	}
	c.choose(dtype)
	mem, err := kernel.NewMemory(c.size())
	if err != nil {
		return nil, err
	}
	m := &Model{config: cfg, dtype: dtype, memory: mem, positions: take(mem, c.positions), norm: c.norm.take(mem)}
	for i, l := range c.layers {
		m.layers = append(m.layers, layer{
			norm1:    l.norm1.take(mem),
			norm2:    l.norm2.take(mem),
			qkv:      l.qkv.pack(mem),
			attnOut:  l.attnOut.pack(mem),
			inner:    l.inner.pack(mem),
			innerOut: l.innerOut.pack(mem),
			heads:    kernel.Heads{Layer: i, Heads: cfg.Heads, Dim: cfg.HeadDim(), Scale: scale(cfg, i)},
		})
	}
	m.head = c.head.packTransposed(mem)
	if m.embedding = m.head; !c.tied {
		m.embedding = c.embedding.packTransposed(mem)
	}
	return m, nil
}

// Config is the model's architecture.
func (m *Model) Config() Config { return m.config }

// DType is the type the model was loaded as.
func (m *Model) DType() DType { return m.dtype }

// WeightBytes is what a forward pass reads of the weight matrices, whatever the number of
// tokens: every weight and bias once.
func (m *Model) WeightBytes() int {
	n := m.head.Bytes()
	for _, l := range m.layers {
		n += l.qkv.Bytes() + l.attnOut.Bytes() + l.inner.Bytes() + l.innerOut.Bytes()
	}
	return n
}

// Bytes is the memory that the whole model takes, norms, positions and padding included.
func (m *Model) Bytes() int { return m.memory.Bytes() }

// Formats lists how the weight matrices are kept, without repetition.
func (m *Model) Formats() []string {
	var names []string
	add := func(x *kernel.Matrix) {
		if name := x.Format().String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, l := range m.layers {
		add(l.qkv)
		add(l.attnOut)
		add(l.inner)
		add(l.innerOut)
	}
	add(m.head)
	add(m.embedding)
	return names
}

// embed writes the sum of a token's and a position's embedding to dst.
func (m *Model) embed(dst []float32, token int32, position int) {
	w := m.config.Width
	m.embedding.Column(dst, int(token))
	for i, p := range m.positions[position*w:][:w] {
		dst[i] += p
	}
}

// scale is the factor of a layer's attention scores.
func scale(cfg Config, layer int) float32 {
	f := 1.0
	if cfg.ScaleAttn {
		f /= math.Sqrt(float64(cfg.HeadDim()))
	}
	if cfg.ScaleByInverseLayer {
		f /= float64(layer + 1)
	}
	return float32(f)
}

// take copies values into packed memory, beside the matrices.
func take(mem *kernel.Memory, values []float32) []float32 {
	s := mem.Take(len(values))
	copy(s, values)
	return s
}

func (n norm) take(mem *kernel.Memory) norm {
	return norm{gain: take(mem, n.gain), bias: take(mem, n.bias)}
}
