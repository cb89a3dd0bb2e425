package report

import (
	"math"
	"testing"
)

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{countText(0), "0"}, {countText(999), "999"}, {countText(1000), "1,000"}, {countText(17243), "17,243"}, {countText(-1234567), "-1,234,567"},
		{countText(17243.5), "17,243.5"}, {countText(math.NaN()), "unknown"}, {countText(math.Inf(-1)), "unknown"}, {countText(math.MaxInt64), "9.22e+18"},
		{percentText(.8321), "83.2 %"}, {percentText(0), "0.0 %"}, {percentText(12.5), "1,250.0 %"}, {percentText(math.NaN()), "unknown"},
		{secondsText(0), "0 s"}, {secondsText(1.5e-7), "150 ns"}, {secondsText(.00099949), "999 µs"}, {secondsText(.00099951), "1.00 ms"}, {secondsText(.0421), "42.1 ms"},
		{secondsText(.9996), "1.00 s"}, {secondsText(9.996), "10.0 s"}, {secondsText(99.96), "100 s"}, {secondsText(1234.6), "1,235 s"}, {secondsText(-.02), "-20.0 ms"}, {secondsText(math.Inf(1)), "unknown"},
		{secondsTick(.01), "10 ms"}, {secondsTick(1), "1 s"}, {secondsTick(2.5), "2.5 s"}, {secondsTick(100), "100 s"},
		{axisPercent(.2), "20 %"}, {axisPercent(.6), "60 %"}, {axisPercent(.07), "7 %"}, {axisPercent(.005), "0.50 %"}, {axisPercent(0), "0 %"},
		{shortCount(0), "0"}, {shortCount(999), "999"}, {shortCount(1500), "1.5k"}, {shortCount(20_000), "20k"}, {shortCount(3e6), "3M"}, {shortCount(4e9), "4G"},
		{signedPercent(.031), "+3.1 %"}, {signedPercent(-.12), "−12.0 %"}, {signedPercent(-.0001), "0.0 %"}, {signedPercent(math.Inf(1)), "unknown"},
		{shortened("prefix_affinity", 6), "prefi…"}, {shortened("Größe", 5), "Größe"},
		{num(1.23456), "1.23"}, {num(-0.001), "0"}, {num(100), "100"}, {num(math.NaN()), "0"}, {num(math.Inf(-1)), "-1000000"},
		{commandText([]string{"tailor", "bench", "--trace", "a b.jsonl", "it's", ""}), `tailor bench --trace 'a b.jsonl' 'it'\''s' ''`},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
