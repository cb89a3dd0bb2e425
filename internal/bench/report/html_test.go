package report_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
)

func page(t *testing.T, r *bench.Report) (*node, []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return parse(t, b.Bytes()), b.Bytes()
}

// checkPage holds what is true of every page: nothing is loaded, nothing runs, the policy
// forbids both, ids are unique, every section has a heading.
func checkPage(t *testing.T, root *node) {
	t.Helper()
	var policy string
	for _, n := range root.all(named("meta")) {
		if n.attr["http-equiv"] == "Content-Security-Policy" {
			policy = n.attr["content"]
		}
	}
	styles := root.all(named("style"))
	if len(styles) != 1 {
		t.Fatalf("%d style elements", len(styles))
	}
	hash := sha256.Sum256([]byte(styles[0].text))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'"
	if policy != want {
		t.Errorf("content security policy %q, want %q", policy, want)
	}
	if style := styles[0].text; strings.Contains(style, "@import") || strings.Contains(style, "url(") {
		t.Error("the style sheet loads something")
	}
	for _, name := range []string{"script", "img", "image", "iframe", "object", "embed", "link", "base", "form", "input", "a", "video", "foreignObject"} {
		if found := root.all(named(name)); len(found) > 0 {
			t.Errorf("%d <%s>", len(found), name)
		}
	}
	ids := map[string]bool{}
	for _, n := range root.all(func(*node) bool { return true }) {
		for name, v := range n.attr {
			if strings.HasPrefix(name, "on") || slices.Contains([]string{"src", "href", "style", "action", "srcset", "data"}, name) {
				t.Errorf("<%s %s=%q>", n.name, name, v)
			}
		}
		if id, ok := n.attr["id"]; ok {
			if ids[id] {
				t.Errorf("id %q twice", id)
			}
			ids[id] = true
		}
	}
	for _, n := range root.all(named("section")) {
		if n.children[0].name != "h2" || n.children[0].text == "" {
			t.Error("a section begins with no heading")
		}
	}
	if n := len(root.all(named("h1"))); n != 1 {
		t.Errorf("%d h1", n)
	}
	for _, table := range root.all(named("table")) {
		columns := len(table.all(named("thead"))[0].all(named("th")))
		for _, row := range table.all(named("tbody"))[0].all(named("tr")) {
			if cells := len(row.children); cells != columns && row.attr["class"] != "capacity" {
				t.Errorf("a row of %d cells under %d columns", cells, columns)
			}
		}
	}
}

func TestPagesOfHostileReports(t *testing.T) {
	for name, hostile := range hostileReports() {
		t.Run(name, func(t *testing.T) {
			r := hostile()
			root, _ := page(t, r)
			checkPage(t, root)
			if body := root.all(named("body"))[0].text; strings.Contains(body, "NaN") || strings.Contains(body, "Inf ") {
				t.Error("the page says NaN or Inf")
			}
		})
	}
}

