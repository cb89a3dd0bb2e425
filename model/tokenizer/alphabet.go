package tokenizer

// A byte-level vocabulary must spell any byte, but a JSON string holds characters, so
// GPT-2 gives each byte a visible letter: the 188 printable Latin-1 characters stand for
// themselves, and the other 68 bytes (controls, space, 0x7F-0xA0, 0xAD), in order, take
// U+0100 and up. A space is thus written as U+0120, "Ġ".

// letterOf returns the letter that stands for byte b.
func letterOf(b byte) rune {
	switch {
	case b <= 0x20:
		return 0x100 + rune(b)
	case b >= 0x7F && b <= 0xA0:
		return 0x121 + rune(b-0x7F)
	case b == 0xAD:
		return 0x143
	}
	return rune(b)
}

// byteOf is the inverse of letterOf; ok is false for a character that is no byte's letter.
func byteOf(r rune) (b byte, ok bool) {
	switch {
	case r >= 0x100 && r <= 0x120:
		return byte(r - 0x100), true
	case r >= 0x121 && r <= 0x142:
		return byte(r - 0x121 + 0x7F), true
	case r == 0x143:
		return 0xAD, true
	case r > 0xFF || letterOf(byte(r)) != r:
		return 0, false
	}
	return byte(r), true
}

// spelled returns the bytes that a vocabulary entry stands for. An entry with a character
// outside the alphabet is no byte-level token and stands for itself, as in Hugging Face's
// decoder.
func spelled(entry string) string {
	out := make([]byte, 0, len(entry))
	for _, r := range entry {
		b, ok := byteOf(r)
		if !ok {
			return entry
		}
		out = append(out, b)
	}
	return string(out)
}
