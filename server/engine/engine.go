// Package engine serves many sequences with one model: continuous batching, chunked
// prefill and prefix reuse under a token budget.
//
// # A step
//
// One goroutine, the one that calls Engine.Run, owns all sequences and the KV cache. It
// repeats: receive what has arrived, abort what was cancelled or took too long, plan, run
// the model once on a ragged batch, and hand out the tokens. A plan spends
// Config.MaxBatchedTokens:
//
//  1. on decodes, one token for each running sequence that has its prompt behind it;
//  2. on running prefills, as much of each prompt as the budget has left;
//  3. on admissions from the queue: by priority, and within one by Config.Schedule.
//
// What a step computes is committed at its end, so a request that waits beside it reuses
// the full blocks. A waiting request whose prefix is being computed in this very step
// lets the step pass rather than compute it a second time.
//
// The choices of a request are one sequence until its prompt has been computed. Then each
// goes its own way from the same logits, in a fork that shares the prompt's full blocks.
//
// # Who comes first
//
// Sequences rank by priority, then by arrival. When a decode finds no free block, the last
// in rank is preempted: its blocks go to the prefix tree and it waits at its old place in
// the queue, to resume with prompt and generated tokens. Also, a request may take the place
// of a running one of worse priority. The first in rank is never preempted for another and
// Submit refuses what the pool cannot hold, so the first always finishes, and then the next
// is the first.
//
// No request waits for ever behind others of its priority. Under FCFS none is admitted
// before an older one, unless the older one waits for a prefix that a still older one
// computes. Under LongestPrefix those that find more cached pass, for Patience steps.
//
// # What a result depends on
//
// The model, the tokens and the sampling parameters, to the last bit. Batch mates, chunk
// borders, reuse, forks, preemption and threads change when a token comes, never which.
//
// # Failure
//
// A bad request is refused by Submit and can never reach the model. A panic in the step
// loop is a bug in this program; sequences share the cache, so none of them could be
// trusted after it, and Run lets the process die with the stack in sight.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"tailor/kvcache"
	"tailor/model"
	"tailor/server/blocklog"
)

// forwarder is the part of *model.Workspace that a step needs.
type forwarder interface {
	// Forward returns a row of logits [vocab] for each position that a chunk asks for,
	// valid until the next call.
	Forward(chunks []model.Chunk) []float32
	Close()
}

// state only moves forward.
type state int

const (
	accepting state = iota
	draining        // nothing new is accepted
	drained         // and nothing accepted is left
	stopped         // Run has ended
)

// Engine is the door to the step loop: all methods but Run may be called from any
// goroutine, before, during and after Run.
//
//   - A sequence is either in inbox, under mu, or in the loop's scheduler, never in both.
//   - snapshot is what the scheduler counted when it last told; no reader ever touches
//     the scheduler.
//   - The loop holds mu for moments only: never while it computes or sends.
type Engine struct {
	cfg       Config
	shape     model.Config
	blocks    int // in the pool
	blockSize int // tokens
	kv        *kvcache.Manager
	blockLog  *blocklog.Log
	check     func() error // the cache's own
	open      func(Config) forwarder
	log       *slog.Logger

	wake  chan struct{} // capacity 1: something for the loop to look at
	empty chan struct{} // closed when a drain has nothing left

	mu       sync.Mutex
	state    state
	running  bool
	arrivals uint64
	inbox    []*sequence
	errands  []errand
	snapshot Stats
}

// New wires an engine; nothing runs before Run. The caller gives up kv: from here on only
// the step loop may touch it.
func New(m *model.Model, kv *kvcache.Manager, cfg Config, log *slog.Logger) *Engine {
	open := func(cfg Config) forwarder { return m.NewWorkspace(cfg.MaxBatchedTokens, cfg.Threads) }
	return newEngine(m.Config(), open, kv, cfg, log)
}

