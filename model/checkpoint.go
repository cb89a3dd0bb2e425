package model

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"tailor/model/kernel"
)

// checkpoint is the tensors of a model by their part in it, in the layouts they came
// in: Conv1D weights are [in][out], embeddings [row][Width].
type checkpoint struct {
	config                     Config
	embedding, positions, head []float32
	tied                       bool
	layers                     []checkpointLayer
	norm                       norm
}

type checkpointLayer struct {
	norm1, norm2                  norm
	qkv, attnOut, inner, innerOut linear
}

type linear struct{ weight, bias []float32 }

// readCheckpoint finds and checks every tensor. The first error names the tensor, the
// shape wanted and the shape given.
func readCheckpoint(cfg Config, tensors map[string]*tensor.Dense) (*checkpoint, error) {
	r := reader{tensors: tensors}
	w := cfg.Width
	c := &checkpoint{
		config:    cfg,
		embedding: r.read("wte.weight", cfg.Vocab, w),
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
		c.head = r.read("lm_head.weight", cfg.Vocab, w)
		c.tied = slices.Equal(c.head, c.embedding)
	}
	return c, r.err
}

// size is the room the packed model takes, in floats.
func (c *checkpoint) size() int {
	cfg := c.config
	w := cfg.Width
	n := kernel.RoundTake(len(c.positions)) + kernel.MatrixSize(w, cfg.Vocab)
	if !c.tied {
		n += kernel.RoundTake(len(c.embedding))
	}
	n += 2 * kernel.RoundTake(w) * (1 + 2*cfg.Layers)
	return n + cfg.Layers*(kernel.MatrixSize(w, 3*w)+kernel.MatrixSize(w, w)+
		kernel.MatrixSize(w, cfg.Inner)+kernel.MatrixSize(cfg.Inner, w))
}

// reader reads tensors until the first error, which it keeps.
type reader struct {
	tensors map[string]*tensor.Dense
	err     error
}

func (r *reader) norm(name string, width int) norm {
	return norm{gain: r.read(name+".weight", width), bias: r.read(name+".bias", width)}
}

func (r *reader) linear(name string, in, out int) linear {
	return linear{weight: r.read(name+".weight", in, out), bias: r.read(name+".bias", out)}
}

func (r *reader) read(name string, shape ...int) []float32 {
	if r.err != nil {
		return nil
	}
	t := r.tensors[name]
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
