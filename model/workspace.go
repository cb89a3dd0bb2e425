package model

import (
	"fmt"
	"runtime"

	"tailor/model/kernel"
)

// Workspace runs forward passes of one model: it owns the activations and the threads.
//
//   - One goroutine uses it at a time; several workspaces may share a model.
//   - Buffers have a row per token of the batch, tightly packed, and are sized once for
//     maxTokens. Only logits and the lists of spans grow, to the largest batch seen, so a
//     steady state allocates nothing.
//   - Nothing in it outlives a pass: the state of a sequence is in its KV alone.
type Workspace struct {
	model     *Model
	team      *kernel.Team
	maxTokens int

	x      []float32 // [rows][Width], the residual stream
	normed []float32 // [rows][Width]
	qkv    []float32 // [rows][3*Width]
	attn   []float32 // [rows][Width], what attention yields
	out    []float32 // [rows][Width], what a block's half adds to x
	inner  []float32 // [rows][Inner]
	logits []float32 // [wanted][Vocab]

	tokens []int32       // one per row
	spans  []kernel.Span // one per chunk
	wanted []kernel.Span // one per chunk that wants logits

	embedding embedding

	// observe, if set, sees named intermediate results while they are whole.
	observe func(layer int, name string, values []float32)
}

// NewWorkspace makes a workspace for batches of up to maxTokens tokens on threads
// threads, the caller's included. Close it.
func (m *Model) NewWorkspace(maxTokens, threads int) *Workspace {
	if maxTokens < 1 || threads < 1 {
		panic(fmt.Sprintf("model: workspace for %d tokens on %d threads", maxTokens, threads))
	}
	c := m.config
	w := &Workspace{
		model:     m,
		team:      kernel.NewTeam(threads, c.Context),
		maxTokens: maxTokens,
		x:         make([]float32, maxTokens*c.Width),
		normed:    make([]float32, maxTokens*c.Width),
		qkv:       make([]float32, maxTokens*3*c.Width),
		attn:      make([]float32, maxTokens*c.Width),
		out:       make([]float32, maxTokens*c.Width),
		inner:     make([]float32, maxTokens*c.Inner),
		tokens:    make([]int32, 0, maxTokens),
	}
	w.embedding.w = w
	for _, buffer := range [][]float32{w.x, w.normed, w.qkv, w.attn, w.out, w.inner} {
		clear(buffer) // the system hands over pages at the first write: not in the first pass
	}
	return w
}

// Instructions names the instruction set that passes run with.
func (w *Workspace) Instructions() string { return w.team.Instructions() }

// ReadWeights does nothing but read all weights once, with all threads, and returns how
// many bytes that was: what no decode step can be faster than.
func (w *Workspace) ReadWeights() int {
	w.team.ReadAll(w.model.memory)
	return w.model.memory.Bytes()
}

// Close ends the workspace's threads.
func (w *Workspace) Close() { w.team.Close() }

// Forward runs the chunks through the model: it writes the keys and values of all
// tokens and returns the logits of the positions that want them, [sum of
// Chunk.Logits][Vocab], in the chunks' order, valid until the next Forward. It panics
// on chunks that the model cannot run: a caller's mistake.
func (w *Workspace) Forward(chunks []Chunk) []float32 {
	rows, wanted := w.plan(chunks)
	if rows == 0 {
		return nil
	}
	w.team.Run((rows+embedRows-1)/embedRows, &w.embedding)
	m, width := w.model, w.model.config.Width
	var residue []float32 // what the block before adds to x
	last := len(m.layers) - 1
	for i := range m.layers {
		l := &m.layers[i]
		w.team.LayerNorm(w.normed, w.x, residue, rows, l.norm1.gain, l.norm1.bias, m.config.Epsilon)
		w.team.Matmul(w.qkv, w.normed, rows, l.qkv, kernel.None)
		w.team.Store(w.qkv, w.spans, l.heads)
		w.see(i, "x", w.x, rows*width)
		w.see(i, "ln1", w.normed, rows*width)
		w.see(i, "qkv", w.qkv, rows*3*width)
		spans := w.spans
		if i == last {
			// Past the last layer's keys and values, only rows with logits go on.
			if wanted == 0 {
				break
			}
			w.compact()
			spans, rows = w.wanted, wanted
		}
		w.team.Attend(w.attn, w.qkv, spans, l.heads)
		w.team.Matmul(w.out, w.attn, rows, l.attnOut, kernel.None)
		w.see(i, "y", w.attn, rows*width)
		w.see(i, "yProj", w.out, rows*width)
		w.team.LayerNorm(w.normed, w.x, w.out, rows, l.norm2.gain, l.norm2.bias, m.config.Epsilon)
		w.see(i, "attnResid", w.x, rows*width)
		w.see(i, "ln2", w.normed, rows*width)
		w.team.Matmul(w.inner, w.normed, rows, l.inner, m.activation())
		w.team.Matmul(w.out, w.inner, rows, l.innerOut, kernel.None)
		w.see(i, "gelu", w.inner, rows*m.config.Inner)
		w.see(i, "mlp", w.out, rows*width)
		residue = w.out
	}
	if wanted > 0 {
		w.team.LayerNorm(w.normed, w.x, residue, wanted, m.norm.gain, m.norm.bias, m.config.Epsilon)
		w.see(last, "block", w.x, wanted*width)
		w.see(last, "ln_f", w.normed, wanted*width)
		w.team.Matmul(w.logits, w.normed, wanted, m.head, kernel.None)
	}
	runtime.KeepAlive(m) // its weights are not the collector's
	clear(w.spans)       // the sequences' storage is none of ours from here on
	clear(w.wanted)
	return w.logits[:wanted*m.config.Vocab]
}