func newEngine(shape model.Config, open func(Config) forwarder, kv *kvcache.Manager, cfg Config, log *slog.Logger) *Engine {
	e := &Engine{
		cfg:       cfg.withDefaults(),
		shape:     shape,
		blocks:    kv.Config().Blocks,
		blockSize: kv.Config().BlockSize,
		kv:        kv,
		blockLog:  blocklog.New(kv),
		open:      open,
		log:       log,
		wake:      make(chan struct{}, 1),
		empty:     make(chan struct{}),
	}
	e.check = e.checkCache
	e.snapshot.KV = kv.Stats()
	return e
}

// Run is the step loop. It returns nil when ctx ends, or the fault that Config.Check
// found; every sequence has then had its last event. It may be called once.
func (e *Engine) Run(ctx context.Context) error {
	// The CPU clock that steps are measured by is the thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e.mu.Lock()
	if e.running || e.state == stopped {
		panic("engine: Run called twice")
	}
	e.running = true
	e.mu.Unlock()

	// Nothing below is deferred: after a panic the cache is not to be trusted, and
	// tidying it up would hide the stack that matters.
	s := newScheduler(e)
	err := e.loop(ctx, s)
	e.stop(s)
	s.forward.Close()
	return err
}

func (e *Engine) loop(ctx context.Context, s *scheduler) error {
	for ctx.Err() == nil {
		if e.turn(s) {
			continue
		}
		if e.cfg.Check {
			if err := e.check(); err != nil {
				return fmt.Errorf("engine: KV cache: %w", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		}
	}
	return nil
}

// turn is one round of the loop; false means that nothing is left to do.
func (e *Engine) turn(s *scheduler) bool {
	errands := e.receive(s)
	s.abortCancelled()
	for _, do := range errands {
		do(s, nil)
	}
	s.plan()
	// A step can take long: who was aborted, and how many wait, is told before it.
	e.tell(s)
	if !s.step() {
		return false
	}
	e.tell(s)
	return true
}

// tell makes the scheduler's counts and events known. The counts come first: whoever has
// seen a last event finds it counted, and its blocks free.
func (e *Engine) tell(s *scheduler) {
	e.publish(s)
	s.deliver()
}

// receive moves what has arrived to the scheduler.
func (e *Engine) receive(s *scheduler) []errand {
	e.mu.Lock()
	arrived, errands := e.inbox, e.errands
	e.inbox, e.errands = nil, nil
	for _, seq := range arrived {
		s.waiting = insertByRank(s.waiting, seq)
	}
	e.snapshot.Waiting, e.snapshot.WaitingTokens = sizeOf(s.waiting)
	e.mu.Unlock()
	for _, seq := range arrived {
		seq.queued = s.stats.Steps
		seq.found = s.kv.Match(seq.salt, seq.findable())
	}
	return errands
}

func (e *Engine) publish(s *scheduler) {
	stats := s.snapshot()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot = stats
	if e.state == draining && s.idle() && len(e.inbox) == 0 {
		e.state = drained
		close(e.empty)
	}
}

// stop ends every sequence there is, and whatever waits for the loop.
func (e *Engine) stop(s *scheduler) {
	e.mu.Lock()
	if e.state != drained {
		close(e.empty)
	}
	e.state = stopped
	e.mu.Unlock()
	// Nothing enters the inbox any more.
	errands := e.receive(s)
	s.abortAll(ErrStopped)
	e.tell(s)
	for _, do := range errands {
		do(s, ErrStopped)
	}
}

// signal makes the loop look; mu may be held.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default: // a look is due already
	}
}

// Drain refuses new requests from now on and returns when all accepted ones, waiting or
// running, have had their last event, or when ctx ends. It cannot be undone.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	if e.state == accepting {
		e.state = draining
		e.signal()
	}
	e.mu.Unlock()
	select {
	case <-e.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats are the counts as of now, but for the step that is being computed.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	stats := e.snapshot
	stats.Waiting, stats.WaitingTokens = e.waiting()
	return stats
}
