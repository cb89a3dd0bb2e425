package engine

import (
	"errors"
	"math"
	"slices"
	"testing"

	"tailor/model"
	"tailor/model/sample"
)

// naive answers with a loop that has no cache, no batch and no blocks: logits says what
// the model makes of all tokens so far.
func naive(req Request, logits func([]int32) []float32) answer {
	tokens := slices.Clone(req.Tokens)
	want := answer{finish: FinishLength}
	for range req.MaxTokens {
		out := logits(tokens)
		row := make([]uint32, len(out))
		for j, l := range out {
			row[j] = math.Float32bits(l)
		}
		next := sample.New(req.Sampling).Sample(out, req.Tokens, tokens[len(req.Tokens):])
		tokens = append(tokens, next)
		want.tokens = append(want.tokens, next)
		want.bits = append(want.bits, row)
	}
	return want
}

func TestAnswersEqualANaiveLoop(t *testing.T) {
	m, err := tinyModel()
	if err != nil {
		t.Fatal(err)
	}
	w := m.NewWorkspace(tinyShape.Context, 1)
	defer w.Close()
	whole := func(dtype model.DType) func([]int32) []float32 {
		return func(tokens []int32) []float32 {
			kv := model.NewContiguousKVAs(dtype, tinyShape, 16, tinyShape.Context)
			return w.Forward([]model.Chunk{{Tokens: tokens, KV: kv, Logits: 1}})
		}
	}
	both := types(tiny(t))
	for _, params := range []sample.Params{greedy(), seeded(5)} {
		req := Request{Tokens: seqFrom(3, 21), MaxTokens: 30, Sampling: params, IgnoreEOS: true}
		for _, c := range []struct {
			m    subject
			want answer
		}{{path, naive(req, pathLogits)}, {both[0], naive(req, whole(model.F32))}, {both[1], naive(req, whole(model.BF16))}} {
			for _, budget := range []int{1, 2, 7, 21, 512} {
				r := newRig(t, c.m, 20, 4, Config{MaxBatchedTokens: budget})
				got := r.submit(req)
				r.finishAll()
				got.mustEqual(t, c.want)
			}
		}
	}
}

func TestStopTokens(t *testing.T) {
	base := ask(seqFrom(5, 9), 12)
	base.Sampling = greedy()
	free := lone(t, path, base)
	third := free.tokens[2]
	if slices.Index(free.tokens, third) != 2 {
		t.Fatalf("the example repeats itself: %v", free.tokens)
	}
	withEOS := path
	withEOS.shape.EOS = third
	without := path
	without.shape.EOS = -1
	cases := []struct {
		name      string
		m         subject
		stop      []int32
		ignoreEOS bool
		max       int
		want      []int32
		finish    FinishReason
	}{
		{"stop token", path, []int32{-5, third, 1000}, true, 12, free.tokens[:3], FinishStop},
		{"end of text", withEOS, nil, false, 12, free.tokens[:3], FinishStop},
		{"end of text ignored", withEOS, nil, true, 12, free.tokens, FinishLength},
		{"end of text ignored, but a stop token", withEOS, []int32{third}, true, 12, free.tokens[:3], FinishStop},
		{"no end of text", without, nil, false, 12, free.tokens, FinishLength},
		{"stop wins over length", path, []int32{third}, true, 3, free.tokens[:3], FinishStop},
		{"length", path, nil, true, 2, free.tokens[:2], FinishLength},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.m, 20, 4, Config{})
			req := base
			req.StopTokens, req.IgnoreEOS, req.MaxTokens = c.stop, c.ignoreEOS, c.max
			got := r.submit(req)
			r.finishAll()
			if !slices.Equal(got.tokens, c.want) || got.finish != c.finish {
				t.Errorf("got %v by %q, want %v by %q", got.tokens, got.finish, c.want, c.finish)
			}
			if d := r.e.Stats().Decoded; d != uint64(len(c.want)) {
				t.Errorf("%d tokens counted as decoded, want %d", d, len(c.want))
			}
		})
	}
}

func TestMaxTokensZeroFillsTheCache(t *testing.T) {
	r := newRig(t, path, 20, 4, Config{MaxBatchedTokens: 5})
	c := r.submit(ask(seqFrom(1, 13), 0))
	r.finishAll()
	if c.finish != FinishLength || len(c.tokens) != 0 || len(c.bits) != 0 || c.last.Token != -1 {
		t.Errorf("got %+v", c.answer)
	}
	stats := r.e.Stats()
	if stats.Decoded != 0 || stats.PromptComputed != 13 || stats.KV.Tokens != 12 {
		t.Errorf("stats %+v", stats)
	}
	d := r.submit(ask(join(seqFrom(1, 13), seqFrom(9, 3)), 4))
	r.finishAll()
	if d.last.Cached != 12 {
		t.Errorf("reused %d tokens, want 12", d.last.Cached)
	}
	d.mustEqual(t, lone(t, path, d.req))
}

