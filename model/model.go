package model

import (
	"math"

	"gorgonia.org/tensor"

	"tailor/model/kernel"
)

// Model is a checkpoint ready to run. It is immutable and safe for concurrent use, so
// replicas in one process share it. Its weights lie outside the Go heap and are given
// back when the collector finds the Model unreachable.
type Model struct {
	config    Config
	embedding []float32 // [Vocab][Width], nil if tied: then rows are columns of head
	positions []float32 // [Context][Width]
	layers    []layer
	norm      norm
	head      *kernel.Matrix // Width x Vocab
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
// the prefix "transformer.". Tensors it does not know are ignored. It does not keep
// tensors.
func New(cfg Config, tensors map[string]*tensor.Dense) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := readCheckpoint(cfg, tensors)
	if err != nil {
		return nil, err
	}
	mem, err := kernel.NewMemory(c.size())
	if err != nil {
		return nil, err
	}
	m := &Model{config: cfg, positions: take(mem, c.positions), norm: c.norm.take(mem)}
	w := cfg.Width
	for i, l := range c.layers {
		m.layers = append(m.layers, layer{
			norm1:    l.norm1.take(mem),
			norm2:    l.norm2.take(mem),
			qkv:      kernel.Pack(mem, l.qkv.weight, l.qkv.bias, w, 3*w),
			attnOut:  kernel.Pack(mem, l.attnOut.weight, l.attnOut.bias, w, w),
			inner:    kernel.Pack(mem, l.inner.weight, l.inner.bias, w, cfg.Inner),
			innerOut: kernel.Pack(mem, l.innerOut.weight, l.innerOut.bias, cfg.Inner, w),
			heads:    kernel.Heads{Layer: i, Heads: cfg.Heads, Dim: cfg.HeadDim(), Scale: scale(cfg, i)},
		})
	}
	m.head = kernel.PackTransposed(mem, c.head, nil, w, cfg.Vocab)
	if !c.tied {
		m.embedding = take(mem, c.embedding)
	}
	return m, nil
}

// Config is the model's architecture.
func (m *Model) Config() Config { return m.config }

// embed writes the sum of a token's and a position's embedding to dst.
func (m *Model) embed(dst []float32, token int32, position int) {
	w := m.config.Width
	if m.embedding == nil {
		m.head.Column(dst, int(token))
	} else {
		copy(dst, m.embedding[int(token)*w:][:w])
	}
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