func TestHostileTextIsText(t *testing.T) {
	root, _ := page(t, hostileReports()["hostile text"]())
	body := root.all(named("body"))[0].text
	// Text that came through whole was never markup. Only what turns the reading order is gone.
	seen := strings.ReplaceAll(hostileText, "\u202e", "\ufffd")
	for _, want := range []string{"tailor bench · " + seen, "× " + seen, seen + " · 600 requests", "The counts contradict each other: "} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestPageSaysWhatMatters(t *testing.T) {
	r := synthetic(fivePolicies, []int{512, 1024}, 3, 4)
	root, _ := page(t, r)
	checkPage(t, root)
	if h1 := root.all(named("h1"))[0]; h1.text != "Routing by prefix pays for this traffic." || h1.attr["class"] != "yes" {
		t.Errorf("verdict %q of class %q", h1.text, h1.attr["class"])
	}
	body := root.all(named("body"))[0].text
	for _, want := range []string{
		"Yes: choose prefix_affinity.", "67.3 %", // the verdict
		"512 KV blocks per replica", "1,024 KV blocks per replica", // both capacities
		"reachable with one cache that never evicts: 87.4 %",
		"AMD EPYC 7763 64-Core Processor, 2 cores, linux/amd64, go1.26.8",
		"tailor bench --workload chat --policies random,prefix_affinity --rate 12 --slo-ttft 250ms",
		"open loop, Poisson arrivals at 12.0 requests a second", "first token within 250 ms",
		"412,380", "medians over the repeated runs",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	drawings := root.all(named("svg"))
	if len(drawings) != 5 {
		t.Errorf("%d plots", len(drawings))
	}
	for _, svg := range drawings {
		checkDrawing(t, svg)
	}
	chosen := root.all(named("table"))[0].all(classed("chosen"))
	if len(chosen) != 1 || !strings.HasPrefix(chosen[0].text, "prefix_affinity") {
		t.Errorf("%d rows are marked as the choice", len(chosen))
	}
}

func TestPageOfOneRunEach(t *testing.T) {
	root, _ := page(t, synthetic(fivePolicies, []int{1024}, 1, 4))
	body := root.all(named("body"))[0].text
	if !strings.Contains(body, "how much the figures vary from run to run is unknown") || strings.Contains(body, "medians over") {
		t.Error("the page does not say that the noise is unknown")
	}
}

func TestUnknownIsNotZero(t *testing.T) {
	r := hostileReports()["all unknown"]()
	r.Verdict = bench.Verdict{Pays: "unclear"}
	root, _ := page(t, r)
	rows := root.all(named("table"))[0].all(named("tbody"))[0].all(named("tr"))
	cells := 0
	for _, row := range rows {
		for i, cell := range row.all(named("td")) {
			cells++
			// Answers and goodput per second are the client's own count.
			if unknown := strings.TrimSpace(cell.text) == "unknown"; unknown == (cell.attr["class"] != "unknown") {
				t.Errorf("cell %d: %q of class %q", i, cell.text, cell.attr["class"])
			} else if heads := root.all(named("thead"))[0].all(named("th")); !unknown && !strings.Contains(heads[i+1].text, "per second") {
				t.Errorf("%s: %q, though nobody counted it", heads[i+1].text, cell.text)
			}
		}
	}
	if cells == 0 {
		t.Fatal("no cells")
	}
	if hit := plot(t, r, "hit-rate"); len(hit.all(classed("bar"))) != 0 || !strings.Contains(hit.text, "unknown") {
		t.Error("the plot draws what nobody counted")
	}
}

func TestInterruptedIsSaid(t *testing.T) {
	r := synthetic(fivePolicies, []int{1024}, 1, 4)
	r.Interrupted = true
	r.Partial = &bench.Group{Policy: "cost", Runs: []bench.Run{{Requests: 77}}}
	root, _ := page(t, r)
	text := ""
	for _, n := range root.all(classed("notice")) {
		text += n.text + "\n"
	}
	if !strings.Contains(text, "interrupted") || !strings.Contains(text, "cost, 77 of 600 requests") {
		t.Errorf("notices: %q", text)
	}
}

// A browser finds nothing to complain about; that it would is seen from a page whose style
// does not have the hash that its policy allows.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium in the path")
	}
	dir := t.TempDir()
	open := func(name string, data []byte) (dom, console string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(dir, "profile"),
			"--enable-logging=stderr", "--dump-dom", "file://"+path)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.Bytes())
		}
		for _, line := range strings.Split(stderr.String(), "\n") {
			if strings.Contains(line, "CONSOLE") {
				console += line + "\n"
			}
		}
		return string(out), console
	}
	_, data := page(t, synthetic(fivePolicies, []int{512, 1024}, 3, 4))
	dom, console := open("good.html", data)
	if console != "" || strings.Count(dom, "<svg") != 5 {
		t.Errorf("%d drawings; console: %s", strings.Count(dom, "<svg"), console)
	}
	if _, console := open("bad.html", bytes.Replace(data, []byte("body{"), []byte("body {"), 1)); console == "" {
		t.Error("a style that the policy does not allow was not complained about, so nothing else would have been")
	}
}
