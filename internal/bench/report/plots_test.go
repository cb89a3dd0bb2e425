package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
)

// node is an element of parsed markup.
type node struct {
	name     string
	attr     map[string]string
	text     string // of it and all below
	children []*node

	pieces strings.Builder
}

// parse reads markup strictly as XML.
func parse(t *testing.T, data []byte) *node {
	t.Helper()
	root := &node{}
	stack := []*node{root}
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%.2000s", err, data)
		}
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				n.attr[a.Name.Local] = a.Value
			}
			top := stack[len(stack)-1]
			top.children = append(top.children, n)
			stack = append(stack, n)
		case xml.EndElement:
			n := stack[len(stack)-1]
			n.text = n.pieces.String()
			stack = stack[:len(stack)-1]
			stack[len(stack)-1].pieces.WriteString(n.text)
		case xml.CharData:
			stack[len(stack)-1].pieces.Write(token)
		}
	}
	return root
}

// all are the elements below n for which is says so.
func (n *node) all(is func(*node) bool) (found []*node) {
	for _, c := range n.children {
		if is(c) {
			found = append(found, c)
		}
		found = append(found, c.all(is)...)
	}
	return found
}

func named(name string) func(*node) bool { return func(n *node) bool { return n.name == name } }

func classed(class string) func(*node) bool {
	return func(n *node) bool { return slices.Contains(strings.Fields(n.attr["class"]), class) }
}

func plot(t *testing.T, r *bench.Report, name string) *node {
	t.Helper()
	for _, p := range report.Plots(r) {
		if p.Name == name {
			return parse(t, p.SVG).children[0]
		}
	}
	t.Fatalf("no plot %q", name)
	return nil
}

// coordinates are a path's, x and y in turn.
func coordinates(d string) []string {
	return strings.FieldsFunc(d, func(c rune) bool { return strings.ContainsRune("MLZ ", c) })
}

// checkDrawing holds what is true of every drawing, whatever the report.
func checkDrawing(t *testing.T, svg *node) {
	t.Helper()
	if svg.name != "svg" || svg.attr["role"] != "img" {
		t.Fatalf("the root is <%s role=%q>", svg.name, svg.attr["role"])
	}
	var height, width float64
	if _, err := fmt.Sscanf(svg.attr["viewBox"], "0 0 %g %g", &width, &height); err != nil || width != 480 || height < 60 || height > 50_000 {
		t.Fatalf("viewBox %q: %v", svg.attr["viewBox"], err)
	}
	labels := strings.Fields(svg.attr["aria-labelledby"])
	if len(labels) != 2 || svg.children[0].name != "title" || svg.children[0].attr["id"] != labels[0] || svg.children[0].text == "" ||
		svg.children[1].name != "desc" || svg.children[1].attr["id"] != labels[1] || svg.children[1].text == "" {
		t.Errorf("title and desc do not label the drawing: %q", svg.attr["aria-labelledby"])
	}
	inside := func(what, value string, high float64) {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || v < -1 || v > high+1 {
			t.Errorf("%s=%q lies outside 0..%g", what, value, high)
		}
	}
	for _, n := range svg.all(func(*node) bool { return true }) {
		for _, name := range []string{"x", "x1", "x2", "cx"} {
			if v, ok := n.attr[name]; ok {
				inside(name, v, width)
			}
		}
		for _, name := range []string{"y", "y1", "y2", "cy"} {
			if v, ok := n.attr[name]; ok {
				inside(name, v, height)
			}
		}
		if d, ok := n.attr["d"]; ok {
			for i, v := range coordinates(d) {
				inside("path", v, []float64{width, height}[i%2])
			}
		}
		if n.name == "rect" && n.attr["width"] != "100%" {
			x, _ := strconv.ParseFloat(n.attr["x"], 64)
			w, err := strconv.ParseFloat(n.attr["width"], 64)
			if err != nil || w < 0 || x+w > width+1 {
				t.Errorf("rect from %g is %q wide: %v", x, n.attr["width"], err)
			}
		}
		for name, v := range n.attr {
			if strings.HasPrefix(name, "on") || strings.Contains(v, "NaN") || strings.Contains(v, "Inf") {
				t.Errorf("<%s %s=%q>", n.name, name, v)
			}
		}
		if n.name == "text" && (strings.Contains(n.text, "NaN") || strings.Contains(n.text, "Inf")) {
			t.Errorf("text %q", n.text)
		}
		if n.name == "script" || n.name == "image" || n.name == "foreignObject" || n.name == "a" {
			t.Errorf("<%s> in a drawing", n.name)
		}
	}
}

