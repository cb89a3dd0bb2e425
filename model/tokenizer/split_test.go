package tokenizer

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func split(text string) []string {
	var pieces []string
	for text != "" {
		n := pieceLen(text)
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func TestSplit(t *testing.T) {
	cases := []struct {
		text string
		want []string
	}{
		{"Hello world", []string{"Hello", " world"}},
		{"it's they'd 'tis", []string{"it", "'s", " they", "'d", " '", "tis"}},
		{"IT'S", []string{"IT", "'", "S"}},
		{"'re'ver", []string{"'re", "'ve", "r"}},
		{"''s", []string{"''", "s"}},
		{"abc123 456", []string{"abc", "123", " 456"}},
		{"a  b", []string{"a", " ", " b"}},
		{"a \n b", []string{"a", " \n", " b"}},
		{"a\nb", []string{"a", "\n", "b"}},
		{"a\n\nb", []string{"a", "\n", "\n", "b"}},
		{"end  ", []string{"end", "  "}},
		{" ", []string{" "}},
		{"\u00a0nbsp", []string{"\u00a0", "nbsp"}},
		{" \u00a0x", []string{" ", "\u00a0", "x"}},
		{"\u3000\u3000x", []string{"\u3000", "\u3000", "x"}},
		{"x \u2028", []string{"x", " \u2028"}},
		{"½ Ⅷ", []string{"½", " Ⅷ"}},
		{"e\u0301a", []string{"e", "\u0301", "a"}},
		{"\ufeffbom", []string{"\ufeff", "bom"}},
		{"\x1cfs", []string{"\x1c", "fs"}}, // a control, but not White_Space
		{"wow!?", []string{"wow", "!?"}},
	}
	for _, c := range cases {
		if got := split(c.text); !slices.Equal(got, c.want) {
			t.Errorf("split(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

// slowSplit is GPT-2's pattern tried alternative by alternative, the look-ahead by
// shortening the run of white space until it holds, as a backtracking matcher does.
type slowSplit struct {
	plain []*regexp.Regexp
	white *regexp.Regexp
}

func newSlowSplit() slowSplit {
	// Unicode's White_Space property, from PropList.txt.
	const white = `\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}`
	s := slowSplit{white: regexp.MustCompile(`^[` + white + `]+`)}
	for _, p := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d",
		` ?\p{L}+`, ` ?\p{N}+`, ` ?[^` + white + `\p{L}\p{N}]+`} {
		s.plain = append(s.plain, regexp.MustCompile("^(?:"+p+")"))
	}
	return s
}

func (s slowSplit) first(text string) string {
	for _, p := range s.plain {
		if m := p.FindString(text); m != "" {
			return m
		}
	}
	run := s.white.FindString(text)
	for n := len(run); n > 0; n-- {
		if !utf8.ValidString(run[:n]) {
			continue
		}
		if rest := text[n:]; rest == "" || s.white.MatchString(rest) {
			return run[:n]
		}
	}
	return run
}

func TestSplitAgainstPattern(t *testing.T) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 0))
	slow := newSlowSplit()
	for range rounds(3000) {
		text := randomText(random)
		rest := text
		for _, piece := range split(text) {
			if want := slow.first(rest); piece != want {
				t.Fatalf("seed %d: in %q at %q: piece %q, want %q", seed, text, rest, piece, want)
			}
			rest = rest[len(piece):]
		}
		if rest != "" {
			t.Fatalf("seed %d: %q leaves %q", seed, text, rest)
		}
	}
}

// randomText mixes what the pattern tells apart, in runs, with any character at all.
func randomText(random *rand.Rand) string {
	alphabet := []rune("aabeit   \n\t''''srvlmd012.,-!éßЖ中ア🙂\u200d\u00a0\u3000\u2003\u2028\u0085\ufeff\u0301½Ⅷ٣म\u001c\u0000")
	var b strings.Builder
	for range random.IntN(30) {
		r := alphabet[random.IntN(len(alphabet))]
		switch random.IntN(8) {
		case 0:
			r = rune(random.IntN(utf8.MaxRune + 1))
		case 1:
			b.WriteString(strings.Repeat(string(r), random.IntN(10)))
		}
		b.WriteRune(r)
	}
	return b.String()
}
