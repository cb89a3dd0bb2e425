package server

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"tailor/internal/openai"
	"tailor/server/engine"
)

const table = `"prompt":"User: I would like to book a table for two people in San Jose tonight.\nAssistant:"`

// The choices of n are those that their seeds give alone, in order, streamed or not.
func TestChoicesAreTheirSeeds(t *testing.T) {
	r, e := realRig(t, 256)
	out := r.complete(`"prompt":["the cat","a dog ran"],"n":3,"seed":40,"max_tokens":9`)
	chunks, _ := r.chunks(`,"prompt":["the cat","a dog ran"],"n":3,"seed":40,"max_tokens":9`)
	if len(out.Choices) != 6 || out.Usage.CompletionTokens > 54 {
		t.Fatalf("%d choices, usage %+v", len(out.Choices), out.Usage)
	}
	different := map[string]bool{}
	for i, c := range out.Choices {
		alone := r.complete(fmt.Sprintf(`"prompt":%q,"seed":%d,"max_tokens":9`, []string{"the cat", "a dog ran"}[i/3], 40+i%3))
		if c.Index != i || c.Text != alone.Choices[0].Text || joined(chunks, i) != c.Text {
			t.Errorf("choice %d: index %d, %q, streamed %q; alone %q", i, c.Index, c.Text, joined(chunks, i), alone.Choices[0].Text)
		}
		different[c.Text] = true
	}
	if len(different) < 5 {
		t.Errorf("only %d different texts", len(different))
	}
	if prompt := out.Usage.PromptTokens; prompt != promptLength(t, "the cat")+promptLength(t, "a dog ran") {
		t.Errorf("%d prompt tokens: each prompt counts once", prompt)
	}
	mustBeIdle(t, e)
}

func promptLength(t *testing.T, text string) int {
	t.Helper()
	ids, err := tokens(t).Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	return len(ids)
}

// best_of keeps those of the highest sum of logprobs, best first.
func TestBestOf(t *testing.T) {
	r, e := realRig(t, 256)
	all := r.complete(table + `,"n":6,"seed":7,"max_tokens":8,"logprobs":0`)
	sum := func(c openai.Choice) (s float64) {
		for _, l := range c.Logprobs.TokenLogprobs {
			s += float64(*l)
		}
		return s
	}
	want := slices.Clone(all.Choices)
	slices.SortStableFunc(want, func(a, b openai.Choice) int {
		if sum(a) > sum(b) {
			return -1
		}
		return 1
	})
	got := r.complete(table + `,"n":2,"best_of":6,"seed":7,"max_tokens":8`)
	if len(got.Choices) != 2 {
		t.Fatalf("%d choices", len(got.Choices))
	}
	for i, c := range got.Choices {
		if c.Text != want[i].Text || c.Index != i || c.Logprobs != nil {
			t.Errorf("choice %d is %+v, want %q", i, c, want[i].Text)
		}
	}
	if got.Usage.CompletionTokens != all.Usage.CompletionTokens {
		t.Errorf("%d tokens counted, want those of all six: %d", got.Usage.CompletionTokens, all.Usage.CompletionTokens)
	}
	mustBeIdle(t, e)
}