func TestPlotsOfHostileReports(t *testing.T) {
	for name, hostile := range hostileReports() {
		t.Run(name, func(t *testing.T) {
			r := hostile()
			size := 0
			for _, p := range report.Plots(r) {
				checkDrawing(t, parse(t, p.SVG).children[0])
				size += len(p.SVG)
			}
			if size > 1<<20 {
				t.Errorf("the plots are %d bytes", size)
			}
		})
	}
}

func TestPlotsThatThereAre(t *testing.T) {
	names := func(r *bench.Report) (list []string) {
		for _, p := range report.Plots(r) {
			if p.Title == "" {
				t.Errorf("%s has no title", p.Name)
			}
			list = append(list, p.Name)
		}
		return list
	}
	for _, c := range []struct {
		name   string
		report *bench.Report
		want   []string
	}{
		{"one capacity", synthetic(fivePolicies, []int{1024}, 1, 4), []string{"hit-rate", "lost-reuse", "ttft", "load"}},
		{"two capacities", synthetic(fivePolicies, []int{512, 1024}, 1, 4), []string{"hit-rate", "capacity", "lost-reuse", "ttft", "load"}},
		{"nothing ran", &bench.Report{}, nil},
		{"nobody counted", hostileReports()["all unknown"](), []string{"hit-rate"}},
	} {
		if got := names(c.report); !slices.Equal(got, c.want) {
			t.Errorf("%s: plots %q, want %q", c.name, got, c.want)
		}
	}
}

