package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorgonia.org/tensor"

	"tailor/model/kernel"
)

// checkpoint is the tensors of a model by their part in it, in the layouts they came
// in: Conv1D weights are [in][out], embeddings [row][Width].
type checkpoint struct {
	config          Config
	embedding, head linear
	positions       []float32
	tied            bool
	layers          []checkpointLayer
	norm            norm
}

type checkpointLayer struct {
	norm1, norm2                  norm
	qkv, attnOut, inner, innerOut linear
}

// linear is a matrix of in rows and out columns; the embedding and the head have no bias.
type linear struct {
	weight, bias []float32
	in, out      int
	format       kernel.Format
}

// readCheckpoint finds and checks every tensor. The first error names the tensor, the
// shape wanted and the shape given.
func readCheckpoint(cfg Config, tensors map[string]*tensor.Dense) (*checkpoint, error) {
	r := reader{tensors: tensors}
	w := cfg.Width
	c := &checkpoint{
		config:    cfg,
		embedding: linear{weight: r.read("wte.weight", cfg.Vocab, w), in: w, out: cfg.Vocab},
		positions: r.read("wpe.weight", cfg.Context, w),
		norm:      r.norm("ln_f", w),
		tied:      cfg.TiedHead,
	}
	for i := range cfg.Layers {
		h := fmt.Sprintf("h.%d.", i)
		c.layers = append(c.layers, checkpointLayer{
			norm1:    r.norm(h+"ln_1", w),
			norm2:    r.norm(h+"ln_2", w),
			qkv:      r.linear(h+"attn.c_attn", w, 3*w),
			attnOut:  r.linear(h+"attn.c_proj", w, w),
			inner:    r.linear(h+"mlp.c_fc", w, cfg.Inner),
			innerOut: r.linear(h+"mlp.c_proj", cfg.Inner, w),
		})
		if r.err != nil {
			break // a config with a million layers would say no more
		}
	}
	// A head that is given counts even where the config says tied; where it is the
	// embedding again, as files tend to have it, one copy serves both.
	c.head = c.embedding
	if _, given := tensors["lm_head.weight"]; given || !cfg.TiedHead {
		c.head.weight = r.read("lm_head.weight", cfg.Vocab, w)
		c.tied = slices.Equal(c.head.weight, c.embedding.weight)
	}
	if r.err == nil {
		r.err = r.unread()
	}
	return c, r.err
}

// choose settles how each matrix is kept.
func (c *checkpoint) choose(dtype DType) {
	for _, l := range c.linears() {
		l.format = dtype.format(l.weight)
	}
}

// linears are the matrices to pack.
func (c *checkpoint) linears() []*linear {
	all := []*linear{&c.head}
	if !c.tied {
		all = append(all, &c.embedding)
	}
	for i := range c.layers {
		l := &c.layers[i]
		all = append(all, &l.qkv, &l.attnOut, &l.inner, &l.innerOut)
	}
	return all
}

// size is the room the packed model takes, in floats.
func (c *checkpoint) size() int {
	n := kernel.RoundTake(len(c.positions)) + 2*kernel.RoundTake(c.config.Width)*(1+2*c.config.Layers)
	for _, l := range c.linears() {
		n += kernel.MatrixSize(l.format, l.in, l.out)
	}
	return n
}

func (l *linear) pack(mem *kernel.Memory) *kernel.Matrix {
	return kernel.Pack(mem, l.format, l.weight, l.bias, l.in, l.out)
}

func (l *linear) packTransposed(mem *kernel.Memory) *kernel.Matrix {
	return kernel.PackTransposed(mem, l.format, l.weight, l.bias, l.in, l.out)
}

// reader reads tensors until the first error, which it keeps.
type reader struct {
	tensors map[string]*tensor.Dense
	names   []string // asked for
	err     error
}

// unread finds a tensor that no part of the network asked for: with a layer more than the
// configuration says, the model would run, and be another one. Causal masks, which some
// checkpoints carry along, are no weights.
func (r *reader) unread() error {
	for _, name := range slices.Sorted(maps.Keys(r.tensors)) {
		mask := strings.HasSuffix(name, ".attn.bias") || strings.HasSuffix(name, ".attn.masked_bias")
		if !mask && !slices.Contains(r.names, name) {
			return fmt.Errorf("%w %s has no place in the network that the configuration describes", ErrTensor, name)
		}
	}
	return nil
}

func (r *reader) norm(name string, width int) norm {
	return norm{gain: r.read(name+".weight", width), bias: r.read(name+".bias", width)}
}

func (r *reader) linear(name string, in, out int) linear {
	return linear{weight: r.read(name+".weight", in, out), bias: r.read(name+".bias", out), in: in, out: out}
}

func (r *reader) read(name string, shape ...int) []float32 {
	if r.err != nil {
		return nil
	}
	t := r.tensors[name]
	r.names = append(r.names, name)
	switch {
	case t == nil:
		r.err = fmt.Errorf("%w %s is missing, want shape %v", ErrTensor, name, shape)
	case t.Dtype() != tensor.Float32:
		r.err = fmt.Errorf("%w %s has type %v, want float32", ErrTensor, name, t.Dtype())
	case !t.Shape().Eq(tensor.Shape(shape)):
		r.err = fmt.Errorf("%w %s has shape %v, want %v", ErrTensor, name, []int(t.Shape()), shape)
	case t.RequiresIterator() || t.DataOrder().IsColMajor():
		r.err = fmt.Errorf("%w %s is a view or column-major, want rows in order", ErrTensor, name)
	default:
		return t.Float32s()
	}
	return nil
}
