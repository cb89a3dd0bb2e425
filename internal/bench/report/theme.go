package report

import (
	"fmt"
	"strings"
)

// theme is the colours of a drawing. The series are told apart by people with any of the common
// kinds of colour blindness, and each stands out from the ground at 3:1 or more; a test
// counts both. They descend from Okabe and Ito's palette, moved until that held on
// white as well as on near-black.
type theme struct {
	ground string // behind everything
	ink    string // text
	soft   string // text of less weight, axes
	rule   string // grid lines
	quiet  string // areas that only fill up the rest
	series [7]string
}

var (
	light = theme{
		ground: "#ffffff", ink: "#1b1f24", soft: "#59626d", rule: "#e4e7eb", quiet: "#c3c9d1",
		series: [7]string{"#185ced", "#a15107", "#296272", "#df6e9d", "#a08a00", "#5792f5", "#3a3626"},
	}
	dark = theme{
		ground: "#14171b", ink: "#e8eaed", soft: "#a3acb8", rule: "#2a2f36", quiet: "#4a525d",
		series: [7]string{"#6a86ff", "#e2572b", "#3fcf95", "#b968a8", "#e6dc3c", "#9aeef5", "#c9a8ff"},
	}
)

// seriesClass is how the i-th of any number of series looks: after seven colours, the same
// ones dashed.
func seriesClass(i int) string {
	n := len(light.series)
	return fmt.Sprintf("s%d d%d", i%n, i/n%3)
}

// fillClass is the i-th series' colour as an area.
func fillClass(i int) string { return fmt.Sprintf("f%d", i%len(light.series)) }

// rules are the style rules that depend on the theme. Colours are spelled out rule by rule
// and not kept in CSS variables, which programs other than browsers do not know.
func (t *theme) rules() string {
	var b strings.Builder
	rule := func(selector, declarations string) {
		fmt.Fprintf(&b, ".chart %s{%s}", selector, declarations)
	}
	rule(".ground", "fill:"+t.ground)
	rule("text", "fill:"+t.ink)
	rule(".strong", "stroke:"+t.ground)
	rule(".soft", "fill:"+t.soft)
	rule(".grid", "stroke:"+t.rule)
	rule(".axis", "stroke:"+t.soft)
	rule(".whisker", "stroke:"+t.ink)
	rule(".reach", "stroke:"+t.ink)
	rule(".bound", "stroke:"+t.ink)
	rule(".lru", "stroke:"+t.soft)
	rule(".quiet", "fill:"+t.quiet)
	rule(".faint", "stroke:"+t.quiet)
	rule(".hollow", "fill:"+t.ground+";stroke:"+t.soft)
	for i, colour := range t.series {
		rule(fmt.Sprintf(".s%d", i), "stroke:"+colour)
		rule(fmt.Sprintf(".f%d", i), "fill:"+colour)
	}
	return b.String()
}

// chartStyle is the style sheet of every drawing. Printed, it is always light.
func chartStyle() string {
	return `.chart text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}` +
		`.chart .head{font-size:14px;font-weight:600}.chart .strong{font-weight:600;paint-order:stroke;stroke-width:4}` +
		`.chart .end{text-anchor:end}.chart .mid{text-anchor:middle}` +
		`.chart line,.chart path{stroke-width:1}` +
		`.chart path[class^="s"]{fill:none;stroke-width:1.6;stroke-linejoin:round}` +
		`.chart .chosen,.chart path.chosen{stroke-width:3}` +
		`.chart .d1{stroke-dasharray:7 3}.chart .d2{stroke-dasharray:2 2}` +
		`.chart .band{opacity:.14}.chart .bar{opacity:.92}` +
		`.chart .reach{stroke-width:1.6}.chart .bound{stroke-width:1.6;stroke-dasharray:5 3}.chart .lru{stroke-width:1.6;stroke-dasharray:1.5 2.5}` +
		`.chart path.faint,.chart path.reach,.chart path.bound,.chart path.lru{fill:none}` +
		light.rules() +
		`@media screen and (prefers-color-scheme:dark){` + dark.rules() + `}`
}
