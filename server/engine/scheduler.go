package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"tailor/kvcache"
	"tailor/model"
	"tailor/model/sample"
)

// scheduler is the state of the step loop. One goroutine owns it; it has no lock.
//
//   - Each sequence is in waiting or in running, both in order of arrival.
//   - A sequence holds blocks if and only if it is in running.
//   - runs is this step's plan: every sequence in it is running, none is in it twice.
//   - outbox holds events until the counts that belong to them are published.
type scheduler struct {
	cfg       Config
	vocab     int
	blockSize int
	kv        *kvcache.Manager
	forward   forwarder
	log       *slog.Logger

	waiting, running []*sequence
	budget           int // tokens that the plan can still take
	runs             []run
	chunks           []model.Chunk
	outbox           []delivery
	stats            Stats
}

type delivery struct {
	seq   *sequence
	event Event
}

func newScheduler(e *Engine) *scheduler {
	return &scheduler{
		cfg:       e.cfg,
		vocab:     e.shape.Vocab,
		blockSize: e.blockSize,
		kv:        e.kv,
		forward:   e.open(e.cfg),
		log:       e.log,
	}
}

func (s *scheduler) idle() bool { return len(s.waiting)+len(s.running) == 0 }

// step runs the model once over the plan; false means that there is nothing to run.
func (s *scheduler) step() bool {
	if len(s.runs) == 0 {
		return false
	}
	logits := s.compute()
	now := time.Now()
	for _, r := range s.runs {
		if s.commit(r) {
			if r.seq.maxTokens == 0 {
				s.finish(r.seq, now, Event{Token: noToken, Finish: FinishLength})
				continue
			}
			s.choose(r.seq, now, logits[:s.vocab])
			logits = logits[s.vocab:]
		}
	}
	s.running = slices.DeleteFunc(s.running, func(seq *sequence) bool { return seq.finished })
	clear(s.runs) // or they would keep finished sequences alive
	return true
}

// compute runs the plan through the model and accounts for the time.
func (s *scheduler) compute() []float32 {
	s.chunks = s.chunks[:0]
	prefill, decode := 0, 0
	for _, r := range s.runs {
		start := r.seq.kv.Computed()
		end := start + r.tokens
		c := model.Chunk{Tokens: r.seq.tokens[start:end], Start: start, KV: r.seq.kv}
		if end == len(r.seq.tokens) && r.seq.maxTokens > 0 {
			c.Logits = 1
		}
		s.chunks = append(s.chunks, c)
		if r.decode {
			decode += r.tokens
		} else {
			prefill += r.tokens
		}
	}
	before := cpuClock()
	logits := s.forward.Forward(s.chunks)
	used := (cpuClock() - before) * time.Duration(s.cfg.Threads)
	clear(s.chunks)

	forPrefill := used * time.Duration(prefill) / time.Duration(prefill+decode)
	s.stats.PrefillCPU += forPrefill
	s.stats.DecodeCPU += used - forPrefill
	s.stats.Steps++
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("step", "number", s.stats.Steps, "prefill_tokens", prefill, "decode_tokens", decode,
			"running", len(s.running), "waiting", len(s.waiting), "cpu", used)
	}
	return logits
}

// commit makes what was computed the cache's own, at once, so that others can reuse it.
// It reports whether all tokens of the sequence have been run.
func (s *scheduler) commit(r run) bool {
	seq := r.seq
	start := seq.kv.Computed()
	end := start + r.tokens
	s.kv.Commit(seq.kv, r.tokens)

	again := min(max(seq.seen-start, 0), r.tokens)
	s.stats.Recomputed += uint64(again)
	s.stats.PromptComputed += uint64(max(min(end, seq.prompt)-(start+again), 0))
	seq.seen = max(seq.seen, end)
	seq.prefilling = end < len(seq.tokens)
	return !seq.prefilling
}

// choose samples the sequence's next token.
func (s *scheduler) choose(seq *sequence, now time.Time, logits []float32) {
	index := seq.generated()
	if seq.observe != nil {
		seq.observe(index, logits)
	}
	// The index, not the place in the batch or the number of steps: what a sequence
	// draws must not depend on its company.
	token := seq.sampler.Sample(logits, index)
	if token == sample.None {
		s.finish(seq, now, Event{Token: noToken, Finish: FinishError, Err: ErrNoLogits})
		return
	}
	seq.tokens = append(seq.tokens, token)
	s.stats.Decoded++
	if index == 0 {
		seq.times.FirstToken = now
	}
	switch {
	case slices.Contains(seq.stop, token):
		s.finish(seq, now, Event{Token: token, Finish: FinishStop})
	case seq.generated() == seq.maxTokens:
		s.finish(seq, now, Event{Token: token, Finish: FinishLength})
	default:
		s.send(seq, Event{Token: token})
	}
}

// finish ends a sequence that waits or runs. The caller takes it off its list.
func (s *scheduler) finish(seq *sequence, now time.Time, ev Event) {
	if seq.kv != nil {
		s.release(seq)
	}
	seq.finished = true
	seq.times.Finished = now
	s.send(seq, ev)
}

func (s *scheduler) release(seq *sequence) {
	s.kv.Free(seq.kv)
	seq.kv = nil
}

func (s *scheduler) send(seq *sequence, ev Event) {
	ev.Cached = seq.cached
	ev.Times = seq.times
	s.outbox = append(s.outbox, delivery{seq, ev})
}

// deliver never blocks: a channel has room for all events of its sequence.
func (s *scheduler) deliver() {
	for _, d := range s.outbox {
		select {
		case d.seq.events <- d.event:
		default:
			panic(fmt.Sprintf("engine: request %q has more than the %d events it can have",
				d.seq.id, cap(d.seq.events)))
		}
		if d.event.Finish != "" {
			close(d.seq.events)
		}
	}
	clear(s.outbox)
	s.outbox = s.outbox[:0]
}

// abortCancelled ends the sequences whose callers have gone.
func (s *scheduler) abortCancelled() {
	s.abort(func(seq *sequence) error {
		if seq.ctx.Err() == nil {
			return nil
		}
		return context.Cause(seq.ctx)
	})
}

func (s *scheduler) abortAll(cause error) {
	s.abort(func(*sequence) error { return cause })
}

// abort ends the sequences for which there is a cause.
func (s *scheduler) abort(causeOf func(*sequence) error) {
	now := time.Now()
	hasEnded := func(seq *sequence) bool {
		cause := causeOf(seq)
		if cause == nil {
			return false
		}
		phase := seq.phase()
		s.stats.Aborts.count(phase)
		s.log.Info("aborted", "request", seq.id, "phase", phase, "cause", cause,
			"prompt_tokens", seq.prompt, "generated_tokens", seq.generated())
		s.finish(seq, now, Event{Token: noToken, Finish: FinishAbort, Err: cause})
		return true
	}
	s.waiting = slices.DeleteFunc(s.waiting, hasEnded)
	s.running = slices.DeleteFunc(s.running, hasEnded)
}

func (s *scheduler) reset() error {
	held, err := s.kv.Reset()
	if errors.Is(err, kvcache.ErrHeld) {
		return fmt.Errorf("%w: %d blocks are held", ErrHeld, held)
	}
	return err
}

// snapshot is a copy of the counts that shares nothing with the scheduler.
func (s *scheduler) snapshot() Stats {
	stats := s.stats
	stats.Running, stats.Waiting = len(s.running), len(s.waiting)
	stats.KV = s.kv.Stats()
	return stats
}
