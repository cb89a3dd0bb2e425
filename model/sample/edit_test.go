package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func randomTokens(r *rand.Rand, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.IntN(vocab))
	}
	return tokens
}

// edited is what the logits of a row become, read off the choice's own editor.
func edited(p Params, logits []float32, prompt, output []int32) []float32 {
	if e := newEditor(&p); e != nil {
		return slices.Clone(e.edit(logits, prompt, output))
	}
	return logits
}

// The values are worked out by hand from vLLM's formulas; all are exact in float32.
func TestEditByHand(t *testing.T) {
	inf := float32(math.Inf(1))
	logits := []float32{4, -2, 1, 0, 8}
	for _, tt := range []struct {
		name           string
		p              Params
		prompt, output []int32
		want           []float32
	}{
		{"nothing", Params{}, []int32{1}, []int32{1, 1}, []float32{4, -2, 1, 0, 8}},
		{"repetition: positive divided, negative multiplied, once each", Params{RepetitionPenalty: 2},
			[]int32{0, 0, 1}, []int32{1, 3, 0}, []float32{2, -4, 1, 0, 8}},
		{"repetition below 1 favours", Params{RepetitionPenalty: 0.5}, []int32{0}, []int32{1}, []float32{8, -1, 1, 0, 8}},
		{"frequency counts the output only", Params{FrequencyPenalty: 0.5}, []int32{0, 0, 4}, []int32{4, 1, 4, 4}, []float32{4, -2.5, 1, 0, 6.5}},
		{"presence counts once", Params{PresencePenalty: 1.5}, []int32{0}, []int32{4, 1, 4}, []float32{4, -3.5, 1, 0, 6.5}},
		{"negative penalties favour", Params{PresencePenalty: -1, FrequencyPenalty: -2}, nil, []int32{2, 2}, []float32{4, -2, 6, 0, 8}},
		{"bias", Params{LogitBias: map[int32]float32{1: 100, 4: -0.5}}, nil, nil, []float32{4, 98, 1, 0, 7.5}},
		{"allowed", Params{Allowed: []int32{3, 1, 3}}, nil, nil, []float32{-inf, -2, -inf, 0, -inf}},
		{"bias does not allow", Params{Allowed: []int32{3}, LogitBias: map[int32]float32{4: 100}}, nil, nil, []float32{-inf, -inf, -inf, 0, -inf}},
		{"bad word of one token", Params{BadWords: [][]int32{{4}}}, nil, nil, []float32{4, -2, 1, 0, -inf}},
		{"bad word begun", Params{BadWords: [][]int32{{2, 3, 4}}}, nil, []int32{0, 2, 3}, []float32{4, -2, 1, 0, -inf}},
		{"bad word begun in the prompt is not", Params{BadWords: [][]int32{{2, 3, 4}}}, []int32{2}, []int32{3}, []float32{4, -2, 1, 0, 8}},
		{"bad word not begun", Params{BadWords: [][]int32{{2, 3, 4}, {3, 2, 0}}}, nil, []int32{3, 3}, []float32{4, -2, 1, 0, 8}},
		// 4: ((4 + 2) / 2) - 0.5*2 - 1; the bias comes before the penalties, repetition before the others.
		{"order", Params{RepetitionPenalty: 2, FrequencyPenalty: 0.5, PresencePenalty: 1, LogitBias: map[int32]float32{0: 2, 1: 4}},
			[]int32{1}, []int32{0, 0}, []float32{1, 1, 1, 0, 8}},
		{"ids that are not there", Params{RepetitionPenalty: 2, FrequencyPenalty: 1, Allowed: []int32{9, 0, -1}, LogitBias: map[int32]float32{7: 1},
			BadWords: [][]int32{{5}, {-1}}}, []int32{77}, []int32{-5, 99}, []float32{4, -inf, -inf, -inf, -inf}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := edited(tt.p, logits, tt.prompt, tt.output); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			tt.p.TopP = 1
			if got, want := New(tt.p).Sample(logits, tt.prompt, tt.output), argmax(tt.want); got != want {
				t.Errorf("greedy takes %d, want %d", got, want)
			}
		})
	}
}

