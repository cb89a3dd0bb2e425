package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sugarme/tokenizer/model/bpe"
	"github.com/sugarme/tokenizer/pretokenizer"
)

func TestAlphabet(t *testing.T) {
	for b, want := range pretokenizer.GenerateBytesChar() {
		if got := string(letterOf(b)); got != want {
			t.Errorf("byte 0x%02X is %q, want %q", b, got, want)
		}
	}
	bytes := 0
	for r := rune(0); r <= 0x10FFFF; r++ {
		b, ok := byteOf(r)
		if !ok {
			continue
		}
		bytes++
		if letterOf(b) != r {
			t.Errorf("byteOf(%q) = 0x%02X, whose letter is %q", r, b, letterOf(b))
		}
	}
	if bytes != 256 {
		t.Errorf("%d letters, want 256", bytes)
	}
}

func merge(t testing.TB, tok *Tokenizer, word string) []int32 {
	t.Helper()
	m := merger{merges: tok.merges}
	if at, ok := m.start(word, &tok.letters); !ok {
		t.Fatalf("no token for byte 0x%02X", word[at])
	}
	m.mergeAll()
	return m.appendIDs(nil)
}

// slowMerge is GPT-2's own loop: find the pair that was learned first, join all its
// occurrences from left to right, begin again.
func slowMerge(tok *Tokenizer, word string) []int32 {
	var ids []int
	for i := range len(word) {
		ids = append(ids, tok.letters[word[i]])
	}
	for {
		var first bpe.Pair
		var val bpe.PairVal
		found := false
		for i := range len(ids) - 1 {
			pair := bpe.Pair{C1: ids[i], C2: ids[i+1]}
			if v, ok := tok.merges[pair]; ok && (!found || v.Rank < val.Rank) {
				first, val, found = pair, v, true
			}
		}
		if !found {
			break
		}
		joined := ids[:0]
		for i := 0; i < len(ids); i++ {
			if i+1 < len(ids) && ids[i] == first.C1 && ids[i+1] == first.C2 {
				joined = append(joined, val.NewId)
				i++
			} else {
				joined = append(joined, ids[i])
			}
		}
		ids = joined
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// rounds is n, or a tenth of it where tests are to be short.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func eachVocabulary(t *testing.T, test func(t *testing.T, tok *Tokenizer)) {
	t.Run("bundled", func(t *testing.T) { test(t, bundled(t)) })
	t.Run("gpt2", func(t *testing.T) { test(t, gpt2(t)) })
}

func TestMergeAgainstGPT2Loop(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, tok *Tokenizer) {
		const seed = 5
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range rounds(3000) {
			letters := "aeitsnorhl -=." // few, so that they repeat
			if i%3 == 0 {
				letters = "ab"
			}
			var b strings.Builder
			for range 1 + random.IntN(40) {
				b.WriteByte(letters[random.IntN(len(letters))])
			}
			word := b.String()
			if got, want := merge(t, tok, word), slowMerge(tok, word); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q: %v, want %v", seed, word, got, want)
			}
		}
	})
}

// sugarme returns sugarme's own way from word to ids.
func sugarme(tok *Tokenizer) func(word string) []int32 {
	vocab := make(map[string]int)
	for id, tk := range tok.tokens {
		var entry strings.Builder
		for _, b := range []byte(tk.text) {
			entry.WriteRune(letterOf(b))
		}
		vocab[entry.String()] = id
	}
	model := bpe.NewBPE(vocab, tok.merges)
	return func(word string) []int32 {
		var ids []int32
		for _, id := range model.MergeWord(word).GetChars() {
			ids = append(ids, int32(id))
		}
		return ids
	}
}

// Where no stretch of a word repeats, sugarme's order of merging is defined and is ours.
func TestMergeAgainstSugarme(t *testing.T) {
	tok := bundled(t)
	theirs := sugarme(tok)
	for _, word := range strings.Fields("hello restaurant appointment reservation the quick brown fox " +
		"jumps over lazy dog International Francisco unbelievable tomorrow evening x 2024") {
		if got, want := merge(t, tok, word), theirs(word); !slices.Equal(got, want) {
			t.Errorf("%q: %v, sugarme has %v", word, got, want)
		}
	}
}

// Equal merges go from left to right, which is where sugarme's order is not defined.
func TestMergeLeftmostFirst(t *testing.T) {
	tok, err := Load(small(t, `"ab":256,"abc":257`, `"aa":256,"aaaa":257`, `"a b","ab c"`, `"a a","aa aa"`))
	if err != nil {
		t.Fatal(err)
	}
	theirs, differ := sugarme(tok), 0
	for n := 1; n < 40; n++ {
		var want []int32
		for range n / 4 {
			want = append(want, 257)
		}
		if n%4 >= 2 {
			want = append(want, 256)
		}
		if n%2 == 1 {
			want = append(want, 'a')
		}
		word := strings.Repeat("a", n)
		if got := merge(t, tok, word); !slices.Equal(got, want) {
			t.Errorf("%d letters a: %v, want %v", n, got, want)
		}
		if !slices.Equal(theirs(word), want) {
			differ++
		}
	}
	t.Logf("sugarme merges %d of 39 runs of one letter in another order", differ)
}

// A prompt of 100 kB, even as a single word, must not hold a server up. Quadratic work
// would take minutes; the bound is far above what a slow machine needs.
func TestLongInputs(t *testing.T) {
	const size, bound = 100 << 10, 10 * time.Second
	tok := bundled(t)
	for _, unit := range []string{"a", " ", "\n", "ab", "the", "antidisestablishmentarianism", "The end. ", "中", "'s", "<|endoftext"} {
		text := strings.Repeat(unit, size/len(unit))
		start := time.Now()
		ids, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > bound {
			t.Errorf("%d bytes of %q took %v", len(text), unit, d)
		}
		if got := tok.Decode(ids); got != text {
			t.Errorf("%d bytes of %q do not come back", len(text), unit)
		}
	}
}
