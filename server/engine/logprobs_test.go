package engine

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"tailor/model"
	"tailor/model/sample"
)

func count(n int) *int { return &n }

// naiveLogprobs is the definition, by sorting and summing.
func naiveLogprobs(logits []float32, token int32, most int) *TokenLogprobs {
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	all := make([]TokenLogprob, len(logits))
	for id, l := range logits {
		all[id] = TokenLogprob{int32(id), float32(float64(l) - math.Log(sum))}
	}
	out := &TokenLogprobs{Token: token, Logprob: all[token].Logprob}
	slices.SortStableFunc(all, func(a, b TokenLogprob) int { return cmp.Compare(logits[b.ID], logits[a.ID]) })
	if most > 0 {
		out.Top = all[:most]
	}
	return out
}

// mustBeNear allows for rounding, in the values alone.
func mustBeNear(t *testing.T, got, want *TokenLogprobs) {
	t.Helper()
	if got.Token != want.Token || len(got.Top) != len(want.Top) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	near := func(a, b float32) bool { return math.Abs(float64(a)-float64(b)) < 1e-5 }
	if !near(got.Logprob, want.Logprob) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want.Top {
		if got.Top[i].ID != want.Top[i].ID || !near(got.Top[i].Logprob, want.Top[i].Logprob) {
			t.Fatalf("number %d is %+v, want %+v", i, got.Top[i], want.Top[i])
		}
		if got.Top[i].ID == got.Token && got.Top[i].Logprob != got.Logprob {
			t.Fatalf("%+v: two values for one token", got)
		}
	}
}

func TestLogprobsOfARow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		logits := make([]float32, 1+rnd.IntN(60))
		for i := range logits {
			logits[i] = float32(rnd.IntN(9)) // many are equal
		}
		token, most := int32(rnd.IntN(len(logits))), rnd.IntN(len(logits)+1)
		mustBeNear(t, logprobsOf(logits, token, most), naiveLogprobs(logits, token, most))
	}
}

func TestLogprobsOfExtremes(t *testing.T) {
	inf, nan, half := float32(math.Inf(1)), float32(math.NaN()), float32(math.Log(0.5))
	cases := []struct {
		name   string
		logits []float32
		want   []TokenLogprob
	}{
		{"far from 0", []float32{1e4, 1e4}, []TokenLogprob{{0, half}, {1, half}}},
		{"far below 0", []float32{-3e38, -3e38}, []TokenLogprob{{0, half}, {1, half}}},
		{"impossible", []float32{negInf, 2, nan}, []TokenLogprob{{1, 0}, {0, negInf}, {2, negInf}}},
		{"certain", []float32{5, inf, inf}, []TokenLogprob{{1, half}, {2, half}, {0, negInf}}},
		{"nothing", []float32{nan, negInf}, []TokenLogprob{{0, negInf}, {1, negInf}}},
	}
	for _, c := range cases {
		got := logprobsOf(c.logits, 0, len(c.logits))
		if !slices.Equal(got.Top, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got.Top, c.want)
		}
	}
}

// What the sampler makes of the logits is not in the log probabilities.
func TestLogprobsAreTheModels(t *testing.T) {
	for _, most := range []int{0, 1, 7, pathShape.Vocab} {
		req := ask(seqFrom(3, 9), 12)
		req.Logprobs = &most
		seed := int64(4)
		req.Sampling = sample.Params{Temperature: 0.7, TopK: 5, TopP: 0.9, Seed: &seed, PresencePenalty: 1}
		req.StopTokens, req.MinTokens = []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 12
		r := newRig(t, path, 60, 4, Config{})
		c := r.submit(several(2, req))
		r.finishAll()
		for i := range 2 {
			tokens := slices.Clone(req.Tokens)
			for j, got := range c.choice(i).logprobs {
				mustBeNear(t, got, naiveLogprobs(pathLogits(tokens), c.choice(i).tokens[j], most))
				tokens = append(tokens, got.Token)
			}
			if len(tokens) != 9+12 {
				t.Errorf("%d tokens", len(tokens))
			}
		}
		r.mustAllEqualLone(path)
	}
}

func naiveScores(tokens []int32, most int) []*TokenLogprobs {
	scores := []*TokenLogprobs{nil}
	for i := 1; i < len(tokens); i++ {
		scores = append(scores, naiveLogprobs(pathLogits(tokens[:i]), tokens[i], most))
	}
	return scores
}

func (c *call) mustBeScored(t *testing.T, want []*TokenLogprobs) {
	t.Helper()
	if len(c.prompt) != len(want) || c.prompt[0] != nil {
		t.Fatalf("%s: %d scores for %d tokens", c.id, len(c.prompt), len(want))
	}
	for i := 1; i < len(want); i++ {
		mustBeNear(t, c.prompt[i], want[i])
	}
}

func TestPromptLogprobs(t *testing.T) {
	for _, length := range []int{1, 2, 8, 9, 60} {
		for _, maxTokens := range []int{0, 1, 4} {
			for _, budget := range []int{1, 7, 8, 200} {
				r := newRig(t, path, 60, 4, Config{MaxBatchedTokens: budget})
				req := ask(seqFrom(3, length), maxTokens)
				req.PromptLogprobs = count(3)
				c := r.submit(several(2, req))
				beside := r.submit(ask(seqFrom(4, 11), 5))
				r.finishAll()
				c.mustBeScored(t, naiveScores(req.Tokens, 3))
				r.mustAllEqualLone(path)
				beside.mustEqual(t, lone(t, path, beside.req))
			}
		}
	}
}