// Echo begins the text with the prompt, and the lists with its tokens; offsets point to
// where each token's text stands.
func TestEchoAndOffsets(t *testing.T) {
	r, e := realRig(t, 256)
	plain := r.complete(table + `,"seed":3,"max_tokens":7,"logprobs":2`)
	echoed := r.complete(table + `,"seed":3,"max_tokens":7,"logprobs":2,"echo":true`)
	prompt := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(table, `"prompt":"`), `"`), `\n`, "\n")
	if got := echoed.Choices[0].Text; got != prompt+plain.Choices[0].Text {
		t.Errorf("echoed %q", got)
	}
	n := promptLength(t, prompt)
	l := echoed.Choices[0].Logprobs
	if len(l.Tokens) != n+7 || l.TokenLogprobs[0] != nil || l.TopLogprobs[0] != nil || l.TokenLogprobs[1] == nil {
		t.Fatalf("%d tokens for %d and 7: %+v", len(l.Tokens), n, l)
	}
	for i, name := range l.Tokens {
		if rest := []rune(echoed.Choices[0].Text)[l.TextOffset[i]:]; !strings.HasPrefix(string(rest), name) {
			t.Errorf("token %d %q at %d: there is %.10q", i, name, l.TextOffset[i], string(rest))
		}
	}
	for i := range 7 {
		if *l.TokenLogprobs[n+i] != *plain.Choices[0].Logprobs.TokenLogprobs[i] {
			t.Errorf("token %d: %v with echo, %v without", i, *l.TokenLogprobs[n+i], *plain.Choices[0].Logprobs.TokenLogprobs[i])
		}
	}
	chunks, _ := r.chunks("," + table + `,"seed":3,"max_tokens":7,"logprobs":2,"echo":true`)
	var streamed openai.Logprobs
	for _, c := range chunks {
		p := c.Choices[0].Logprobs
		streamed.Tokens, streamed.TextOffset = append(streamed.Tokens, p.Tokens...), append(streamed.TextOffset, p.TextOffset...)
		streamed.TokenLogprobs, streamed.TopLogprobs = append(streamed.TokenLogprobs, p.TokenLogprobs...), append(streamed.TopLogprobs, p.TopLogprobs...)
	}
	if joined(chunks, 0) != echoed.Choices[0].Text || !reflect.DeepEqual(&streamed, l) {
		t.Errorf("streamed\n%+v\nwant\n%+v", streamed, *l)
	}
	for _, fields := range []string{`,"max_tokens":0,"echo":true`, `,"max_tokens":0,"echo":true,"n":2`} {
		out := r.complete(table + fields)
		for _, c := range out.Choices {
			if c.Text != prompt || *c.FinishReason != "length" || out.Usage.CompletionTokens != 0 || c.Logprobs != nil {
				t.Errorf("%s: %+v", fields, c)
			}
		}
	}
	mustBeIdle(t, e)
}

// Bytes that are no characters have names of their own, which differ where tokens do.
func TestUndecodableTokensHaveNames(t *testing.T) {
	r := newRig(t, says(slices.Concat(spell(t, "é"), []int32{testEOS}), 0))
	l := r.complete(`"max_tokens":3,"logprobs":0`).Choices[0].Logprobs
	want := []string{`bytes:\xc3`, `bytes:\xa9`, "<|endoftext|>"}
	if !slices.Equal(l.Tokens, want) || !slices.Equal(l.TextOffset, []int{0, 0, 1}) {
		t.Errorf("got %q at %v", l.Tokens, l.TextOffset)
	}
	for i, top := range l.TopLogprobs {
		if len(top) != 1 || top[0].Token != l.Tokens[i] {
			t.Errorf("top of %d: %v", i, top)
		}
	}
	if got := r.complete(`"max_tokens":2,"logprobs":3,"return_tokens_as_token_ids":true`).Choices[0].Logprobs; got.Tokens[0] != fmt.Sprintf("token_id:%d", spell(t, "\xc3")[0]) || len(got.TopLogprobs[0]) != 4 {
		t.Errorf("as ids: %+v", got)
	}
	names := map[string]int32{}
	for id := range int32(tokens(t).VocabSize()) {
		name := r.tokenName(id, false)
		if other, twice := names[name]; twice {
			t.Errorf("tokens %d and %d are both called %q", id, other, name)
		}
		if !utf8.ValidString(name) {
			t.Errorf("token %d is called %q", id, name)
		}
		names[name] = id
	}
}

