// Package sample turns a row of logits into a token.
//
// The choice is a pure function of the parameters, the logits and the sequence so far:
// neither the batch a sequence runs in nor an interruption changes it.
//
// The parameters apply in vLLM's order: allowed tokens, bad words, logit bias, the
// penalties for repetition, frequency and presence, then, where the temperature is not 0,
// temperature, min-p, top-k, top-p, and the draw. Whoever masks tokens for reasons of
// their own (min_tokens) does so in the logits before, as vLLM does.
package sample

import (
	"fmt"
	"math"
)

// None is what Sample returns for a row without any usable logit.
const None int32 = -1

// Sampler chooses the tokens of one request. It is used by one goroutine at a time.
//
//   - No call leaves anything behind that another call reads.
//   - Between the steps of a call, pool holds the tokens still possible; it is a part of
//     scratch, which is allocated once.
//   - Tokens are ranked by logit, then by lower id: a strict order, so results never
//     depend on how the selection happens to shuffle pool.
type Sampler struct {
	editor      *editor // nil: the logits are used as they are
	temperature float64
	minP        float64
	topK        int // 0: all
	topP        float64
	seed        int64
	scratch     []candidate
	pool        []candidate
}

// New panics on parameters that Validate refuses, and where a choice by chance has no
// seed: two engines would then disagree without anybody noticing.
func New(p Params) *Sampler {
	if err := p.Validate(); err != nil {
		panic("sample: " + err.Error())
	}
	s := &Sampler{
		editor: newEditor(&p), temperature: p.Temperature, minP: p.MinP, topK: max(p.TopK, 0), topP: p.TopP,
	}
	if p.Seed != nil {
		s.seed = *p.Seed
	} else if p.Temperature > 0 {
		panic(fmt.Sprintf("sample: temperature is %v and there is no seed", p.Temperature))
	}
	return s
}

// Sample chooses from logits [vocab] the token that follows output, which follows prompt.
// NaN and -Inf are never chosen; a row of nothing else gives None. All is only read. The
// randomness depends on the seed and the length of output alone.
func (s *Sampler) Sample(logits []float32, prompt, output []int32) int32 {
	if s.editor != nil {
		logits = s.editor.edit(logits, prompt, output)
	}
	best := argmax(logits)
	if s.temperature == 0 || best == None || math.IsInf(float64(logits[best]), 1) {
		return best
	}
	// The order of the steps is part of what the parameters mean: top-p counts the
	// share of what top-k left, at the given temperature (as in vLLM and Hugging Face).
	s.collect(logits)
	s.keepMinP(logits[best])
	s.keepTopK()
	total := s.weigh(logits[best])
	total = s.keepTopP(total)
	return s.draw(uniform(s.seed, len(output)) * total)
}

// argmax is the lowest id of the highest logit. NaN loses every comparison.
func argmax(logits []float32) int32 {
	best, top := None, float32(math.Inf(-1))
	for id, l := range logits {
		if l > top {
			best, top = int32(id), l
		}
	}
	return best
}

// collect fills the pool with all tokens that have a usable logit, in order of id.
func (s *Sampler) collect(logits []float32) {
	if cap(s.scratch) < len(logits) {
		s.scratch = make([]candidate, 0, len(logits))
	}
	s.pool = s.scratch[:0]
	for id, l := range logits {
		if l > float32(math.Inf(-1)) {
			s.pool = append(s.pool, candidate{id: int32(id), logit: l})
		}
	}
}

// keepMinP drops what is less than minP times as likely as the best, in place.
func (s *Sampler) keepMinP(top float32) {
	if s.minP == 0 {
		return
	}
	kept := s.pool[:0]
	for _, c := range s.pool {
		if math.Exp((float64(c.logit)-float64(top))/s.temperature) >= s.minP {
			kept = append(kept, c)
		}
	}
	s.pool = kept
}

func (s *Sampler) keepTopK() {
	if s.topK == 0 || s.topK >= len(s.pool) {
		return
	}
	rank := newRanking(s.pool)
	for range s.topK {
		rank.next()
	}
	s.pool = rank.taken()
}

// weigh gives each candidate its unnormalised probability, 1 for the highest logit, and
// returns their sum.
func (s *Sampler) weigh(top float32) float64 {
	total := 0.0
	for i := range s.pool {
		c := &s.pool[i]
		c.weight = math.Exp((float64(c.logit) - float64(top)) / s.temperature)
		total += c.weight
	}
	return total
}

// keepTopP returns the sum of the weights it kept.
func (s *Sampler) keepTopP(total float64) float64 {
	if s.topP == 1 {
		return total
	}
	rank := newRanking(s.pool)
	kept := 0.0
	for kept < s.topP*total && rank.left() > 0 {
		kept += rank.next().weight
	}
	s.pool = rank.taken()
	return kept
}

// draw returns the candidate in whose share of the summed weights the target falls.
func (s *Sampler) draw(target float64) int32 {
	last := None
	sum := 0.0
	// From the back: a ranking leaves the likeliest there, so the walk is short.
	for i := len(s.pool) - 1; i >= 0; i-- {
		c := s.pool[i]
		if c.weight == 0 {
			continue
		}
		sum += c.weight
		last = c.id
		if sum > target {
			break
		}
	}
	// Rounding can leave the target at the very sum: the last one with a share has it.
	return last
}
