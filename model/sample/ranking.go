package sample

// candidate is a token that can still be chosen.
type candidate struct {
	id     int32
	logit  float32
	weight float64 // unnormalised probability, once weighed
}

// ranksBefore is the strict order of candidates: higher logit, then lower id.
func (c candidate) ranksBefore(d candidate) bool {
	return c.logit > d.logit || c.logit == d.logit && c.id < d.id
}

// ranking takes candidates best first, as many as are wanted, in place. It is a heap
// because top-k and top-p stop after a few tens of a vocabulary of tens of thousands:
// sorting all of them costs more than the choice itself.
//
//   - all[:heap] is a binary heap, its best candidate at 0.
//   - all[heap:] are the candidates taken, the best one last.
type ranking struct {
	all  []candidate
	heap int
}

func newRanking(all []candidate) ranking {
	r := ranking{all, len(all)}
	for i := r.heap/2 - 1; i >= 0; i-- {
		r.sink(i)
	}
	return r
}

func (r *ranking) left() int { return r.heap }

// taken are the candidates that next has returned, the best one last.
func (r *ranking) taken() []candidate { return r.all[r.heap:] }

// next takes the best candidate left.
func (r *ranking) next() candidate {
	r.heap--
	r.all[0], r.all[r.heap] = r.all[r.heap], r.all[0]
	r.sink(0)
	return r.all[r.heap]
}

func (r *ranking) sink(i int) {
	h := r.all[:r.heap]
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].ranksBefore(h[child]) {
			child++
		}
		if !h[child].ranksBefore(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