// -Inf is -9999.0, a number that clients can read.
func TestImpossibleTokens(t *testing.T) {
	e := &scriptedEngine{}
	id := spell(t, "a")[0]
	e.script = func(_ context.Context, _ engine.Request, out chan<- engine.Event) {
		l := &engine.TokenLogprobs{Token: id, Logprob: float32(math.Inf(-1)), Top: []engine.TokenLogprob{{ID: 5, Logprob: float32(math.NaN())}}}
		out <- engine.Event{Token: id, Logprobs: l, Finish: engine.FinishLength}
	}
	a := newRig(t, e).do("POST", "/v1/completions", request(`"max_tokens":1,"logprobs":1`))
	if !strings.Contains(a.body, `"token_logprobs":[-9999.0]`) || !strings.Contains(a.body, `:-9999.0,"a":-9999.0}`) {
		t.Errorf("%s", a.body)
	}
}

// What steers the choice of tokens does.
func TestSteering(t *testing.T) {
	r, e := realRig(t, 256)
	ids := func(fields string) []int32 {
		t.Helper()
		return r.complete(table + `,"seed":11,"max_tokens":20,"return_token_ids":true,"ignore_eos":true` + fields).Choices[0].TokenIDs
	}
	free := ids("")
	if len(free) != 20 {
		t.Fatalf("%d tokens", len(free))
	}
	if got := ids(fmt.Sprintf(`,"logit_bias":{"%d":-100}`, free[0])); slices.Contains(got, free[0]) {
		t.Errorf("a bias of -100 lets %d through: %v", free[0], got)
	}
	if got := ids(`,"logit_bias":{"300":100}`); slices.ContainsFunc(got, func(id int32) bool { return id != 300 }) {
		t.Errorf("a bias of 100 gives %v", got)
	}
	if got := ids(`,"allowed_token_ids":[300,301,302]`); slices.ContainsFunc(got, func(id int32) bool { return id < 300 || id > 302 }) {
		t.Errorf("allowed_token_ids gives %v", got)
	}
	if got := ids(`,"temperature":0,"repetition_penalty":100`); len(unique(got)) != 20 {
		t.Errorf("a repetition penalty of 100 repeats: %v", got)
	}
	if got := ids(`,"allowed_token_ids":[300,301],"frequency_penalty":2,"temperature":0`); len(unique(got)) != 2 {
		t.Errorf("a frequency penalty does not alternate: %v", got)
	}
	word := strings.TrimSpace(tokens(t).Decode(free[:1]))
	if got := tokens(t).Decode(ids(fmt.Sprintf(`,"bad_words":[%q]`, word))); strings.HasPrefix(strings.TrimSpace(got), word+" ") {
		t.Errorf("bad word %q in %q", word, got)
	}
	if a, b := ids(`,"min_p":1`), ids(`,"temperature":0`); !slices.Equal(a, b) {
		t.Errorf("min_p 1 is not greedy: %v, %v", a, b)
	}
	if a := ids(`,"min_p":0,"presence_penalty":0,"frequency_penalty":0,"repetition_penalty":1,"logit_bias":{},"bad_words":[]`); !slices.Equal(a, free) {
		t.Errorf("defaults change the answer: %v, %v", a, free)
	}
	mustBeIdle(t, e)
}

func unique(ids []int32) []int32 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

func TestStopTokensAndMinTokens(t *testing.T) {
	r, e := realRig(t, 256)
	base := table + `,"seed":11,"max_tokens":20,"return_token_ids":true,"ignore_eos":true`
	free := r.complete(base).Choices[0]
	at := slices.Index(free.TokenIDs, free.TokenIDs[6]) // its first
	stop := free.TokenIDs[6]
	got := r.complete(base + fmt.Sprintf(`,"stop_token_ids":[%d]`, stop)).Choices[0]
	before := tokens(t).Decode(free.TokenIDs[:at])
	if got.Text != before || got.StopReason != float64(stop) || *got.FinishReason != "stop" || len(got.TokenIDs) != at+1 {
		t.Errorf("got %+v, want %q", got, before)
	}
	got = r.complete(base + fmt.Sprintf(`,"stop_token_ids":[%d],"include_stop_str_in_output":true`, stop)).Choices[0]
	if want := tokens(t).Decode(free.TokenIDs[:at+1]); got.Text != want {
		t.Errorf("got %q, want %q", got.Text, want)
	}
	got = r.complete(base + fmt.Sprintf(`,"stop_token_ids":[%d],"min_tokens":15`, stop)).Choices[0]
	if len(got.TokenIDs) < 15 || slices.Contains(got.TokenIDs[:15], stop) {
		t.Errorf("min_tokens: %v", got.TokenIDs)
	}
	// Stop strings are looked for in what follows the least number of tokens.
	word := strings.TrimSpace(tokens(t).Decode(free.TokenIDs[2:3]))
	got = r.complete(base + fmt.Sprintf(`,"stop":[%q],"min_tokens":20`, word)).Choices[0]
	if got.Text != free.Text {
		t.Errorf("got %q, want %q", got.Text, free.Text)
	}
	got = r.complete(base + fmt.Sprintf(`,"stop":[%q],"include_stop_str_in_output":true`, word)).Choices[0]
	if want := free.Text[:strings.Index(free.Text, word)+len(word)]; got.Text != want || got.StopReason != word {
		t.Errorf("got %q, %v; want %q", got.Text, got.StopReason, want)
	}
	mustBeIdle(t, e)
}

