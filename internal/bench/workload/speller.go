package workload

import "math/rand/v2"

// speller draws texts of token ids, the same ones for the same seed on every machine.
//
// Reuse must be what the workload means and no accident. Two random texts would begin with
// the same token once in as many times as there are ids, and the engine, which reuses
// token by token, would reuse that one. So of all texts that may follow the same prefix
// (its siblings) each has a number, and that number chooses its first token: siblings
// part at once, and what comes after does not matter. The price is that there can be no
// more siblings than ids.
type speller struct {
	target Target
	draw   *rand.Rand
}

func newSpeller(t Target, seed uint64) *speller {
	return &speller{target: t, draw: rand.New(rand.NewPCG(seed, 0))}
}

// text returns n tokens that no sibling with another number begins like.
func (s *speller) text(sibling, n int) []int32 {
	tokens := make([]int32, n)
	tokens[0] = s.id(sibling)
	for i := range tokens[1:] {
		tokens[1+i] = s.id(s.draw.IntN(s.target.ids()))
	}
	return tokens
}

// id returns the i-th id that may be used.
func (s *speller) id(i int) int32 { return int32(s.target.AvoidLow + i) }
