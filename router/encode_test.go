package router

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"tailor/model/tokenizer"
	"tailor/weights"
)

// bundledTokenizer is a real one.
func bundledTokenizer(t testing.TB) func(string) ([]int32, error) {
	t.Helper()
	tok, err := tokenizer.Load(weights.Bundled().FS())
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) ([]int32, error) { return tok.Encode(text, false) }
}

// gpt2Tokenizer is one whose tokens may be several spaces.
func gpt2Tokenizer(t *testing.T) func(string) ([]int32, error) {
	t.Helper()
	const dir = "../../shared/data/tokenizer"
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("GPT-2's vocabulary is not here (%s): it is not the project's to ship", dir)
	}
	tok, err := tokenizer.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) ([]int32, error) { return tok.Encode(text, false) }
}

// alphabets are what random texts are made of: where pieces may end differently than it
// looks, and what has no place to cut at all.
var alphabets = []string{
	"ab c de f", "a b's'll 're n't ", "ab  c\n \t d\u00a0e\u3000 f", "a1 2b 34 c5d", "a. b, c! (d) e-f",
	"日本 語 a b", "né e à u ß", "<|endoftext|> a b", " ", "aaaaaaaaab", "a b c d e f g",
}

func randomText(rng *rand.Rand, bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		runes := []rune(alphabets[rng.IntN(len(alphabets))])
		for range rng.IntN(300) {
			b.WriteRune(runes[rng.IntN(len(runes))])
		}
	}
	return b.String()
}

// The tokens of a text's parts are the text's first tokens, whatever the text, whether or
// not its parts are remembered; and as many as are asked for wherever it can be cut.
func TestPartsAreTheText(t *testing.T) {
	t.Run("bundled", func(t *testing.T) { partsAreTheText(t, bundledTokenizer(t)) })
	t.Run("gpt2", func(t *testing.T) { partsAreTheText(t, gpt2Tokenizer(t)) })
}

func partsAreTheText(t *testing.T, tokenize func(string) ([]int32, error)) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	texts, cut, whole := 400, 0, 0
	if testing.Short() {
		texts = 250
	}
	p := reader()
	p.tokenize, p.memo = tokenize, newMemo(20<<10) // forgets all the time
	for i := range texts {
		text := randomText(rng, rng.IntN(6000))
		want, err := tokenize(text)
		if err != nil {
			t.Fatal(err)
		}
		most, budget := rng.IntN(2*len(want)+2), rng.IntN(2*len(text)+2)
		for range 2 {
			got, read, err := p.encode("", text, most, budget)
			if err != nil || read > budget || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("text %d: %d tokens of %d bytes are not the first of the text's %d (%v): %.80q", i, len(got), read, len(want), err, text)
			}
			if head, _ := tokenize(text[:read]); !slices.Equal(head, got) {
				t.Fatalf("text %d: what %d bytes stand for is not what was read", i, read)
			}
			if read < len(text) {
				cut++
				if len(got) < most && read+partEnd(text[read:]) <= budget && partEnd(text[read:]) > 0 {
					t.Fatalf("text %d: stopped at %d tokens, %d bytes; asked for %d, %d", i, len(got), read, most, budget)
				}
			} else {
				whole++
			}
		}
	}
	if cut < texts/4 || whole < texts/4 {
		t.Errorf("%d texts were cut, %d read to the end", cut, whole)
	}
}

func FuzzParts(f *testing.F) {
	tokenize := bundledTokenizer(f)
	for _, a := range alphabets {
		f.Add(strings.Repeat(a, 200/len(a)+1)+"end of it", 20)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		if !utf8.ValidString(text) {
			return // JSON has no such texts
		}
		p := reader()
		p.tokenize = tokenize
		most = max(0, most) % (1 << 20)
		got, read, err := p.encode("", text, most, len(text))
		want, bad := tokenize(text)
		if err != nil || bad != nil || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || (read == len(text)) && len(got) != len(want) {
			t.Fatalf("%d tokens of %d bytes, %v; the text has %d, %v", len(got), read, err, len(want), bad)
		}
	})
}