// Bars are as long as their figures, on a scale that the reachable line shares.
func TestHitRateBars(t *testing.T) {
	r := synthetic([]string{"a", "b", "c"}, []int{1024}, 3, 4)
	for i, rates := range [][]float64{{.1, .2, .4}, {.3, .3, .3}, {.55, .6, .5}} {
		for j := range r.Groups[i].Runs {
			r.Groups[i].Runs[j].TokenHitRate = rates[j]
		}
	}
	r.Reach.Prompt, r.Reach.Infinite = 1000, 800
	r.Reach.Bounds = []bench.Bound{{Blocks: 4096, Reused: 700, LRU: 650}}
	svg := plot(t, r, "hit-rate")
	number := func(n *node, name string) float64 {
		v, err := strconv.ParseFloat(n.attr[name], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	bars := svg.all(classed("bar"))
	if len(bars) != 3 {
		t.Fatalf("%d bars", len(bars))
	}
	zero := number(bars[0], "x")
	unit := number(bars[0], "width") / .2
	place := func(n *node) float64 { return (number(n, "x1") - zero) / unit }
	close := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-3 {
			t.Errorf("%s at %.4f, want %.4f", what, got, want)
		}
	}
	close("second bar", number(bars[1], "width")/unit, .3)
	close("third bar", number(bars[2], "width")/unit, .55)
	close("reachable", place(svg.all(classed("reach"))[0]), .8)
	close("bound", place(svg.all(classed("bound"))[0]), .7)
	close("LRU", place(svg.all(classed("lru"))[0]), .65)
	whiskers := svg.all(classed("whisker"))
	if len(whiskers) != 6 {
		t.Fatalf("%d whisker lines, want 3 for each of the two policies whose runs differ", len(whiskers))
	}
	close("least", place(whiskers[0]), .1)
	close("most", (number(whiskers[0], "x2")-zero)/unit, .4)
	for _, want := range []string{"20.0 %", "30.0 %", "55.0 %", "reachable, one cache that never evicts: 80.0 %"} {
		if !strings.Contains(svg.text, want) {
			t.Errorf("%q is not written", want)
		}
	}
}

// The stacked parts of a bar are as long as the tokens of their causes, and a gap to the
// computed tokens is shown.
func TestLostBars(t *testing.T) {
	r := synthetic([]string{"a"}, []int{1024}, 1, 4)
	r.Groups[0].Runs[0].Computed = 1000
	r.Groups[0].Runs[0].Lost = map[string]int64{"cold": 500, "elsewhere": 300, "a new cause": 120}
	svg := plot(t, r, "lost-reuse")
	var widths []float64
	for _, n := range svg.all(named("g")) {
		w, err := strconv.ParseFloat(n.all(named("rect"))[0].attr["width"], 64)
		if err != nil {
			t.Fatal(err)
		}
		widths = append(widths, w+.7) // the gap between parts
	}
	if len(widths) != 4 {
		t.Fatalf("%d parts, want 3 causes and what the ledger lacks", len(widths))
	}
	for i, want := range []float64{500, 300, 120, 80} {
		if got := widths[i] / widths[0] * 500; math.Abs(got-want) > 2 {
			t.Errorf("part %d stands for %.1f tokens, want %.0f", i, got, want)
		}
	}
	for _, want := range []string{"new, or in no full block", "cached on another replica", "a new cause", "not in the ledger"} {
		if !strings.Contains(svg.text, want) {
			t.Errorf("the legend lacks %q", want)
		}
	}
}

// A curve passes through the points of its distribution on the axis that the tick labels give.
func TestTTFTCurve(t *testing.T) {
	r := synthetic([]string{"a"}, []int{1024}, 1, 4)
	r.SLO = bench.SLO{}
	curve := r.Groups[0].Runs[0].TTFTCurve
	for i := range curve {
		curve[i] = .01 * math.Pow(10, float64(i)/50) // 10 ms to 1 s, straight in the logarithm
	}
	svg := plot(t, r, "ttft")
	at := map[string]float64{}
	for _, n := range svg.all(named("text")) {
		if strings.HasSuffix(n.text, " ms") || strings.HasSuffix(n.text, " s") {
			at[n.text], _ = strconv.ParseFloat(n.attr["x"], 64)
		}
	}
	if at["10 ms"] == 0 || at["100 ms"] == 0 {
		t.Fatalf("ticks at %v", at)
	}
	hundred := 0.0
	for _, n := range svg.all(named("text")) {
		if n.text == "100 %" {
			hundred, _ = strconv.ParseFloat(n.attr["y"], 64)
		}
	}
	var points []float64
	for _, v := range coordinates(svg.all(classed("s0"))[0].attr["d"]) {
		f, _ := strconv.ParseFloat(v, 64)
		points = append(points, f)
	}
	if len(points) != 2*101 {
		t.Fatalf("%d coordinates", len(points))
	}
	if math.Abs(points[0]-at["10 ms"]) > .1 || math.Abs(points[100]-at["100 ms"]) > .1 {
		t.Errorf("0 %% at %g and 50 %% at %g, ticks at %v", points[0], points[100], at)
	}
	// Text is set on a line 4 below its middle.
	if math.Abs(points[201]-(hundred-4)) > .1 {
		t.Errorf("the curve ends at height %g, 100 %% is at %g", points[201], hundred-4)
	}
	if bottom, middle, top := points[1], points[101], points[201]; math.Abs(bottom+top-2*middle) > .1 || bottom <= top {
		t.Errorf("0, 50 and 100 %% at heights %g, %g, %g", bottom, middle, top)
	}
}

func TestWritePlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "plots")
	r := synthetic(fivePolicies, []int{512, 1024}, 2, 4)
	paths, err := report.WritePlots(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	plots := report.Plots(r)
	if len(paths) != len(plots) {
		t.Fatalf("wrote %d of %d", len(paths), len(plots))
	}
	for i, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) != plots[i].Name+".svg" || !bytes.Equal(data, plots[i].SVG) {
			t.Errorf("%s is not the plot %s", path, plots[i].Name)
		}
	}
	if _, err := report.WritePlots(filepath.Join(paths[0], "below-a-file"), r); err == nil {
		t.Error("a directory below a file was made")
	}
}
