package report

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// unknown stands where a figure was not measured.
const unknown = "unknown"

// countText writes a number of things with thousands separators: 17,243. A median of two
// runs may lie between two whole numbers; it keeps one decimal.
func countText(v float64) string {
	switch {
	case !isFinite(v):
		return unknown
	case math.Abs(v) >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v != math.Trunc(v):
		return grouped(strconv.FormatFloat(v, 'f', 1, 64))
	}
	return grouped(strconv.FormatFloat(v, 'f', 0, 64))
}

// decimalText writes a number with so many decimals and thousands separators.
func decimalText(v float64, decimals int) string {
	switch {
	case !isFinite(v):
		return unknown
	case math.Abs(v) >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return grouped(strconv.FormatFloat(v, 'f', decimals, 64))
}

// percentText writes a share as a percentage with one decimal: 0.832 is 83.2 %.
func percentText(share float64) string {
	if !isFinite(share) {
		return unknown
	}
	return decimalText(100*share, 1) + " %"
}

// secondsText writes a time with three significant digits in the unit that suits it.
func secondsText(s float64) string {
	switch a := math.Abs(s); {
	case !isFinite(s):
		return unknown
	case a == 0:
		return "0 s"
	case a < 0.9995e-6:
		return threeDigits(s*1e9) + " ns"
	case a < 0.9995e-3:
		return threeDigits(s*1e6) + " µs"
	case a < 0.9995:
		return threeDigits(s*1e3) + " ms"
	}
	return threeDigits(s) + " s"
}

// threeDigits writes 1.23, 12.3, 123 and 1,234.
func threeDigits(v float64) string {
	switch a := math.Abs(v); {
	case a < 9.995:
		return decimalText(v, 2)
	case a < 99.95:
		return decimalText(v, 1)
	}
	return decimalText(v, 0)
}

// grouped puts a comma between each three digits of a plain decimal number's whole part.
func grouped(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	whole, fraction, isFraction := strings.Cut(s, ".")
	var b strings.Builder
	b.WriteString(sign)
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(whole[i])
	}
	if isFraction {
		b.WriteByte('.')
		b.WriteString(fraction)
	}
	return b.String()
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// shortened cuts a text to at most n characters, the last of them an ellipsis.
func shortened(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// visible replaces characters that show nothing of their own: control characters, except
// line feed and tab, and format characters, which can turn around the order in which
// what follows is read. Names and errors come from anywhere.
func visible(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case unicode.In(c, unicode.Cc, unicode.Cf), c == 0xFFFE, c == 0xFFFF:
			return unicode.ReplacementChar
		}
		return c
	}, s)
}

// oneLine is visible text without line feeds and tabs.
func oneLine(s string) string {
	return strings.NewReplacer("\n", "\uFFFD", "\t", "\uFFFD").Replace(visible(s))
}