// plan checks the chunks, lists their spans, and makes room for the logits. It returns
// the number of rows and how many of them want logits.
func (w *Workspace) plan(chunks []Chunk) (rows, wanted int) {
	c := w.model.config
	w.tokens, w.spans, w.wanted = w.tokens[:0], w.spans[:0], w.wanted[:0]
	for i, ch := range chunks {
		n := len(ch.Tokens)
		if n < 1 || ch.Start < 0 || ch.Start+n > c.Context || ch.Logits < 0 || ch.Logits > n {
			panic(fmt.Sprintf("model: chunk %d has %d tokens from position %d, %d with logits; context is %d", i, n, ch.Start, ch.Logits, c.Context))
		}
		for j, id := range ch.Tokens {
			if id < 0 || int(id) >= c.Vocab {
				panic(fmt.Sprintf("model: chunk %d token %d is %d, vocabulary is %d", i, j, id, c.Vocab))
			}
		}
		w.spans = append(w.spans, kernel.Span{KV: ch.KV, Start: ch.Start, Rows: n, Source: rows, Out: rows})
		if skip := n - ch.Logits; ch.Logits > 0 {
			w.wanted = append(w.wanted, kernel.Span{KV: ch.KV, Start: ch.Start + skip, Rows: ch.Logits, Source: rows + skip, Out: wanted})
		}
		rows += n
		wanted += ch.Logits
		w.tokens = append(w.tokens, ch.Tokens...)
	}
	if rows > w.maxTokens {
		panic(fmt.Sprintf("model: batch of %d tokens, workspace is for %d", rows, w.maxTokens))
	}
	if need := wanted * c.Vocab; need > len(w.logits) {
		w.logits = make([]float32, need)
	}
	return rows, wanted
}

// embedding is the work of filling x; a unit is embedRows rows of the batch.
type embedding struct{ w *Workspace }

const embedRows = 16

// Unit embeds the tokens of its rows.
func (e *embedding) Unit(_, unit int) {
	w := e.w
	width := w.model.config.Width
	row := unit * embedRows
	end := min(row+embedRows, len(w.tokens))
	for i := range w.spans {
		s := &w.spans[i]
		for ; row < end && row < s.Source+s.Rows; row++ {
			w.model.embed(w.x[row*width:][:width], w.tokens[row], s.Start+row-s.Source)
		}
	}
}

// compact moves the residual rows that want logits to the front, in order.
func (w *Workspace) compact() {
	width := w.model.config.Width
	for _, s := range w.wanted {
		copy(w.x[s.Out*width:][:s.Rows*width], w.x[s.Source*width:])
	}
}

func (w *Workspace) see(layer int, name string, values []float32, n int) {
	if w.observe != nil {
		w.observe(layer, name, values[:n])
	}
}

func (m *Model) activation() kernel.Activation {
	if m.config.Activation == GELU {
		return kernel.GELU
	}
	return kernel.GELUNew
}
