package sample

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func seeded(n int64) *int64 { return &n }

// steps is an output of any length, where only the length counts.
var steps = make([]int32, 40_000)

// exact is the distribution that Params asks for, computed by sorting and summing; it
// shares nothing with the sampler but the definitions.
func exact(p Params, logits []float32) []float64 {
	ids := make([]int, 0, len(logits))
	for id, l := range logits {
		if !math.IsNaN(float64(l)) && !math.IsInf(float64(l), -1) {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	ids = slices.DeleteFunc(ids, func(id int) bool {
		return math.Exp(float64(logits[id])/p.Temperature) < p.MinP*math.Exp(float64(logits[ids[0]])/p.Temperature)
	})
	if p.TopK > 0 && p.TopK < len(ids) {
		ids = ids[:p.TopK]
	}
	prob := make([]float64, len(logits))
	normalise := func() {
		sum := 0.0
		for _, id := range ids {
			sum += prob[id]
		}
		for _, id := range ids {
			prob[id] /= sum
		}
	}
	for _, id := range ids {
		prob[id] = math.Exp(float64(logits[id]-logits[ids[0]]) / p.Temperature)
	}
	normalise()
	mass := 0.0
	for i, id := range ids {
		if mass >= p.TopP {
			for _, cut := range ids[i:] {
				prob[cut] = 0
			}
			ids = ids[:i]
			break
		}
		mass += prob[id]
	}
	normalise()
	return prob
}

// pValue is the chance of counts this far from prob, by Pearson's chi-square. A token
// that cannot occur and does gives 0; those expected fewer than 5 times are pooled.
func pValue(t *testing.T, counts []int, prob []float64) float64 {
	t.Helper()
	total := 0
	for _, c := range counts {
		total += c
	}
	chi, cells := 0.0, 0
	rareCount, rareExpected := 0.0, 0.0
	for id, c := range counts {
		expected := prob[id] * float64(total)
		switch {
		case prob[id] == 0 && c > 0:
			t.Errorf("token %d has probability 0 and came %d times", id, c)
			return 0
		case expected < 5:
			rareCount += float64(c)
			rareExpected += expected
		default:
			chi += (float64(c) - expected) * (float64(c) - expected) / expected
			cells++
		}
	}
	if rareExpected >= 5 {
		chi += (rareCount - rareExpected) * (rareCount - rareExpected) / rareExpected
		cells++
	}
	if cells < 2 {
		return 1
	}
	return distuv.ChiSquared{K: float64(cells - 1)}.Survival(chi)
}

func randomLogits(r *rand.Rand, n int) []float32 {
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 2)
	}
	return logits
}

func TestSampleFollowsTheDistribution(t *testing.T) {
	logits := randomLogits(rand.New(rand.NewPCG(1, 2)), 40)
	logits[3], logits[17] = float32(math.NaN()), float32(math.Inf(-1))
	logits[8] = logits[9] // a tie
	cases := []Params{
		{Temperature: 1, TopP: 1},
		{Temperature: 0.3, TopP: 1},
		{Temperature: 2, TopP: 1, TopK: -1},
		{Temperature: 1, TopP: 1, TopK: 5},
		{Temperature: 1, TopP: 1, TopK: 1},
		{Temperature: 1, TopP: 1, TopK: 40},
		{Temperature: 1, TopP: 1, TopK: 41},
		{Temperature: 1, TopP: 0.9},
		{Temperature: 1.5, TopP: 0.5},
		{Temperature: 1, TopP: 1e-9},
		{Temperature: 1.2, TopP: 0.7, TopK: 7},
		{Temperature: 1, TopP: 1, MinP: 0.05},
		{Temperature: 1.7, TopP: 1, MinP: 0.1},
		{Temperature: 1, TopP: 1, MinP: 1},
		{Temperature: 1.5, TopP: 0.9, TopK: 6, MinP: 0.02},
	}
	draws := 40_000
	if testing.Short() {
		draws = 10_000
	}
	for _, p := range cases {
		prob := exact(p, logits)
		// The two ways in which randomness is used: along one sequence, and across
		// requests that are seeded one after the other.
		t.Run(fmt.Sprintf("T=%v,k=%d,p=%v,min=%v", p.Temperature, p.TopK, p.TopP, p.MinP), func(t *testing.T) {
			along, across := make([]int, len(logits)), make([]int, len(logits))
			p.Seed = seeded(11)
			s := New(p)
			for i := range draws {
				along[s.Sample(logits, nil, steps[:i])]++
			}
			for i := range draws {
				p.Seed = seeded(int64(i))
				across[New(p).Sample(logits, nil, nil)]++
			}
			for name, counts := range map[string][]int{"along": along, "across": across} {
				if got := pValue(t, counts, prob); got < 1e-3 {
					t.Errorf("%s: p-value %.2g\ncounts %v\nprob %.4f", name, got, counts, prob)
				}
			}
		})
	}
}