// Running sequences get their token in every step, however long a prompt comes in.
func TestDecodesGoFirst(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 8})
	a, b := r.submit(ask(seqFrom(1, 3), 20)), r.submit(ask(seqFrom(2, 4), 20))
	r.turn()
	long := r.submit(ask(seqFrom(3, 50), 2))
	for i := 2; len(long.tokens) == 0; i++ {
		r.turn()
		if len(a.tokens) != i || len(b.tokens) != i {
			t.Fatalf("after %d turns: %d and %d tokens", i, len(a.tokens), len(b.tokens))
		}
		if i > 10 {
			t.Fatal("no token of the long prompt")
		}
	}
	// 50 tokens at 6 a step.
	if len(a.tokens) != 1+9 {
		t.Errorf("the long prompt took %d steps, want 9", len(a.tokens)-1)
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

func TestDecodesBeyondTheBudgetAreServedInOrder(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: 2, MaxSequences: 5})
	for i := range 5 {
		r.submit(ask(seqFrom(i, 2), 6))
	}
	r.finishAll()
	r.mustAllEqualLone(path)
}

func TestMaxSequencesBoundsWhatRuns(t *testing.T) {
	r := newRig(t, path, 60, 4, Config{MaxSequences: 3})
	for i := range 7 {
		r.submit(ask(seqFrom(i, 4), 3+i))
	}
	most := 0
	for r.turn() {
		most = max(most, r.e.Stats().Running)
	}
	if most != 3 {
		t.Errorf("%d ran at once, want 3", most)
	}
	r.mustAllEqualLone(path)
}

// badModel gives no usable logits for one prompt.
type badModel struct {
	forwarder
	prompt []int32
}

func (m badModel) Forward(chunks []model.Chunk) []float32 {
	out := m.forwarder.Forward(chunks)
	rest := out
	for _, c := range chunks {
		if c.Logits > 0 && slices.Equal(c.Tokens, m.prompt) {
			for i := range pathShape.Vocab {
				rest[i] = float32(math.NaN())
			}
		}
		rest = rest[c.Logits*pathShape.Vocab:]
	}
	return out
}

func TestNoLogitsEndsTheSequenceAlone(t *testing.T) {
	prompt := seqFrom(8, 6)
	m := path
	m.open = func(cfg Config) forwarder { return badModel{openPath(cfg), prompt} }
	r := newRig(t, m, 60, 4, Config{})
	good := r.submit(ask(seqFrom(1, 6), 4))
	bad := r.submit(ask(prompt, 4))
	r.finishAll()
	if bad.finish != FinishError || !errors.Is(bad.last.Err, ErrNoLogits) {
		t.Errorf("got %+v", bad.last)
	}
	good.mustEqual(t, lone(t, path, good.req))
}

// Counted by the model itself: what the stats say was computed is what ran.
func TestStatsCountEachTokenOnce(t *testing.T) {
	r := newRig(t, path, 200, 4, Config{MaxBatchedTokens: 9})
	prompt, answers := 0, 0
	for i := range 12 {
		req := ask(join(seqFrom(i%3, 10), seqFrom(20+i, i)), i)
		r.submit(req)
		prompt += len(req.Tokens)
		answers += req.MaxTokens
	}
	r.finishAll()
	stats := r.e.Stats()
	if got := stats.PromptComputed + stats.PromptReused; got != uint64(prompt) {
		t.Errorf("%d prompt tokens counted, %d were sent", got, prompt)
	}
	reused, hits := 0, 0
	for _, c := range r.calls {
		reused += c.last.Cached
		if c.last.Cached > 0 {
			hits++
		}
	}
	if stats.PromptReused != uint64(reused) || stats.RequestHits != uint64(hits) || hits == 0 {
		t.Errorf("stats %d tokens reused by %d requests, events %d by %d", stats.PromptReused, stats.RequestHits, reused, hits)
	}
	if stats.Decoded != uint64(answers) || stats.Requests != 12 {
		t.Errorf("%d decoded for %d requests, want %d for 12", stats.Decoded, stats.Requests, answers)
	}
	// Each answer's last token never runs; a request for 0 or 1 tokens runs none.
	ran := int(stats.PromptComputed)
	for _, c := range r.calls {
		ran += max(c.req.MaxTokens-1, 0)
	}
	m := r.s.forward.(*pathModel)
	if m.tokens != ran {
		t.Errorf("the model ran %d tokens, the stats say %d", m.tokens, ran)
	}
	// Logits are costly where a vocabulary is large: none that no token is chosen from.
	if m.rows != answers {
		t.Errorf("the model gave %d rows of logits for %d tokens", m.rows, answers)
	}
}
