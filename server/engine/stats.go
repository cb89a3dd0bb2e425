package engine

import (
	"time"

	"tailor/kvcache"
)

// Stats are an engine's counts. Apart from Running, Waiting and KV they only grow.
//
// Each prompt token of an admitted request is counted once, when its row first exists: as
// PromptReused at the first admission, as PromptComputed when it is run, or, where a
// preempted request comes back to a longer prefix than it left, within ResumeReused.
// What preemption makes necessary a second time is in Recomputed and in ResumeReused and
// never looks like a hit.
type Stats struct {
	Running, Waiting int // sequences that hold blocks, and that do not

	Requests    uint64 // admitted
	RequestHits uint64 // of them, those that reused at least a token

	PromptComputed uint64 // tokens
	PromptReused   uint64
	Decoded        uint64 // tokens generated

	Preemptions  uint64
	Recomputed   uint64 // tokens run again after a preemption
	ResumeReused uint64 // tokens found in the cache on resuming

	Aborts Aborts
	Steps  uint64 // runs of the model

	// CPU time of the model's runs, each split by its tokens of either kind. On Linux
	// it is measured on the thread of the step loop and multiplied by Config.Threads,
	// as they share the work evenly; elsewhere wall time takes its place.
	PrefillCPU, DecodeCPU time.Duration

	KV kvcache.Stats
}

// Aborts counts sequences by where they stood when they were aborted.
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
