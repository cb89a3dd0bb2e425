package tokenizer

import (
	"os"
	"strings"
	"testing"
)

const english = "The quick brown fox, whose name nobody remembered, jumped over 13 lazy dogs; it's said they'd seen worse.\n"

func BenchmarkLoad(b *testing.B) {
	b.Run("bundled", func(b *testing.B) {
		for b.Loop() {
			bundled(b)
		}
	})
	b.Run("gpt2", func(b *testing.B) {
		for b.Loop() {
			gpt2(b)
		}
	})
}

// The texts are what a client may send; each must take time in proportion to its size.
func BenchmarkEncode(b *testing.B) {
	texts := []struct{ name, text string }{
		{"prompt-4k", strings.Repeat(english, 4<<10/len(english))},
		{"english-100k", strings.Repeat(english, 100<<10/len(english))},
		{"one-word-100k", strings.Repeat("antidisestablishmentarianism", 100<<10/28)},
		{"one-letter-100k", strings.Repeat("a", 100<<10)},
		{"spaces-100k", strings.Repeat(" ", 100<<10)},
	}
	tok := bundled(b)
	if _, err := os.Stat(gpt2Dir); err == nil {
		tok = gpt2(b)
	}
	for _, c := range texts {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(c.text, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