func TestTruncatedPromptsAndTokenIDs(t *testing.T) {
	e := says(spell(t, "ab"), 0)
	r := newRig(t, e)
	long := strings.TrimSuffix(strings.Repeat("7,", 2000), ",") + ",8,9"
	for fields, want := range map[string]int{
		`"truncate_prompt_tokens":5`: 5, `"truncate_prompt_tokens":-1,"max_tokens":24`: 1000, `"truncate_prompt_tokens":3000,"prompt":[1,2,8,9]`: 4,
	} {
		out := r.complete(`"prompt":[` + long + `],"return_token_ids":true,` + fields)
		ids := out.Choices[0].PromptTokenIDs
		if len(ids) != want || out.Usage.PromptTokens != want || ids[want-1] != 9 || ids[want-2] != 8 {
			t.Errorf("%s: %d tokens of the prompt, want %d", fields, len(ids), want)
		}
		if !slices.Equal(out.Choices[0].TokenIDs, spell(t, "ab")) {
			t.Errorf("%s: %v", fields, out.Choices[0].TokenIDs)
		}
	}
	chunks, body := r.chunks(`,"prompt":[1,2],"return_token_ids":true`)
	if !slices.Equal(chunks[0].Choices[0].PromptTokenIDs, []int32{1, 2}) || strings.Count(body, "prompt_token_ids") != 1 {
		t.Errorf("streamed %s", body)
	}
}

