package kernel

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Team is a number of threads that share out the units of one kernel at a time.
//
//   - One goroutine calls a Team's methods; it works as thread 0, the others are
//     goroutines of the team. With one thread everything runs inline.
//   - The units of a run are dealt out in ranges, one a thread, so that neighbouring units,
//     which read neighbouring memory, fall to the same thread. A range is end<<32 | next.
//     Its owner takes units from the front; whoever has none left takes them from the back
//     of another's. A unit is taken by a successful compare-and-swap, and only then are
//     task and units read: the run cannot end, nor another begin, before that unit is done.
//   - So a thread that is late, or not scheduled at all, delays a run by one unit at most:
//     the others do its share.
//   - A thread without work spins briefly, then parks. Spinning alone would starve the
//     machine's other processes and be starved by them; parking alone costs some twenty
//     microseconds a run.
type Team struct {
	ops     *ops
	context int
	ranges  []unitRange // one per thread
	task    Task
	units   int64       // of the current run
	waiting atomic.Bool // the caller is parked, or about to, until the run is done
	closed  atomic.Bool
	wake    chan struct{} // capacity 1: tells the parked caller
	helpers []*helper
	ended   sync.WaitGroup
	scratch []*scratch // one per thread
	rounded []uint16   // rows in bfloat16, grows to the largest product seen

	// done counts the units of the current run that are finished. All threads write it, so
	// its cache line holds nothing that they read meanwhile.
	_    [cacheLine]byte
	done atomic.Int64
	_    [cacheLine]byte

	matmul   matmul
	rounding rounding
	attend   attend
	store    store
	norm     norm

	read   reader[float32]
	read16 reader[uint16]
}

// unitRange is the units that a thread has before it, alone on its cache line.
type unitRange struct {
	word atomic.Uint64
	_    [cacheLine - 8]byte
}

const cacheLine = 64

// Task is work in units that may run in any order and at the same time. thread says
// which of the team's threads runs the unit.
type Task interface {
	Unit(thread, unit int)
}

type helper struct {
	parked atomic.Bool
	wake   chan struct{} // capacity 1
}

// scratch is one thread's own memory.
type scratch struct {
	scores []float32 // [tileRows][scoreStride]
	tile   []float32 // [outputRows][panelWidth], results of a panel wider than the output
}

// spins is how long a thread looks for work before it parks, in turns of relax: some
// 50 microseconds, several times what lies between the kernels of a layer.
const spins = 750

// NewTeam starts a team whose attention reaches up to context positions, with the best
// instruction set of this CPU. Close ends it.
func NewTeam(threads, context int) *Team { return newTeam(threads, context, best()) }

func newTeam(threads, context int, o *ops) *Team {
	if threads < 1 || context < 1 {
		panic(fmt.Sprintf("kernel: team of %d threads with context %d", threads, context))
	}
	t := &Team{ops: o, context: context, ranges: make([]unitRange, threads), wake: make(chan struct{}, 1)}
	t.read = reader[float32]{keys: KV.Keys, values: KV.Values, scores: o.scores, weigh: o.values}
	t.read16 = reader[uint16]{keys: KV.Keys16, values: KV.Values16, scores: o.scores16, weigh: o.values16}
	for range threads {
		t.scratch = append(t.scratch, &scratch{
			scores: make([]float32, tileRows*scoreStride(context)),
			tile:   make([]float32, outputRows*panelWidth),
		})
	}
	for i := 1; i < threads; i++ {
		h := &helper{wake: make(chan struct{}, 1)}
		t.helpers = append(t.helpers, h)
		t.ended.Add(1)
		go t.help(i, h)
	}
	return t
}

// Close ends the team's goroutines and waits for them. The team must be idle.
func (t *Team) Close() {
	t.closed.Store(true)
	for _, h := range t.helpers {
		h.unpark()
	}
	t.ended.Wait()
}

// Threads is the number of threads, the caller's included.
func (t *Team) Threads() int { return len(t.scratch) }

// Instructions names the instruction set the team's loops use.
func (t *Team) Instructions() string { return t.ops.name }

// Run does units 0 to units-1 of task and returns when all are done.
func (t *Team) Run(units int, task Task) {
	if len(t.helpers) == 0 || units <= 1 {
		for i := range units {
			task.Unit(0, i)
		}
		return
	}
	t.task, t.units = task, int64(units)
	t.done.Store(0)
	n := len(t.ranges)
	for i := range t.ranges {
		t.ranges[i].word.Store(uint64(units*(i+1)/n)<<32 | uint64(units*i/n))
	}
	for _, h := range t.helpers[:min(len(t.helpers), units-1)] {
		h.unpark()
	}
	for t.take(0) {
	}
	t.wait(int64(units))
}

// take runs one unit of the current run, if one is left: the thread's own next one, or the
// last one of another's.
func (t *Team) take(thread int) bool {
	for i := range t.ranges {
		own := &t.ranges[(thread+i)%len(t.ranges)].word
		for {
			word := own.Load()
			next, end := word&(1<<32-1), word>>32
			if next >= end {
				break
			}
			unit, rest := next, word+1
			if i > 0 {
				unit, rest = end-1, word-1<<32
			}
			if !own.CompareAndSwap(word, rest) {
				continue
			}
			units := t.units // of this run: after the addition it may be another's
			t.task.Unit(thread, int(unit))
			if t.done.Add(1) == units && t.waiting.CompareAndSwap(true, false) {
				t.wake <- struct{}{}
			}
			return true
		}
	}
	return false
}

// left says whether any unit of the current run is not taken.
func (t *Team) left() bool {
	for i := range t.ranges {
		if word := t.ranges[i].word.Load(); word&(1<<32-1) < word>>32 {
			return true
		}
	}
	return false
}

// wait returns when all units of the run are done. A helper that finished the run
// before may still be about to look at waiting, so a wake-up may come early: hence the
// loop.
func (t *Team) wait(units int64) {
	for spin := 0; t.done.Load() < units; spin++ {
		if spin < spins {
			relax()
			continue
		}
		t.waiting.Store(true)
		if t.done.Load() == units && t.waiting.CompareAndSwap(true, false) {
			return
		}
		<-t.wake
	}
}

// help is the life of a helper.
func (t *Team) help(thread int, h *helper) {
	defer t.ended.Done()
	for spin := 0; !t.closed.Load(); spin++ {
		switch {
		case t.take(thread):
			spin = 0
		case spin < spins:
			relax()
		default:
			h.park(t)
			spin = 0
		}
	}
}

// park blocks until the next run. The run is looked for once more after parked is set:
// whoever starts one either sees parked, or is seen here.
func (h *helper) park(t *Team) {
	h.parked.Store(true)
	if (t.left() || t.closed.Load()) && h.parked.CompareAndSwap(true, false) {
		return
	}
	<-h.wake
}

func (h *helper) unpark() {
	if h.parked.Load() && h.parked.CompareAndSwap(true, false) {
		h.wake <- struct{}{}
	}
}
