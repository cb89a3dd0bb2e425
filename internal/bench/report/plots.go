package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"tailor/internal/bench"
)

// Plot is one picture of a report.
type Plot struct {
	Name  string // such as "hit-rate"; its file is Name.svg
	Title string
	SVG   []byte // a whole document
}

// Plots draws those plots for which the report has data.
func Plots(r *bench.Report) []Plot {
	var plots []Plot
	for _, c := range charts(r) {
		plots = append(plots, Plot{Name: c.name, Title: c.title, SVG: c.document()})
	}
	return plots
}

// WritePlots writes every plot into dir, which it makes where it is missing, and returns
// the files' paths.
func WritePlots(dir string, r *bench.Report) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var paths []string
	for _, p := range Plots(r) {
		path := filepath.Join(dir, p.Name+".svg")
		if err := os.WriteFile(path, p.SVG, 0o644); err != nil {
			return paths, fmt.Errorf("plot %s: %w", p.Name, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// charts are the drawings of a report; one that would be empty is left out.
func charts(r *bench.Report) []*chart {
	var drawn []*chart
	for _, draw := range []func(*bench.Report) *chart{hitRateChart, capacityChart, lostChart, ttftChart, loadChart} {
		if c := draw(r); c != nil {
			drawn = append(drawn, c)
		}
	}
	return drawn
}

// labelWidth is the room that the policies' names need at the left of rows.
func labelWidth(names []string) float64 {
	longest := 0
	for _, name := range names {
		longest = max(longest, min(len([]rune(name)), labelRunes))
	}
	return 16 + float64(longest)*charWidth
}

// labelRunes is the longest name that is written out beside a row.
const labelRunes = 22

// rangeText adds the extremes to a median, where runs differ.
func rangeText(s bench.Spread, text func(float64) string) string {
	if between := betweenText(s, text); between != "" {
		return text(s.Median) + " (" + between + ")"
	}
	return text(s.Median)
}

// betweenText writes the extremes, with their unit once where it is the same; it is empty
// where they read the same.
func betweenText(s bench.Spread, text func(float64) string) string {
	low, high := text(s.Min), text(s.Max)
	if low == high {
		return ""
	}
	number, unit, _ := strings.Cut(low, " ")
	if _, highUnit, _ := strings.Cut(high, " "); unit == highUnit {
		low = number
	}
	return low + "–" + high
}

// axisPercent writes a share at a tick: as many decimals as tell ticks apart.
func axisPercent(share float64) string {
	percent := share * 100
	if math.Abs(percent-math.Round(percent)) < 1e-9 {
		return decimalText(percent, 0) + " %"
	}
	return threeDigits(percent) + " %"
}
