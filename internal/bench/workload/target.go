package workload

import "fmt"

// Target is the model that requests must fit.
type Target struct {
	// Vocab is the number of token ids; AvoidLow and AvoidHigh are how many of the lowest
	// and of the highest no prompt may contain, such as special tokens.
	Vocab, AvoidLow, AvoidHigh int
	// Context is how many tokens prompt and answer may have together.
	Context int
}

// Bundled is the bundled model: 4096 ids, of which the last one ends a text, and a context
// of 1024.
func Bundled() Target { return Target{Vocab: 4096, AvoidHigh: 1, Context: 1024} }

// ids is how many token ids a prompt may contain.
func (t Target) ids() int { return t.Vocab - t.AvoidLow - t.AvoidHigh }

const maxSize = 1<<31 - 1 // of a vocabulary or a context: what an int32 counts

// Validate names the field that makes no sense.
func (t Target) Validate() error {
	switch {
	case t.Vocab < 2 || t.Vocab > maxSize:
		return fmt.Errorf("vocab is %d, want 2 to %d", t.Vocab, maxSize)
	case t.AvoidLow < 0:
		return fmt.Errorf("avoid_low is %d, want 0 or more", t.AvoidLow)
	case t.AvoidHigh < 0:
		return fmt.Errorf("avoid_high is %d, want 0 or more", t.AvoidHigh)
	case t.AvoidLow > t.Vocab-2 || t.AvoidHigh > t.Vocab-2-t.AvoidLow:
		return fmt.Errorf("avoid_low %d and avoid_high %d leave fewer than 2 of vocab %d ids", t.AvoidLow, t.AvoidHigh, t.Vocab)
	case t.Context < 1 || t.Context > maxSize:
		return fmt.Errorf("context is %d, want 1 to %d", t.Context, maxSize)
	}
	return nil
}