// naiveEdit is the editor's twin, token by token with maps.
func naiveEdit(p Params, logits []float32, prompt, output []int32) []float32 {
	out := make([]float32, len(logits))
	for i, l := range logits {
		id := int32(i)
		if p.Allowed != nil && !slices.Contains(p.Allowed, id) {
			l = float32(math.Inf(-1))
		}
		for _, word := range p.BadWords {
			n := len(word) - 1
			if word[n] == id && len(output) >= n && slices.Equal(output[len(output)-n:], word[:n]) {
				l = float32(math.Inf(-1))
			}
		}
		l += p.LogitBias[id]
		if rep := float32(p.RepetitionPenalty); rep != 0 && (slices.Contains(prompt, id) || slices.Contains(output, id)) {
			if l > 0 {
				l /= rep
			} else {
				l *= rep
			}
		}
		count := 0
		for _, o := range output {
			if o == id {
				count++
			}
		}
		if count > 0 {
			l -= float32(float32(p.FrequencyPenalty) * float32(count))
			l -= float32(p.PresencePenalty)
		}
		out[i] = l
	}
	return out
}

func TestEditAgainstTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const vocab = 24
	p := Params{}
	e := &editor{}
	for range 2000 {
		p = Params{}
		if r.IntN(2) == 0 {
			p.RepetitionPenalty = 0.5 + r.Float64()
		}
		if r.IntN(2) == 0 {
			p.FrequencyPenalty = 4*r.Float64() - 2
		}
		if r.IntN(2) == 0 {
			p.PresencePenalty = 4*r.Float64() - 2
		}
		if r.IntN(2) == 0 {
			p.LogitBias = map[int32]float32{int32(r.IntN(vocab)): float32(r.NormFloat64()), int32(r.IntN(vocab)): float32(r.NormFloat64())}
		}
		if r.IntN(3) == 0 {
			p.Allowed = randomTokens(r, 1+r.IntN(vocab), vocab)
		}
		for range r.IntN(4) {
			p.BadWords = append(p.BadWords, randomTokens(r, 1+r.IntN(2), 4))
		}
		logits, prompt, output := randomLogits(r, vocab), randomTokens(r, r.IntN(20), vocab), randomTokens(r, r.IntN(20), 4)
		fresh := newEditor(&p)
		if fresh == nil {
			continue
		}
		// One editor goes through all rounds: nothing of a call may be left in the next.
		fresh.row, fresh.counts = e.row, e.counts
		e = fresh
		got, want := e.edit(logits, prompt, output), naiveEdit(p, logits, prompt, output)
		if !slices.Equal(got, want) {
			t.Fatalf("%+v, prompt %v, output %v:\ngot  %v\nwant %v", p, prompt, output, got, want)
		}
	}
}

func TestValidateIDs(t *testing.T) {
	for field, p := range map[string]Params{
		"":                  {LogitBias: map[int32]float32{9: 1, 0: 1}, Allowed: []int32{9}, BadWords: [][]int32{{0, 9}}},
		"logit_bias":        {LogitBias: map[int32]float32{10: 1, 3: 1, -1: 1}},
		"allowed_token_ids": {Allowed: []int32{3, 10}},
		"bad_words":         {BadWords: [][]int32{{1, -2}}},
	} {
		err := p.ValidateIDs(10)
		var wrong *FieldError
		if field == "" {
			if err != nil {
				t.Errorf("%+v: %v", p, err)
			}
		} else if !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%+v: %v, want an error for %s", p, err, field)
		}
	}
	p := Params{LogitBias: map[int32]float32{10: 1, 12: 1, -1: 1, 11: 1}}
	for range 20 {
		if err := p.ValidateIDs(10); err.Error() != "logit_bias is token -1, want ids of 0 to 9" {
			t.Fatalf("%v", err)
		}
	}
}