// Each score costs a row of logits: several long prompts take turns.
func TestScoringIsBoundedPerStep(t *testing.T) {
	m := path
	most := 0
	m.open = func(cfg Config) forwarder {
		inner := openPath(cfg).(*pathModel)
		return forwardFunc(func(chunks []model.Chunk) []float32 {
			before := inner.rows
			defer func() { most = max(most, inner.rows-before) }()
			return inner.Forward(chunks)
		})
	}
	r := newRig(t, m, 400, 4, Config{MaxBatchedTokens: 600, MaxSequences: 10})
	for i := range 3 {
		req := ask(seqFrom(i, 100+50*i), 2)
		req.PromptLogprobs = count(0)
		r.submit(req)
	}
	r.submit(ask(seqFrom(20, 200), 2))
	r.turn()
	if others := len(r.calls[3].tokens); others != 1 {
		t.Errorf("a prompt without scores has %d tokens after the first step, want 1", others)
	}
	r.finishAll()
	for _, c := range r.calls[:3] {
		c.mustBeScored(t, naiveScores(c.req.Tokens, 0))
	}
	if most < maxScoring || most > maxScoring+len(r.calls) {
		t.Errorf("at most %d rows of logits in a step, want about %d", most, maxScoring)
	}
	r.mustAllEqualLone(path)
}

// 15: log probabilities of the prompt were missing, or another's, where the prefix was
// cached.
func TestFault15PromptLogprobsDoNotReadTheCache(t *testing.T) {
	for _, m := range append(types(tiny(t)), path) {
		r := newRig(t, m, 60, 4, Config{MaxBatchedTokens: 9})
		plain := ask(seqFrom(3, 33), 4)
		scored := plain
		scored.PromptLogprobs, scored.Logprobs = count(2), count(2)
		want := lone(t, m, scored)
		if len(want.prompt) != 33 {
			t.Fatalf("%d scores", len(want.prompt))
		}
		cold := r.submit(scored)
		r.finishAll()
		// Not read, but written: others hit, and the scored one does not even then.
		warm := r.submit(plain)
		r.finishAll()
		hot := r.submit(scored)
		r.finishAll()
		for _, c := range []*call{cold, hot} {
			c.mustEqual(t, want)
			if !reflect.DeepEqual(c.prompt, want.prompt) {
				t.Errorf("%s: the scores differ", c.id)
			}
			if got := c.last.Cache; got != (CacheReport{Missed: 33, Reason: MissScored}) {
				t.Errorf("%s: %+v", c.id, got)
			}
		}
		if warm.last.Cached != 32 {
			t.Errorf("after a scored request %d tokens are reused, want 32", warm.last.Cached)
		}
		if got := r.e.Stats(); got.PromptReused != 32 || got.PromptComputed != 33+1+33 {
			t.Errorf("stats %+v", got)
		}
		// The scored one's blocks were the cache's already: it keeps none of its own.
		if kv := r.e.Stats().KV; kv.Held != kv.Cached || kv.Cached != 9 {
			t.Errorf("%d blocks are held, %d cached", kv.Held, kv.Cached)
		}
	}
}

// A prompt whose scoring is interrupted goes on where it was: what has a score is reused,
// what has none is computed.
func TestScoringGoesOnAfterPreemption(t *testing.T) {
	reused := uint64(0)
	for _, blocks := range []int{10, 11} {
		r := newRig(t, path, blocks, 4, Config{MaxBatchedTokens: 3})
		first := r.submit(ask(seqFrom(1, 8), 33))
		scored := ask(seqFrom(2, 25), 6)
		scored.PromptLogprobs = count(1)
		c := r.submit(several(2, scored))
		for r.e.Stats().Preemptions == 0 {
			r.turn()
			if len(c.prompt) > 0 {
				t.Fatal("scored before any preemption")
			}
		}
		if blocks > 10 {
			first.cancel(errGone) // or it would take all of the other's blocks by and by
		}
		r.finishAll()
		c.mustBeScored(t, naiveScores(scored.Tokens, 1))
		reused += r.e.Stats().ResumeReused
		r.mustAllEqualLone(path)
	}
	if reused == 0 {
		t.Error("nothing was reused on resuming")
	}
}

func TestMinTokens(t *testing.T) {
	base := ask(seqFrom(5, 9), 12)
	base.Sampling = greedy()
	free := lone(t, path, base)
	for minTokens := range 13 {
		r := newRig(t, path, 20, 4, Config{})
		req := base
		req.StopTokens, req.MinTokens = []int32{-1, free.tokens[2], free.tokens[4], 1000}, minTokens
		c := r.submit(req)
		r.finishAll()
		// The definition: the best token that is not forbidden, and the end as soon as
		// one that ends is sampled after that.
		tokens := slices.Clone(req.Tokens)
		want := []int32{}
		for i := range 12 {
			logits := pathLogits(tokens)
			if i < minTokens {
				for _, id := range []int32{free.tokens[2], free.tokens[4]} {
					logits[id] = negInf
				}
			}
			next := sample.New(greedy()).Sample(logits, nil, nil)
			tokens, want = append(tokens, next), append(want, next)
			if slices.Contains(req.StopTokens, next) {
				break
			}
		}
		if !slices.Equal(c.tokens, want) || len(want) < minTokens {
			t.Errorf("at least %d: got %v, want %v", minTokens, c.tokens, want)
		}
	}
	// All that can be chosen is forbidden.
	req := base
	req.MinTokens, req.Sampling.Allowed = 1, []int32{7}
	req.StopTokens = []int32{7}
	r := newRig(t, path, 20, 4, Config{})
	c := r.submit(req)
	r.finishAll()
	if !errors.Is(c.last.Err, ErrNoLogits) {
		t.Errorf("got %+v", c.last)
	}
}
