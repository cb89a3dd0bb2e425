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
//   - Each sequence is in waiting or in running, both by rank.
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
	scoring          int // of them, those that the logits of prompts may be had of
	runs             []run
	order            []candidate
	chunks           []model.Chunk
	masked           []float32 // [vocab]
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
		masked:    make([]float32, e.shape.Vocab),
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
		rows := logits[:r.logits*s.vocab]
		logits = logits[len(rows):]
		s.score(r, rows)
		if !s.commit(r) {
			continue
		}
		if r.seq.maxTokens > 0 {
			s.choose(r.seq, now, rows[len(rows)-s.vocab:])
			continue
		}
		for _, c := range r.seq.others {
			s.finish(r.seq.alone(c), now, Event{Token: noToken, Finish: FinishLength})
		}
		s.finish(r.seq, now, Event{Token: noToken, Finish: FinishLength})
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
		s.chunks = append(s.chunks, model.Chunk{
			Tokens: r.seq.tokens[start : start+r.tokens], Start: start, KV: r.seq.kv, Logits: r.logits,
		})
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
	s.stats.countStep(prefill + decode)
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

// choose samples the next token of a sequence; after the prompt, one for each choice.
func (s *scheduler) choose(seq *sequence, now time.Time, logits []float32) {
	for _, c := range seq.others {
		s.fork(seq, c, now, logits)
	}
	seq.others = nil
	s.next(seq, now, logits)
}

// next samples the sequence's next token and reports whether it goes on.
func (s *scheduler) next(seq *sequence, now time.Time, logits []float32) bool {
	if seq.observe != nil {
		seq.observe(seq.index, seq.generated(), logits)
	}
	token := s.sample(seq, logits)
	if token == sample.None {
		s.finish(seq, now, Event{Token: noToken, Finish: FinishError, Err: ErrNoLogits})
		return false
	}
	ev := Event{Token: token}
	if seq.logprobs >= 0 {
		ev.Logprobs = logprobsOf(logits, token, seq.logprobs)
	}
	if seq.generated() == 0 {
		seq.firstToken = now
	}
	seq.tokens = append(seq.tokens, token)
	s.stats.Decoded++
	switch {
	case slices.Contains(seq.stop, token):
		ev.Finish = FinishStop
	case seq.generated() == seq.maxTokens:
		ev.Finish = FinishLength
	default:
		s.send(seq, ev)
		return true
	}
	s.finish(seq, now, ev)
	return false
}

// sample depends on the sequence's own tokens, not on its place in the batch or the number
// of steps: what it draws must not depend on its company.
func (s *scheduler) sample(seq *sequence, logits []float32) int32 {
	if seq.generated() < seq.minTokens {
		copy(s.masked, logits)
		logits = s.masked
		for _, id := range seq.stop {
			if id >= 0 && int(id) < len(logits) {
				logits[id] = negInf
			}
		}
	}
	return seq.sampler.Sample(logits, seq.tokens[:seq.prompt], seq.tokens[seq.prompt:])
}

// finish ends a choice that waits or runs. The caller takes its sequence off its list.
func (s *scheduler) finish(seq *sequence, now time.Time, ev Event) {
	if seq.kv != nil {
		s.release(seq)
	}
	seq.finished = true
	s.sendAt(seq, now, ev)
}

func (s *scheduler) release(seq *sequence) {
	s.kv.Free(seq.kv)
	seq.kv = nil
}

func (s *scheduler) send(seq *sequence, ev Event) { s.sendAt(seq, time.Time{}, ev) }

// sendAt completes the event; finished is zero while the choice goes on.
func (s *scheduler) sendAt(seq *sequence, finished time.Time, ev Event) {
	ev.Choice = seq.index
	ev.Cached, ev.Cache = seq.report.Matched, seq.report
	ev.Times = seq.times
	ev.Times.FirstToken, ev.Times.Finished = seq.firstToken, finished
	if seq.index == 0 && len(seq.scores) == seq.prompt {
		ev.Prompt, seq.scores = seq.scores, nil
	}
	s.outbox = append(s.outbox, delivery{seq, ev})
}

// deliver never blocks: a channel has room for all events of its request.
func (s *scheduler) deliver() {
	for _, d := range s.outbox {
		select {
		case d.seq.events <- d.event:
		default:
			panic(fmt.Sprintf("engine: request %q has more than the %d events it can have",
				d.seq.id, cap(d.seq.events)))
		}
		if d.event.Finish == "" {
			continue
		}
		d.seq.open--
		if d.seq.open == 0 {
			close(d.seq.events)
		}
	}
	clear(s.outbox)
	s.outbox = s.outbox[:0]
}

func (s *scheduler) reset() error {
	sequences, err := s.kv.Reset()
	if errors.Is(err, kvcache.ErrHeld) {
		kv := s.kv.Stats()
		return fmt.Errorf("%w: %d blocks are held, by %d sequences", ErrHeld, kv.Held-kv.Evictable, sequences)
	}
	return err
}

// snapshot is a copy of the counts that shares nothing with the scheduler.
func (s *scheduler) snapshot() Stats {
	stats := s.stats
	stats.Running = len(s.running)
	stats.Waiting, stats.WaitingTokens = sizeOf(s.waiting)
	stats.KV = s.kv.Stats()
	return stats
}
