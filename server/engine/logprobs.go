package engine

import (
	"math"
	"slices"
)

// TokenLogprobs says how likely a token was, and what would have been likelier. All values
// are natural logarithms of the probabilities that the model gave, before temperature,
// penalties and whatever else sampling does to them.
type TokenLogprobs struct {
	Token   int32
	Logprob float32
	// Top are the likeliest tokens, as many as the request asks for: best first, lower ids
	// first among equals. Token need not be among them; where it is, its value is the same.
	Top []TokenLogprob
}

// TokenLogprob is one token of a distribution.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}

// maxScoring bounds the prompt positions whose logits are had in one step: each takes a
// row of the vocabulary's size, which for 50,000 tokens and a whole step's budget would be
// more memory than many a KV cache.
const maxScoring = 128

var negInf = float32(math.Inf(-1))

// scored is how many logits of the run are there for the prompt's scores.
func (r run) scored() int {
	if r.seq.isScoring() {
		return r.logits
	}
	return 0
}

// limitScoring adds to a run of a prompt that is being scored the logits it needs, and
// ends the run where the step has no more of them.
func (s *scheduler) limitScoring(r run) run {
	start := r.seq.kv.Computed()
	// Position p has the logits of token p+1. Below first they are known.
	first := len(r.seq.scores) - 1
	r.tokens = min(r.tokens, max(first-start, 0)+s.scoring)
	r.logits = max(start+r.tokens-max(first, start), 0)
	s.scoring -= r.logits
	return r
}

// score takes the scores of prompt tokens from a run's logits [r.logits][vocab], before it
// is committed.
func (s *scheduler) score(r run, logits []float32) {
	if !r.seq.isScoring() {
		return
	}
	position := r.seq.kv.Computed() + r.tokens - r.logits
	for ; len(logits) > 0 && r.seq.isScoring(); logits = logits[s.vocab:] {
		position++
		r.seq.scores = append(r.seq.scores, logprobsOf(logits[:s.vocab], r.seq.tokens[position], r.seq.promptLogprobs))
	}
}

// logprobsOf is the log-softmax of logits, at token and at the most likely tokens.
func logprobsOf(logits []float32, token int32, most int) *TokenLogprobs {
	d := newDistribution(logits)
	out := &TokenLogprobs{Token: token, Logprob: d.logprob(token)}
	if most == 0 {
		return out
	}
	ids := d.likeliest(most)
	out.Top = make([]TokenLogprob, len(ids))
	for i, id := range ids {
		out.Top[i] = TokenLogprob{id, d.logprob(id)}
	}
	return out
}

// distribution is a row of logits and what their log-softmax subtracts. It is summed in
// float64 and in order of id, so that equal logits give equal bits.
type distribution struct {
	logits []float32
	top    float64 // the highest logit
	norm   float64 // of what lies below the highest
}

func newDistribution(logits []float32) distribution {
	d := distribution{logits: logits, top: math.Inf(-1)}
	for id := range logits {
		d.top = max(d.top, d.logit(int32(id)))
	}
	sum := 0.0
	for id := range logits {
		sum += math.Exp(d.below(int32(id)))
	}
	d.norm = math.Log(sum)
	return d
}

// logit reads NaN, which no sampler chooses, as impossible.
func (d *distribution) logit(id int32) float64 {
	l := float64(d.logits[id])
	if math.IsNaN(l) {
		return math.Inf(-1)
	}
	return l
}

// below is how far a logit is below the highest: 0 or less, also where that is infinite.
func (d *distribution) below(id int32) float64 {
	l := d.logit(id)
	if math.IsInf(l, 0) {
		if l == d.top && l > 0 {
			return 0
		}
		return math.Inf(-1)
	}
	return l - d.top
}

func (d *distribution) logprob(id int32) float32 {
	below := d.below(id)
	if math.IsInf(below, -1) {
		return negInf // also where all are impossible and norm is infinite too
	}
	return float32(below - d.norm)
}

// likeliest returns the ids of the n highest logits, best first, the lower id first among
// equals.
func (d *distribution) likeliest(n int) []int32 {
	ids := make([]int32, 0, n+1)
	for id := range int32(len(d.logits)) {
		l := d.logit(id)
		if len(ids) == n && l <= d.logit(ids[n-1]) {
			continue
		}
		// Ids come in ascending order, so an equal one goes behind.
		at, _ := slices.BinarySearchFunc(ids, l, func(other int32, l float64) int {
			if d.logit(other) >= l {
				return -1
			}
			return 1
		})
		ids = slices.Insert(ids, at, id)
		ids = ids[:min(len(ids), n)]
	}
	return ids
}