// Neighbouring tokens, and neighbouring seeds at one token, must be independent.
func TestUniformIsIndependent(t *testing.T) {
	const side, draws = 8, 64_000
	flat := make([]float64, side*side)
	for i := range flat {
		flat[i] = 1.0 / float64(len(flat))
	}
	cell := func(u float64) int {
		if u < 0 || u >= 1 {
			t.Fatalf("uniform gave %v", u)
		}
		return int(u * side)
	}
	tokens, seeds, shifted := make([]int, side*side), make([]int, side*side), make([]int, side*side)
	for i := range draws {
		n := int64(i)
		tokens[cell(uniform(5, i))*side+cell(uniform(5, i+1))]++
		seeds[cell(uniform(n, 3))*side+cell(uniform(n+1, 3))]++
		shifted[cell(uniform(n, 3))*side+cell(uniform(n+1, 2))]++
	}
	for name, counts := range map[string][]int{"tokens": tokens, "seeds": seeds, "shifted": shifted} {
		if got := pValue(t, counts, flat); got < 1e-3 {
			t.Errorf("%s: p-value %.2g, counts %v", name, got, counts)
		}
	}
}

// The values are those published for SplitMix64 with seed 1234567 (Rosetta Code,
// "Pseudo-random numbers/Splitmix64").
func TestSplitmixMatchesPublishedValues(t *testing.T) {
	want := []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423,
		4593380528125082431, 16408922859458223821,
	}
	for i, w := range want {
		if got := splitmix(1234567, uint64(i)); got != w {
			t.Errorf("output %d is %d, want %d", i, got, w)
		}
	}
}

// What came before, and other samplers in between, change nothing.
func TestSampleDependsOnSeedAndIndexAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := Params{Temperature: 1.3, TopK: 20, TopP: 0.95, Seed: seeded(-9)}
	rows := make([][]float32, 50)
	want := make([]int32, len(rows))
	for i := range rows {
		rows[i] = randomLogits(r, 100)
		want[i] = New(p).Sample(rows[i], nil, steps[:i])
	}
	s := New(p)
	for _, i := range r.Perm(len(rows)) {
		before := slices.Clone(rows[i])
		if got := s.Sample(rows[i], nil, steps[:i]); got != want[i] {
			t.Errorf("token %d is %d, alone it is %d", i, got, want[i])
		}
		if !slices.Equal(before, rows[i]) {
			t.Fatalf("Sample changed the logits of row %d", i)
		}
	}
}

func TestGreedy(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		name   string
		logits []float32
		want   int32
	}{
		{"highest", []float32{1, 3, 2}, 1},
		{"tie goes to the lowest id", []float32{0, 5, 5, 5}, 1},
		{"zeros of both signs tie", []float32{float32(math.Copysign(0, -1)), 0}, 0},
		{"NaN first", []float32{nan, 1, 2}, 2},
		{"NaN last", []float32{2, 1, nan}, 0},
		{"infinite", []float32{1, inf, inf, nan}, 1},
		{"one above -Inf", []float32{-inf, -1e30, -inf}, 1},
		{"nothing usable", []float32{nan, -inf, nan}, None},
		{"empty", nil, None},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := New(Params{TopP: 1}).Sample(c.logits, nil, nil); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// At any temperature, what cannot be weighed must neither be chosen nor break the sum.
func TestSampleSurvivesBadLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		logits []float32
		want   []int32
	}{
		{[]float32{nan, -inf}, []int32{None}},
		{nil, []int32{None}},
		{[]float32{1, inf, nan, inf}, []int32{1}},
		{[]float32{nan, 0, nan, 0}, []int32{1, 3}},
		{[]float32{math.MaxFloat32, -math.MaxFloat32, nan}, []int32{0}},
	}
	for _, c := range cases {
		for _, p := range []Params{
			{Temperature: 1, TopP: 1},
			{Temperature: 2, TopP: 0.99, TopK: 3},
			{Temperature: math.SmallestNonzeroFloat64, TopP: 0.5},
		} {
			for seed := range int64(50) {
				p.Seed = &seed
				if got := New(p).Sample(c.logits, nil, nil); !slices.Contains(c.want, got) {
					t.Fatalf("%v with %+v: got %d, want one of %v", c.logits, p, got, c.want)
				}
			}
		}
	}
}

func TestTopKTieKeepsLowestIDs(t *testing.T) {
	logits := []float32{1, 7, 7, 7, 7}
	for seed := range int64(200) {
		got := New(Params{Temperature: 1, TopK: 2, TopP: 1, Seed: &seed}).Sample(logits, nil, nil)
		if got != 1 && got != 2 {
			t.Fatalf("seed %d: got %d, want 1 or 2", seed, got)
		}
	}
}

// "The fewest that hold at least this share": exactly the share is enough.
func TestTopPKeepsNoMoreThanNeeded(t *testing.T) {
	for seed := range int64(200) {
		got := New(Params{Temperature: 1, TopP: 0.5, Seed: &seed}).Sample([]float32{2, 2, 2, 2}, nil, nil)
		if got != 0 && got != 1 {
			t.Fatalf("seed %d: got %d, want 0 or 1", seed, got)
		}
	}
}

func TestSampleDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	logits, prompt, output := randomLogits(r, 1000), randomTokens(r, 300, 1000), randomTokens(r, 300, 1000)
	for _, p := range []Params{
		{TopP: 1},
		{Temperature: 1, TopP: 1, Seed: seeded(1)},
		{Temperature: 1, TopP: 0.9, Seed: seeded(1)},
		{Temperature: 1, TopK: 50, TopP: 0.9, Seed: seeded(1)},
		{TopP: 1, RepetitionPenalty: 1.2, FrequencyPenalty: 1, PresencePenalty: -1},
		{
			Temperature: 1, MinP: 0.01, TopP: 0.9, Seed: seeded(1), RepetitionPenalty: 1.2, Allowed: prompt,
			LogitBias: map[int32]float32{1: 2, 7: -100}, BadWords: [][]int32{{1}, {2, 3, 4}},
		},
	} {
		s, i := New(p), 0
		s.Sample(logits, nil, nil)
		if got := testing.AllocsPerRun(100, func() { i++; s.Sample(logits, prompt, output[:i]) }); got != 0 {
			t.Errorf("%+v: %v allocations a token", p, got)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	nan := math.NaN()
	cases := []struct {
		p     Params
		field string // "": valid
	}{
		{Params{TopP: 1}, ""},
		{Params{Temperature: 2, TopP: 1e-300, TopK: -1}, ""},
		{Params{Temperature: -0.1, TopP: 1}, "temperature"},
		{Params{Temperature: 2.1, TopP: 1}, "temperature"},
		{Params{Temperature: nan, TopP: 1}, "temperature"},
		{Params{TopP: 0}, "top_p"},
		{Params{TopP: 1.1}, "top_p"},
		{Params{TopP: nan}, "top_p"},
		{Params{TopP: 1, TopK: -2}, "top_k"},
		{Params{TopP: 1, MinP: 1, RepetitionPenalty: 1e9, FrequencyPenalty: -2, PresencePenalty: 2}, ""},
		{Params{TopP: 1, LogitBias: map[int32]float32{1: 100, 2: -100}, Allowed: []int32{3}, BadWords: [][]int32{{1}}}, ""},
		{Params{TopP: 1, MinP: 1.1}, "min_p"},
		{Params{TopP: 1, MinP: -0.1}, "min_p"},
		{Params{TopP: 1, MinP: nan}, "min_p"},
		{Params{TopP: 1, RepetitionPenalty: -1}, "repetition_penalty"},
		{Params{TopP: 1, RepetitionPenalty: math.Inf(1)}, "repetition_penalty"},
		{Params{TopP: 1, RepetitionPenalty: nan}, "repetition_penalty"},
		{Params{TopP: 1, FrequencyPenalty: 2.1}, "frequency_penalty"},
		{Params{TopP: 1, FrequencyPenalty: nan}, "frequency_penalty"},
		{Params{TopP: 1, PresencePenalty: -2.1}, "presence_penalty"},
		{Params{TopP: 1, PresencePenalty: nan}, "presence_penalty"},
		{Params{TopP: 1, LogitBias: map[int32]float32{1: 100.5}}, "logit_bias"},
		{Params{TopP: 1, LogitBias: map[int32]float32{1: float32(nan)}}, "logit_bias"},
		{Params{TopP: 1, Allowed: []int32{}}, "allowed_token_ids"},
		{Params{TopP: 1, BadWords: [][]int32{{1}, {}}}, "bad_words"},
	}
	for _, c := range cases {
		err := c.p.Validate()
		var field *FieldError
		if c.field == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.p, err)
			}
		} else if !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%+v: got %v, want an error for %s", c.p, err, c.field)
		}
	}
}

func TestNewPanicsOnCallerBugs(t *testing.T) {
	for _, p := range []Params{{Temperature: 3, TopP: 1}, {Temperature: 1, TopP: 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%+v) did not panic", p)
				}
			}()
			New(p)
		}()
	}
}

func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	logits, prompt, output := randomLogits(r, 50257), randomTokens(r, 500, 50257), randomTokens(r, 500, 50257)
	for _, p := range []Params{
		{TopP: 1, RepetitionPenalty: 1.1, PresencePenalty: 0.5},
		{TopP: 1},
		{Temperature: 1, TopP: 1, Seed: seeded(1)},
		{Temperature: 1, TopP: 0.9, Seed: seeded(1)},
		{Temperature: 1, TopK: 50, TopP: 0.9, Seed: seeded(1)},
	} {
		b.Run(fmt.Sprintf("T=%v,k=%d,p=%v,rep=%v", p.Temperature, p.TopK, p.TopP, p.RepetitionPenalty), func(b *testing.B) {
			s := New(p)
			for i := range b.N {
				s.Sample(logits, prompt, output[:i%500])
			}
		})
	}
}