func TestContinuousUsage(t *testing.T) {
	r := newRig(t, says(spell(t, "abc"), 2))
	chunks, body := r.chunks(`,"prompt":[5,6,7],"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)
	if len(chunks) != 4 {
		t.Fatalf("%s", body)
	}
	for i, c := range chunks {
		if want := openai.NewUsage(3, min(i+1, 3), 2); !reflect.DeepEqual(c.Usage, want) {
			t.Errorf("chunk %d: usage %+v", i, c.Usage)
		}
	}
	if _, body := r.chunks(`,"stream_options":{"continuous_usage_stats":true}`); strings.Contains(body, "usage") {
		t.Errorf("usage without include_usage: %s", body)
	}
}

// Fault 15. Prompt logprobs are those of a cold run, whatever is cached.
func TestFault15_PromptLogprobsDoNotReadTheCache(t *testing.T) {
	r, e := realRig(t, 256)
	ask := func() openai.CompletionResponse {
		return r.complete(table + `,"max_tokens":2,"temperature":0,"prompt_logprobs":3`)
	}
	cold := ask()
	for range 2 {
		r.complete(table + `,"max_tokens":20,"ignore_eos":true`)
	}
	if cached, _ := r.complete(table + `,"max_tokens":1`).Usage.Cached(); cached == 0 {
		t.Error("nothing is cached: the test tests nothing")
	}
	hot := ask()
	a, b := cold.Choices[0].PromptLogprobs, hot.Choices[0].PromptLogprobs
	if len(a) != cold.Usage.PromptTokens || a[0] != nil || len(a[1]) < 3 || !reflect.DeepEqual(a, b) {
		t.Errorf("cold %+v\nhot %+v", a, b)
	}
	mustBeIdle(t, e)
}

// The joined stream is the unstreamed text, for prompts of any characters, with answers of
// characters that are cut, and stop strings that lie over the borders of tokens.
func TestJoinedStreamsEqualTexts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, e := realRig(t, 96) // a small cache, since it is proved sound at every idle moment
	const clients = 4
	rounds := 2000
	if testing.Short() {
		rounds = 120
	}
	var stopped, cut atomic.Int64
	var all sync.WaitGroup
	for client := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(client)))
		all.Go(func() {
			for range rounds / clients {
				fields, isCut := randomRequest(t, r, random)
				if isCut {
					cut.Add(1)
				}
				whole := r.complete(fields)
				chunks, body := r.chunks("," + fields)
				for j, c := range whole.Choices {
					if got := joined(chunks, j); got != c.Text || !utf8.ValidString(c.Text) {
						t.Errorf("%s, choice %d: streamed %q, whole %q\n%s", fields, j, got, c.Text, body)
						return
					}
					if c.StopReason != nil {
						stopped.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	if int(stopped.Load()) < rounds/8 || int(cut.Load()) < rounds/4 {
		t.Errorf("%d of %d stopped, %d cut: the test tests little", stopped.Load(), rounds, cut.Load())
	}
	mustBeIdle(t, e)
}

// randomRequest are the fields of one; cut says that its answer is of single bytes, which
// make characters that are cut, and many that never get whole.
func randomRequest(t *testing.T, r *rig, random *rand.Rand) (fields string, cut bool) {
	alphabet := []rune("abc de\n.é😀ß漢\u00a0'’🏳️‍🌈\t0123")
	var prompt strings.Builder
	for range 1 + random.IntN(12) {
		prompt.WriteRune(alphabet[random.IntN(len(alphabet))])
	}
	fields = fmt.Sprintf(`"prompt":%s,"seed":%d,"max_tokens":%d,"temperature":1.5`, mustJSON(prompt.String()), random.Int64N(1<<40), 1+random.IntN(14))
	if cut = random.IntN(2) == 0; cut {
		var allowed []string
		for _, b := range []byte("😀é漢 ab") {
			allowed = append(allowed, fmt.Sprint(spell(t, string([]byte{b}))[0]))
		}
		fields += `,"allowed_token_ids":[` + strings.Join(allowed, ",") + `]`
	}
	if text := []rune(r.complete(fields).Choices[0].Text); len(text) > 3 && random.IntN(2) == 0 {
		from := random.IntN(len(text) - 2)
		fields += `,"stop":[` + mustJSON(string(text[from:from+2])) + `]`
	}
	if random.IntN(4) == 0 {
		fields += `,"echo":true,"n":2`
	}
	return fields, cut
}

// The scores of a prompt come with its first choice, which need not be the first to come:
// every choice's echo has them.
func TestEveryChoiceEchoesTheScores(t *testing.T) {
	r := newRig(t, says(spell(t, "ab"), 0)) // which lets the last choice come first
	const fields = `"prompt":[5,6,7],"echo":true,"logprobs":1,"n":3,"max_tokens":2`
	out := r.complete(fields)
	chunks, body := r.chunks("," + fields)
	for i, c := range out.Choices {
		if l := c.Logprobs; len(l.Tokens) != 5 || l.TokenLogprobs[1] == nil || *l.TokenLogprobs[1] != -1 || l.TokenLogprobs[2] == nil || *l.TokenLogprobs[2] != -2 {
			t.Errorf("choice %d: %+v", i, l)
		}
		if joined(chunks, i) != c.Text {
			t.Errorf("choice %d: streamed %q, want %q", i, joined(chunks, i), c.Text)
		}
	}
	if n := strings.Count(body, "null,-1,-2"); n != 3 {
		t.Errorf("%d of 3 choices echo the scores: %s", n, body)
	}
}
