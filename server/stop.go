package server

// A stopFinder passes text on up to the first stop string.
//
//   - Of several stop strings that one is found whose last byte comes first, and
//     of those ending together the longest. So the find depends on the text alone,
//     never on how it was cut into tokens.
//   - Text passed on holds no stop string and is never taken back: held is the
//     longest end of the text so far that begins some stop string, and no more.
//   - Text comes and goes in whole characters. A stop string is UTF-8, so what
//     matches its beginning begins at a character too.
//
// Each string is matched as Knuth, Morris and Pratt do, a few steps per byte
// however the text is built: how much of the string is matched already is just
// what has to be held back.
type stopFinder struct {
	strings []stopString
	held    string
}

type stopString struct {
	text    string
	borders []int // borders[i]: the longest proper beginning of text[:i+1] that also ends it
	matched int   // bytes of text that the text so far ends in
}

func newStopFinder(stops []string) *stopFinder {
	f := &stopFinder{strings: make([]stopString, len(stops))}
	for i, text := range stops {
		s := stopString{text: text, borders: make([]int, len(text))}
		for j := 1; j < len(text); j++ {
			s.advance(text[j])
			s.borders[j] = s.matched
		}
		s.matched = 0
		f.strings[i] = s
	}
	return f
}

// advance takes the next byte; it must not follow a full match.
func (s *stopString) advance(c byte) {
	for s.matched > 0 && s.text[s.matched] != c {
		s.matched = s.borders[s.matched-1]
	}
	if s.text[s.matched] == c {
		s.matched++
	}
}

// push takes the next text and returns what may be passed on, and the stop string
// that ended it, if one did; after that it must not be used again.
func (f *stopFinder) push(text string) (out, stop string) {
	seen := len(f.held)
	f.held += text
	for i := seen; i < len(f.held); i++ {
		for j := range f.strings {
			s := &f.strings[j]
			s.advance(f.held[i])
			if s.matched == len(s.text) && len(s.text) > len(stop) {
				stop = s.text
			}
		}
		if stop != "" {
			return f.held[:i+1-len(stop)], stop
		}
	}
	keep := 0
	for _, s := range f.strings {
		keep = max(keep, s.matched)
	}
	out, f.held = f.held[:len(f.held)-keep], f.held[len(f.held)-keep:]
	return out, ""
}

// flush ends the text: what was held back begins no stop string after all.
func (f *stopFinder) flush() string {
	out := f.held
	f.held = ""
	return out
}
