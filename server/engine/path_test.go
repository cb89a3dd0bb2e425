package engine

import (
	"fmt"
	"math"

	"tailor/model"
)

// pathShape is the smallest shape in which rows, columns, heads and layers all differ.
var pathShape = model.Config{Layers: 2, Heads: 2, Width: 6, Context: 256, Vocab: 50, EOS: 49}

// pathModel is a model whose logits are a hash of all rows of the KV storage up to their
// position, read back through the block table, and whose rows spell token, position and
// place. A row that is missing, stale, moved or another sequence's changes every logit
// after it; no attention weight can hide it.
type pathModel struct {
	shape  model.Config
	budget int
	tokens int // run so far
	rows   int // of logits given so far
	closed bool
}

func openPath(cfg Config) forwarder {
	return &pathModel{shape: pathShape, budget: cfg.MaxBatchedTokens}
}

// longPath is path with the context of the bundled model.
var longPath = subject{shape: longShape, open: func(cfg Config) forwarder {
	return &pathModel{shape: longShape, budget: cfg.MaxBatchedTokens}
}}

var longShape = func() model.Config {
	shape := pathShape
	shape.Context = 1024
	return shape
}()

// cell is what stands in the KV storage for one token: the same function says what is
// written and, in pathLogits, what ought to be read. It is exact in a float32.
func cell(token int32, pos, layer, head, dim, half int) float32 {
	return float32(((((int(token)*1024+pos)*2+layer)*2+head)*3+dim)*2 + half)
}

type pathHash uint64

func (h pathHash) add(v float32) pathHash {
	return (h ^ pathHash(math.Float32bits(v))) * 0x9e3779b97f4a7c15 >> 1
}

func (h pathHash) logits(vocab int) []float32 {
	out := make([]float32, vocab)
	for i := range out {
		h = h.add(float32(i))
		out[i] = float32(h>>40) / (1 << 20)
	}
	return out
}

func (m *pathModel) Close() { m.closed = true }

func (m *pathModel) Forward(chunks []model.Chunk) []float32 {
	var logits []float32
	total := 0
	for _, c := range chunks {
		total += len(c.Tokens)
		if len(c.Tokens) == 0 || c.Start+len(c.Tokens) > m.shape.Context {
			panic(fmt.Sprintf("path: %d tokens from position %d", len(c.Tokens), c.Start))
		}
		m.write(c)
	}
	if total > m.budget {
		panic(fmt.Sprintf("path: %d tokens, the budget is %d", total, m.budget))
	}
	m.tokens += total
	for _, c := range chunks {
		m.rows += c.Logits
		for i := len(c.Tokens) - c.Logits; i < len(c.Tokens); i++ {
			logits = append(logits, m.read(c.KV, c.Start+i+1).logits(m.shape.Vocab)...)
		}
	}
	return logits
}

func (m *pathModel) write(c model.Chunk) {
	size, dims := c.KV.BlockSize(), m.shape.HeadDim()
	for i, token := range c.Tokens {
		pos := c.Start + i
		block, row := pos/size, pos%size
		for layer := range m.shape.Layers {
			keys, values := c.KV.Keys(layer, block), c.KV.Values(layer, block)
			for head := range m.shape.Heads {
				for dim := range dims {
					keys[(head*dims+dim)*size+row] = cell(token, pos, layer, head, dim, 0)
					values[(head*size+row)*dims+dim] = cell(token, pos, layer, head, dim, 1)
				}
			}
		}
	}
}

func (m *pathModel) read(kv model.KV, rows int) pathHash {
	size, dims := kv.BlockSize(), m.shape.HeadDim()
	var h pathHash
	for pos := range rows {
		block, row := pos/size, pos%size
		for layer := range m.shape.Layers {
			keys, values := kv.Keys(layer, block), kv.Values(layer, block)
			for head := range m.shape.Heads {
				for dim := range dims {
					h = h.add(keys[(head*dims+dim)*size+row])
					h = h.add(values[(head*size+row)*dims+dim])
				}
			}
		}
	}
	return h
}

// pathLogits is what the model says after the tokens, without any storage.
func pathLogits(tokens []int32) []float32 {
	var h pathHash
	for pos, token := range tokens {
		for layer := range pathShape.Layers {
			for head := range pathShape.Heads {
				for dim := range pathShape.HeadDim() {
					h = h.add(cell(token, pos, layer, head, dim, 0))
					h = h.add(cell(token, pos, layer, head, dim, 1))
				}
			}
		}
	}
	return h.logits(pathShape.Vocab)
}
