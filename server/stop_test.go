package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// naiveStop reads the finished text byte by byte: the finder's twin.
func naiveStop(text string, stops []string) (out, stop string) {
	for end := 1; end <= len(text); end++ {
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) && len(s) > len(stop) {
				stop = s
			}
		}
		if stop != "" {
			return text[:end-len(stop)], stop
		}
	}
	return text, ""
}

// find pushes the pieces, checking what must hold at each moment.
func find(t testing.TB, pieces, stops []string) (out, stop string) {
	t.Helper()
	f := newStopFinder(stops)
	var soFar string
	for _, piece := range pieces {
		soFar += piece
		var passed string
		passed, stop = f.push(piece)
		out += passed
		if !strings.HasPrefix(soFar, out) {
			t.Fatalf("%q, stops %q: %q passed on of %q", pieces, stops, out, soFar)
		}
		if !utf8.ValidString(passed) {
			t.Fatalf("%q, stops %q: a character was cut: %q", pieces, stops, passed)
		}
		if stop != "" {
			return out, stop
		}
		// What is held back begins a stop string, and nothing longer would.
		held := soFar[len(out):]
		begins := func(end string) bool {
			for _, s := range stops {
				if strings.HasPrefix(s, end) {
					return true
				}
			}
			return false
		}
		if held != "" && !begins(held) {
			t.Fatalf("%q, stops %q: %q is held back for nothing", pieces, stops, held)
		}
		for i := range out {
			if begins(soFar[i:]) {
				t.Fatalf("%q, stops %q: %q was passed on, and %q begins a stop string", pieces, stops, out, soFar[i:])
			}
		}
	}
	return out + f.flush(), ""
}

func TestStopFinder(t *testing.T) {
	tests := []struct {
		name   string
		pieces []string
		stops  []string
		out    string
		stop   string
	}{
		{"none", []string{"ab", "c"}, nil, "abc", ""},
		{"inside a piece", []string{"one two three"}, []string{"two"}, "one ", "two"},
		{"over a border", []string{"one t", "w", "o three"}, []string{"two"}, "one ", "two"},
		{"begun, not ended", []string{"one tw"}, []string{"two"}, "one tw", ""},
		{"begun, then other", []string{"tw", "tw", "ist"}, []string{"two"}, "twtwist", ""},
		{"overlaps itself", []string{"aab", "aaab"}, []string{"aaab"}, "aab", "aaab"},
		{"begins inside a failed match", []string{"ab", "ab", "ac"}, []string{"abac"}, "ab", "abac"},
		{"the first to end", []string{"abcd"}, []string{"abcd", "bc"}, "a", "bc"},
		{"of those ending together the longest", []string{"xabc"}, []string{"bc", "abc", "c"}, "x", "abc"},
		{"at the very start", []string{"\n", "\nx"}, []string{"\n\n"}, "", "\n\n"},
		{"multibyte", []string{"größ", "er ", "…"}, []string{"…", "ß!"}, "größer ", "…"},
		{"characters sharing bytes", []string{"é", "è"}, []string{"è"}, "é", "è"},
		{"nothing after the stop", []string{"a.b.c"}, []string{"."}, "a", "."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, stop := find(t, tt.pieces, tt.stops)
			if out != tt.out || stop != tt.stop {
				t.Errorf("got %q, %q; want %q, %q", out, stop, tt.out, tt.stop)
			}
			if out, stop := naiveStop(strings.Join(tt.pieces, ""), tt.stops); out != tt.out || stop != tt.stop {
				t.Errorf("the twin got %q, %q", out, stop)
			}
		})
	}
}

func TestStopFinderAgainstTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all := []string{"a", "b", "é", "è", "😀"} // é and è share their first byte
	rounds, found := 20000, 0
	if testing.Short() {
		rounds = 2000
	}
	for range rounds {
		letters := all[:2+r.IntN(len(all)-1)]
		word := func(n int) string {
			var w strings.Builder
			for range n {
				w.WriteString(letters[r.IntN(len(letters))])
			}
			return w.String()
		}
		stops := make([]string, r.IntN(5))
		for i := range stops {
			stops[i] = word(1 + r.IntN(5))
		}
		pieces := make([]string, r.IntN(12))
		for i := range pieces {
			pieces[i] = word(r.IntN(4))
		}
		out, stop := find(t, pieces, stops)
		wantOut, wantStop := naiveStop(strings.Join(pieces, ""), stops)
		if out != wantOut || stop != wantStop {
			t.Fatalf("%q, stops %q: got %q, %q; want %q, %q", pieces, stops, out, stop, wantOut, wantStop)
		}
		if stop != "" {
			found++
		}
	}
	if found < rounds/10 || found > rounds*9/10 {
		t.Errorf("%d of %d texts held a stop string: the test tests little", found, rounds)
	}
}

// A long stop string against text that nearly matches it everywhere costs a few steps per
// byte, not their product (10^10 steps would not end within the test's time).
func TestStopFinderIsLinear(t *testing.T) {
	const n = 1 << 20
	stop := strings.Repeat("a", n) + "b"
	f := newStopFinder([]string{stop})
	out, found := f.push(strings.Repeat("a", n))
	if out != "" || found != "" {
		t.Fatalf("passed on %d bytes, found %d", len(out), len(found))
	}
	if out, found = f.push("c"); len(out) != n+1 || found != "" {
		t.Errorf("passed on %d bytes, found %d", len(out), len(found))
	}
}

func FuzzStopFinder(f *testing.F) {
	f.Add("one two three", "two", "thr", 3)
	f.Add("aabaaab", "aaab", "ab", 1)
	f.Add("größer…", "…", "ß!", 2)
	f.Fuzz(func(t *testing.T, text, a, b string, size int) {
		if !utf8.ValidString(text) || !utf8.ValidString(a) || !utf8.ValidString(b) || a == "" || b == "" || size < 1 {
			t.Skip("stops are non-empty UTF-8, pieces hold at least one character")
		}
		var pieces []string
		for runes := []rune(text); len(runes) > 0; {
			n := min(size, len(runes))
			pieces, runes = append(pieces, string(runes[:n])), runes[n:]
		}
		out, stop := find(t, pieces, []string{a, b})
		wantOut, wantStop := naiveStop(text, []string{a, b})
		if got, want := fmt.Sprintf("%q %q", out, stop), fmt.Sprintf("%q %q", wantOut, wantStop); got != want {
			t.Errorf("%q, stops %q, %q: got %s, want %s", pieces, a, b, got, want)
		}
	})
}