// A long text costs what its first blocks cost, and its prefix is theirs.
func TestLongTextsAreReadInPart(t *testing.T) {
	real := bundledTokenizer(t)
	bytes := 0
	p := reader()
	p.limit = 8
	p.tokenize = func(text string) ([]int32, error) { bytes += len(text); return real(text) }
	long := strings.Repeat("the tailor has your measurements ", 4<<20/33)
	want, err := real(long[:4096])
	if err != nil {
		t.Fatal(err)
	}
	q := completion(t, p, fmt.Sprintf(`{"model":"m","prompt":%q}`, long))
	short := reader()
	short.limit = 8
	ids := completion(t, short, `{"model":"m","prompt":`+jsonInts(want[:200])+`}`)
	if len(q.chains[0].blocks) != 8 || !slices.Equal(q.chains[0].blocks, ids.chains[0].blocks) {
		t.Errorf("%d blocks, not those of the text's first tokens", len(q.chains[0].blocks))
	}
	if bytes > 2000 || q.tokens < len(long)/8 || q.tokens > len(long)/2 {
		t.Errorf("%d bytes were tokenized for 8 blocks; %d tokens estimated of %d bytes", bytes, q.tokens, len(long))
	}
	// Nothing to cut at: nothing is tokenized, whatever the number of prompts.
	for _, body := range []string{
		fmt.Sprintf(`{"model":"m","prompt":%q}`, strings.Repeat("-", 3<<20)),
		`{"model":"m","prompt":["` + strings.Repeat(strings.Repeat("=", 60<<10)+`","`, 60) + `"]}`,
	} {
		bytes = 0
		q := completion(t, p, body)
		if bytes > p.budget() || q.tokens < len(body)/8 {
			t.Errorf("%d bytes were tokenized of %d; %d tokens estimated", bytes, len(body), q.tokens)
		}
	}
}

func TestTruncatedPrompts(t *testing.T) {
	p := reader()
	p.tokenize = bundledTokenizer(t)
	text := strings.Repeat("so is a prompt that is cut at its front ", 20)
	all, err := p.tokenize(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range []string{fmt.Sprintf("%q", text), jsonInts(all)} {
		for keep, want := range map[string][]int32{"50": all[len(all)-50:], "null": all, "-1": all, "100000": all} {
			got := completion(t, p, `{"truncate_prompt_tokens":`+keep+`,"model":"m","prompt":`+prompt+`}`)
			same := completion(t, p, `{"model":"m","prompt":`+jsonInts(want)+`}`)
			if got.tokens != len(want) || !slices.Equal(got.chains[0].blocks, same.chains[0].blocks) {
				t.Errorf("truncated to %s: %d tokens, want %d", keep, got.tokens, len(want))
			}
		}
	}
	// Where the end of a long text begins is not known.
	p.limit = 4
	got := completion(t, p, fmt.Sprintf(`{"truncate_prompt_tokens":100,"model":"m","prompt":%q}`, strings.Repeat(text, 50)))
	if got.tokens != 100 || len(got.chains) != 1 || len(got.chains[0].blocks) != 0 {
		t.Errorf("%d tokens, %d blocks", got.tokens, len(got.chains[0].blocks))
	}
}

// What one salt's callers have sent speeds nobody else up, and memory is bounded.
func TestMemo(t *testing.T) {
	calls := 0
	p := reader()
	p.memo = newMemo(10_000)
	p.tokenize = func(text string) ([]int32, error) { calls++; return words(text) }
	long := strings.Repeat("a tailor made coat fits ", 30)
	ask := func(salt string) int {
		calls = 0
		if _, _, err := p.encode(salt, long, 1000, 1<<20); err != nil {
			t.Fatal(err)
		}
		return calls
	}
	first, again, other := ask("a"), ask("a"), ask("b")
	if first < 4 || again != 1 || other != first {
		t.Errorf("%d parts tokenized, then %d, under another salt %d", first, again, other)
	}
	for i := range 2000 {
		p.memo.keep("", fmt.Sprint("part ", i), []int32{1, 2, 3})
		if n := len(p.memo.young) + len(p.memo.old); n > 2*10_000/memoOverhead {
			t.Fatalf("%d parts remembered", n)
		}
	}
	if ask("a") != first {
		t.Error("what nobody asked for is still remembered")
	}
	var none *memo
	none.keep("", "x", nil)
	if _, found := none.look("", "x"); found {
		t.Error("no memo remembers")
	}
}

// BenchmarkReadText is what it takes to learn the prefix of a prompt of 500 tokens in text
// that begins like others, with and without remembering.
func BenchmarkReadText(b *testing.B) {
	shared := strings.Repeat("I would like to book a table for two people in San Jose tonight. ", 32)
	for _, remembers := range []bool{false, true} {
		b.Run(fmt.Sprintf("remembers=%v", remembers), func(b *testing.B) {
			p := reader()
			p.tokenize = bundledTokenizer(b)
			if remembers {
				p.memo = newMemo(memoBytes)
			}
			i := 0
			for b.Loop() {
				i++
				body := fmt.Appendf(nil, `{"model":"m","stream":true,"prompt":%q}`, fmt.Sprint(shared, " and ", i, " more guests"))
				if _, err := p.completion(http.Header{}, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
