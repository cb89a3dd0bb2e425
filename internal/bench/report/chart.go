package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// chartWidth is the width of every drawing in its own units, which are pixels where it is
// shown 1:1. Drawings scale as a whole; with text of 12 units on a drawing so narrow, text
// is still 8 pixels high on a screen 320 pixels wide.
const chartWidth = 480.0

// charWidth is how wide a character is taken to be, in units: those of common fonts are 5.5 to
// 7 at this size. There is no font here to measure.
const charWidth = 6.6

// chart is a drawing in the making. Marks are put down in order, later ones on top; all
// text is escaped here and all numbers are made finite here, so no caller can break it.
type chart struct {
	name, title, desc string
	height            float64
	marks             bytes.Buffer
}

type point struct{ x, y float64 }

// num writes a coordinate with two decimals at most.
func num(v float64) string {
	switch {
	case math.IsNaN(v):
		v = 0
	case math.Abs(v) > 1e6:
		v = math.Copysign(1e6, v)
	}
	s := strconv.FormatFloat(v, 'f', 2, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// escaped writes visible text for XML.
func escaped(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(visible(s))) // a buffer takes everything
	return b.String()
}

func (c *chart) rect(x, y, width, height float64, class string) {
	fmt.Fprintf(&c.marks, `<rect x="%s" y="%s" width="%s" height="%s" class="%s"/>`,
		num(x), num(y), num(max(0, width)), num(max(0, height)), class)
}

func (c *chart) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&c.marks, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, num(x1), num(y1), num(x2), num(y2), class)
}

// path draws straight lines through points, or the area that they enclose where closed.
func (c *chart) path(points []point, class string, closed bool) {
	if len(points) == 0 {
		return
	}
	c.marks.WriteString(`<path d="M`)
	for i, p := range points {
		if i > 0 {
			c.marks.WriteByte('L')
		}
		c.marks.WriteString(num(p.x) + " " + num(p.y))
	}
	if closed {
		c.marks.WriteByte('Z')
	}
	fmt.Fprintf(&c.marks, `" class="%s"/>`, class)
}

// text puts text with its baseline at y; class says how it is anchored at x: "end", "mid"
// or neither for its start.
func (c *chart) text(x, y float64, class, s string) {
	attr := ""
	if class != "" {
		attr = ` class="` + class + `"`
	}
	fmt.Fprintf(&c.marks, `<text x="%s" y="%s"%s>%s</text>`, num(x), num(y), attr, escaped(s))
}

// titled groups what draw puts down under a title, which a browser shows on hovering and a
// screen reader reads.
func (c *chart) titled(title string, draw func()) {
	fmt.Fprintf(&c.marks, `<g><title>%s</title>`, escaped(title))
	draw()
	c.marks.WriteString(`</g>`)
}

// marker draws the i-th of four shapes around a point.
func (c *chart) marker(p point, i int, class string) {
	const r = 4.0
	at := func(dx, dy float64) point { return point{p.x + dx, p.y + dy} }
	switch i % 4 {
	case 0:
		fmt.Fprintf(&c.marks, `<circle cx="%s" cy="%s" r="3.6" class="%s"/>`, num(p.x), num(p.y), class)
	case 1:
		c.path([]point{at(-3.4, -3.4), at(3.4, -3.4), at(3.4, 3.4), at(-3.4, 3.4)}, class, true)
	case 2:
		c.path([]point{at(0, -r-.6), at(r+.4, 3.4), at(-r-.4, 3.4)}, class, true)
	case 3:
		c.path([]point{at(0, -r-1), at(r+1, 0), at(0, r+1), at(-r-1, 0)}, class, true)
	}
}

// whisker draws an error bar along x at y, from one value's place to another's; nothing
// where they are too close to tell.
func (c *chart) whisker(x1, x2, y float64) {
	if math.Abs(x2-x1) < 1 {
		return
	}
	c.line(x1, y, x2, y, "whisker")
	c.line(x1, y-3, x1, y+3, "whisker")
	c.line(x2, y-3, x2, y+3, "whisker")
}

// yAxis draws horizontal grid lines with their values to the left of x1.
func (c *chart) yAxis(s *scale, x1, x2 float64, text func(float64) string) {
	for _, v := range s.ticks {
		y := s.at(v)
		c.line(x1, y, x2, y, "grid")
		c.text(x1-6, y+4, "end soft", text(v))
	}
}

// xAxis draws vertical grid lines with their values below y2, leaving out values for which
// there is no room.
func (c *chart) xAxis(s *scale, y1, y2 float64, text func(float64) string) {
	free := math.Inf(-1)
	for _, v := range s.ticks {
		x := s.at(v)
		c.line(x, y1, x, y2, "grid")
		label := text(v)
		half := float64(len([]rune(label))) * charWidth / 2
		if x-half < free {
			continue
		}
		free = x + half + 4
		c.text(min(x, chartWidth-half-6), y2+16, "mid soft", label)
	}
}

// legendItem is one entry: how it is drawn, in a box of 18 units from x around y, and its name.
type legendItem struct {
	label string
	draw  func(x, y float64)
}

// legend sets the items in rows from y on and returns where they end.
func (c *chart) legend(items []legendItem, x0, y float64) float64 {
	x := x0
	for i, item := range items {
		label := shortened(item.label, 60)
		width := 24 + float64(len([]rune(label)))*charWidth
		if i > 0 && x+width > chartWidth-8 {
			x, y = x0, y+18
		}
		item.draw(x, y)
		c.text(x+24, y+4, "", label)
		x += width + 14
	}
	return y + 18
}

// heading writes the title and a line below it, and returns where they end.
func (c *chart) heading(below string) float64 {
	c.text(8, 20, "head", c.title)
	if below == "" {
		return 30
	}
	c.text(8, 37, "soft", below)
	return 46
}

// open writes the drawing's start; its title and description are tied to it by ids made of its name.
func (c *chart) open(size bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s"`, num(chartWidth), num(c.height))
	if size {
		fmt.Fprintf(&b, ` width="%s" height="%s"`, num(chartWidth), num(c.height))
	}
	fmt.Fprintf(&b, ` role="img" aria-labelledby="%[1]s-title %[1]s-desc" class="chart"><title id="%[1]s-title">%[2]s</title><desc id="%[1]s-desc">%[3]s</desc>`,
		c.name, escaped(c.title), escaped(c.desc))
	return b.String()
}

// document is the drawing as a file of its own, with its styles.
func (c *chart) document() []byte {
	return []byte(c.open(true) + "<style>svg{max-width:100%;height:auto}" + chartStyle() + "</style>" +
		`<rect width="100%" height="100%" class="ground"/>` + c.marks.String() + "</svg>\n")
}

// inline is the drawing as part of a page that carries the styles.
func (c *chart) inline() template.HTML {
	return template.HTML(c.open(false) + c.marks.String() + "</svg>")
}
