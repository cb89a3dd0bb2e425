package engine

import (
	"slices"
	"time"

	"tailor/kvcache"
)

// Stats are an engine's counts. All that are uint64, and the times, only grow.
//
// Each prompt token of an admitted request is counted once, when its row first exists: as
// PromptReused at the first admission, as PromptComputed when it is run, or, where a
// preempted request comes back to a longer prefix than it left, within ResumeReused.
// What is computed or found a second time, after a preemption or for a choice that had to
// wait, is in Recomputed and in ResumeReused and never looks like a hit.
type Stats struct {
	Running       int // sequences that hold blocks
	Waiting       int // choices that hold none
	WaitingTokens int // of their sequences

	Requests    uint64 // admitted
	RequestHits uint64 // of them, those that reused at least a token

	PromptComputed uint64 // tokens
	PromptReused   uint64
	Decoded        uint64 // tokens generated

	Forks        uint64 // choices that went on in the blocks of the first
	Deferred     uint64 // choices that had to wait, as there was no room beside the others
	Preemptions  uint64 // sequences that lost their blocks
	Recomputed   uint64 // tokens run again on resuming
	ResumeReused uint64 // tokens found in the cache on resuming

	Aborts Aborts
	Steps  uint64 // runs of the model

	// StepTokens counts the steps by their tokens, of either kind, one more for all those
	// past the last of the StepBounds; StepTokensSum is the tokens of them all.
	StepTokens    [14]uint64
	StepTokensSum uint64

	// CPU time of the model's runs, each split by its tokens of either kind. On Linux
	// it is measured on the thread of the step loop and multiplied by Config.Threads,
	// as they share the work evenly; elsewhere wall time takes its place.
	PrefillCPU, DecodeCPU time.Duration

	KV kvcache.Stats
}

// StepBounds are the highest numbers of tokens that StepTokens counts together: vLLM's.
func StepBounds() [13]int {
	return [...]int{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
}

func (s *Stats) countStep(tokens int) {
	bounds := StepBounds()
	i, _ := slices.BinarySearch(bounds[:], tokens)
	s.Steps++
	s.StepTokens[i]++
	s.StepTokensSum += uint64(tokens)
}

// Aborts counts choices by where they stood when they were aborted.
type Aborts struct {
	Waiting uint64 // without blocks: in the queue, or preempted
	Prefill uint64 // before the first token
	Decode  uint64
}

func (a *Aborts) count(phase string) {
	switch phase {
	case "waiting":
		a.Waiting++
	case "prefill":
		a.Prefill++
	default:
		a.Decode++
	}
}
