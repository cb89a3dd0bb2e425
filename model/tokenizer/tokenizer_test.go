package tokenizer

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestSpecialTokens(t *testing.T) {
	eachVocabulary(t, func(t *testing.T, tok *Tokenizer) {
		end, ok := tok.Special()[endOfText]
		if !ok || len(tok.Special()) != 1 {
			t.Fatalf("special tokens: %v", tok.Special())
		}
		if !tok.IsSpecial(end) || tok.IsSpecial(end-1) || int(end) != tok.VocabSize()-1 {
			t.Errorf("end of text is %d of %d, special %v", end, tok.VocabSize(), tok.IsSpecial(end))
		}
		hi, err := tok.Encode("hi", false)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string][]int32{
			endOfText:                {end},
			endOfText + endOfText:    {end, end},
			"hi" + endOfText:         append(slices.Clone(hi), end),
			endOfText + "hi":         append([]int32{end}, hi...),
			"<" + endOfText:          {int32(tok.letters['<']), end},
			endOfText[:len("<|end")]: nil, // only a part of it
		} {
			asked, err := tok.Encode(text, true)
			if err != nil {
				t.Fatal(err)
			}
			if want != nil && !slices.Equal(asked, want) {
				t.Errorf("Encode(%q, true) = %v, want %v", text, asked, want)
			}
			plain, err := tok.Encode(text, false)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(plain, tok.IsSpecial) {
				t.Errorf("Encode(%q, false) = %v has a special token", text, plain)
			}
			for _, ids := range [][]int32{asked, plain} {
				if got := tok.Decode(ids); got != text {
					t.Errorf("Decode(%v) = %q, want %q", ids, got, text)
				}
			}
		}
		// White space before a special token ends the text, so it stays in one piece.
		ids, err := tok.Encode("a  "+endOfText, true)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := tok.Encode("a  ", true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, append(alone, end)) {
			t.Errorf("a special token changed the text before it: %v, alone %v", ids, alone)
		}
	})
}

// What callers are given is theirs.
func TestResultsAreCopies(t *testing.T) {
	tok := bundled(t)
	maps.DeleteFunc(tok.Special(), func(string, int32) bool { return true })
	if len(tok.Special()) != 1 {
		t.Error("Special hands out the tokenizer's own map")
	}
	b, ok := tok.Bytes(64)
	if !ok || string(b) != "a" {
		t.Fatalf("Bytes(64) = %q, %v", b, ok)
	}
	b[0] = 'z'
	if got := tok.Decode([]int32{64}); got != "a" {
		t.Errorf("Bytes hands out the tokenizer's own bytes: %q", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := bundled(t)
	text := strings.Repeat("User: I'd like a table for 2 in San José 🙂\n", 5) + endOfText
	want, err := tok.Encode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				ids, err := tok.Encode(text, true)
				if err != nil || !slices.Equal(ids, want) {
					t.Errorf("Encode: %v, %v", ids, err)
				}
				s := tok.NewStream()
				var got strings.Builder
				for _, id := range ids {
					got.WriteString(s.Push(id))
				}
				if got.WriteString(s.Flush()); got.String() != text || tok.Decode(ids) != text {
					t.Errorf("decoded %q", got.String())
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRoundTrip(f *testing.F) {
	for _, text := range []string{"", "a", " \u00a0x", "it's", endOfText, "中🙂\xff", "  \n\n ", "aaaaaaa"} {
		f.Add(text)
	}
	tok := bundled(f)
	slow := newSlowSplit()
	f.Fuzz(func(t *testing.T, text string) {
		want := text
		if !utf8.ValidString(text) {
			want = lossy(text)
		}
		for _, special := range []bool{false, true} {
			ids, err := tok.Encode(text, special)
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Decode(ids); got != want {
				t.Fatalf("special %v: %q comes back as %q", special, want, got)
			}
			if !special && slices.ContainsFunc(ids, tok.IsSpecial) {
				t.Fatalf("%q gives a special token: %v", text, ids)
			}
			held := 0
			checkStream(t, tok, ids, &held)
		}
		var ids []int32
		for rest := want; rest != ""; {
			piece := slow.first(rest)
			ids = append(ids, slowMerge(tok, piece)...)
			rest = rest[len(piece):]
		}
		if got, _ := tok.Encode(text, false); !slices.Equal(got, ids) {
			t.Fatalf("%q: %v, want %v", want, got, ids)
		}
	})
}
