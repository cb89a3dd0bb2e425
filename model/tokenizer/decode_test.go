package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// lossy decodes raw to the end, as Decode does.
func lossy(raw string) string {
	whole, rest := wellFormed([]byte(raw))
	if len(rest) > 0 {
		whole += replacement
	}
	return whole
}

func TestInvalidUTF8(t *testing.T) {
	cases := []struct{ raw, want string }{
		// The Unicode standard 15.0, chapter 3, tables 3-8 to 3-11.
		{"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
		{"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
		{"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB"},
		{"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFDA"},
		// An ending inside a character is one U+FFFD too.
		{"ok\xF0\x9F\x99", "ok\uFFFD"},
		{"\xE2\x82", "\uFFFD"},
		{"\xC3", "\uFFFD"},
		// U+FFFD itself is a character like others.
		{"\uFFFD\xFF", "\uFFFD\uFFFD"},
		{"", ""},
		{"héllo", "héllo"},
	}
	for _, c := range cases {
		if got := lossy(c.raw); got != c.want {
			t.Errorf("%q -> %q, want %q", c.raw, got, c.want)
		}
	}
}

func TestEncodeInvalidUTF8(t *testing.T) {
	tok := bundled(t)
	for _, raw := range []string{"a\xFFb", "\xE2\x82", "\xF0\x9F\x99 x", "\xED\xA0\x80"} {
		ids, err := tok.Encode(raw, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := tok.Decode(ids), lossy(raw); got != want {
			t.Errorf("%q encodes as %q, want %q", raw, got, want)
		}
	}
}

// Random ids cut characters anywhere. What a stream has said is never taken back, never
// ends inside a character, and in the end is what Decode says.
func TestStream(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, tok *Tokenizer) {
		const seed = 23
		random := rand.New(rand.NewPCG(seed, 0))
		held := 0
		for range rounds(2000) {
			ids := make([]int32, random.IntN(12))
			for i := range ids {
				switch random.IntN(4) {
				case 0: // any token, or an id just outside the vocabulary
					ids[i] = int32(random.IntN(tok.VocabSize()+2)) - 1
				default: // a byte of 0x80 and above: parts of characters, mostly broken
					ids[i] = int32(tok.letters[0x80+random.IntN(0x80)])
				}
			}
			checkStream(t, tok, ids, &held)
		}
		text := "naïve 中文 🙂👩‍👩‍👧 नमस्ते"
		ids, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		checkStream(t, tok, ids, &held)
		if held == 0 {
			t.Error("no push held anything back: the test tests nothing")
		}
	})
}

func checkStream(t *testing.T, tok *Tokenizer, ids []int32, held *int) {
	t.Helper()
	want := tok.Decode(ids)
	s := tok.NewStream()
	var got strings.Builder
	for _, id := range ids {
		piece := s.Push(id)
		if !utf8.ValidString(piece) {
			t.Fatalf("ids %v: Push(%d) = %q is not UTF-8", ids, id, piece)
		}
		if len(s.pending) > 3 {
			t.Fatalf("ids %v: %d bytes pending", ids, len(s.pending))
		}
		if len(s.pending) > 0 {
			*held++
		}
		got.WriteString(piece)
	}
	got.WriteString(s.Flush())
	if got.String() != want {
		t.Fatalf("ids %v: stream says %q, Decode %q", ids, got.String(), want)
	}
	if again := s.Flush(); again != "" {
		t.Fatalf("ids %v: a second Flush says %q", ids, again)
	}
}

// A character comes out with the token that completes it, not later.
func TestStreamIsPrompt(t *testing.T) {
	tok := bundled(t)
	s := tok.NewStream()
	for i, b := range []byte("🙂a") {
		got := s.Push(int32(tok.letters[b]))
		want := map[int]string{3: "🙂", 4: "a"}[i]
		if got != want {
			t.Errorf("byte %d: %q, want %q", i, got, want)
		}
	}
}

func TestUnknownIDs(t *testing.T) {
	tok := bundled(t)
	for _, id := range []int32{-1, 4096, 1 << 30, -1 << 31} {
		if b, ok := tok.Bytes(id); ok {
			t.Errorf("Bytes(%d) = %q", id, b)
		}
		if tok.IsSpecial(id) {
			t.Errorf("id %d is special", id)
		}
		if got := tok.Decode([]int32{64, id, 65}); got != "a\uFFFDb" {
			t.Errorf("Decode around %d = %q", id, got)
		}
	}
}
