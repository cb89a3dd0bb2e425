package sample

import "math"

var negInf = float32(math.Inf(-1))

// editor is what changes logits before the choice, at any temperature.
//
//   - edit is a function of its arguments alone: counts holds nothing but zeros between
//     two calls. A sequence that is preempted, or resumes elsewhere, is penalised for all
//     of its output all the same.
//   - row and counts, [vocab], are allocated once.
type editor struct {
	allowed    []int32
	badWords   [][]int32
	bias       map[int32]float32
	repetition float32 // 1: none
	frequency  float32
	presence   float32

	row    []float32
	counts []int32
}

// newEditor returns nil where nothing is to be changed.
func newEditor(p *Params) *editor {
	e := &editor{
		allowed: p.Allowed, badWords: p.BadWords, bias: p.LogitBias,
		repetition: float32(p.RepetitionPenalty), frequency: float32(p.FrequencyPenalty), presence: float32(p.PresencePenalty),
	}
	if e.repetition == 0 {
		e.repetition = 1
	}
	if e.allowed == nil && len(e.badWords) == 0 && len(e.bias) == 0 && !e.penalizes() {
		return nil
	}
	return e
}

func (e *editor) penalizes() bool { return e.repetition != 1 || e.frequency != 0 || e.presence != 0 }

// edit returns a changed copy of logits, valid until the next call. The order is vLLM's,
// and so is the arithmetic: allowed tokens, bad words, bias, penalties.
func (e *editor) edit(logits []float32, prompt, output []int32) []float32 {
	if len(e.row) != len(logits) {
		e.row = make([]float32, len(logits))
		e.counts = make([]int32, len(logits))
	}
	e.allow(logits)
	e.ban(output)
	for id, bias := range e.bias { // each id once, so in any order
		if e.has(id) {
			e.row[id] += bias
		}
	}
	if e.penalizes() {
		e.penalize(prompt, output)
	}
	return e.row
}

func (e *editor) has(id int32) bool { return id >= 0 && int(id) < len(e.row) }

// allow copies the logits of the tokens that may be chosen.
func (e *editor) allow(logits []float32) {
	if e.allowed == nil {
		copy(e.row, logits)
		return
	}
	for i := range e.row {
		e.row[i] = negInf
	}
	for _, id := range e.allowed {
		if e.has(id) {
			e.row[id] = logits[id]
		}
	}
}

// ban excludes the last token of each bad word whose other tokens end the output.
func (e *editor) ban(output []int32) {
	for _, word := range e.badWords {
		start, last := len(output)-(len(word)-1), word[len(word)-1]
		if start < 0 || !e.has(last) {
			continue
		}
		begun := true
		for i, id := range word[:len(word)-1] {
			begun = begun && output[start+i] == id
		}
		if begun {
			e.row[last] = negInf
		}
	}
}

// penalize applies the penalties to each token concerned once.
func (e *editor) penalize(prompt, output []int32) {
	if e.repetition != 1 {
		e.repeat(prompt)
		e.repeat(output)
		e.forget(prompt)
		e.forget(output)
	}
	for _, id := range output {
		if e.has(id) {
			e.counts[id]++
		}
	}
	for _, id := range output {
		if e.has(id) && e.counts[id] > 0 {
			// The conversions keep compilers from fusing the operations: a fused one
			// rounds once instead of twice, and differs from machine to machine.
			e.row[id] -= float32(e.frequency * float32(e.counts[id]))
			e.row[id] -= e.presence
			e.counts[id] = 0
		}
	}
}

// repeat applies the repetition penalty to the tokens that it has not been applied to.
func (e *editor) repeat(tokens []int32) {
	for _, id := range tokens {
		if !e.has(id) || e.counts[id] > 0 {
			continue
		}
		e.counts[id] = 1
		if e.row[id] > 0 {
			e.row[id] /= e.repetition
		} else {
			e.row[id] *= e.repetition
		}
	}
}

func (e *editor) forget(tokens []int32) {
	for _, id := range tokens {
		if e.has(id) {
			e.counts[id] = 0
		}
	}
}
