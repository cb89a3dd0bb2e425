package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"strings"

	"tailor/internal/bench"
)

var (
	//go:embed page.html
	pageSource string
	//go:embed page.css
	pageStyle string

	pageTemplate = template.Must(template.New("page").Parse(pageSource))
)

// page is what the template shows.
type page struct {
	Policy    string // the content security policy
	Style     template.CSS
	Title     string
	Eyebrow   string
	Pays      string // a class: yes, no or unclear
	Headline  string
	Notices   []string
	Lead      string   // the verdict's first sentence
	Reasons   []string // the others
	Cards     []card
	Tables    []table
	Failures  []string
	Published []string
	Facts     []fact
	Command   string
	Method    []string
}

type card struct{ Label, Value, Note string }

type fact struct{ Label, Value string }

// WriteHTML writes the report as one page that loads nothing: no script, no font, no
// image from elsewhere, and a content security policy that lets a browser load nothing even
// if a hostile name had got past the escaping. Its one style sheet is allowed by its hash.
func WriteHTML(w io.Writer, r *bench.Report) error {
	style := pageStyle + chartStyle()
	hash := sha256.Sum256([]byte(style))
	tables := tablesOf(r)
	if len(tables) == 0 {
		tables = []table{{Title: "Result", Key: "No run came to its end."}}
	}
	for _, c := range charts(r) {
		tables[0].Plots = append(tables[0].Plots, c.inline())
	}
	p := page{
		Policy:    "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'",
		Style:     template.CSS(style),
		Title:     "tailor bench: " + r.Workload.Name,
		Eyebrow:   eyebrow(r),
		Notices:   notices(r),
		Cards:     cardsOf(r),
		Tables:    tables,
		Failures:  failures(r),
		Published: published(r),
		Facts:     facts(r),
		Command:   commandText(r.Command),
		Method:    method(r),
	}
	p.Pays, p.Headline, p.Lead, p.Reasons = verdictOf(r)
	var b strings.Builder
	if err := pageTemplate.Execute(&b, p); err != nil {
		return err
	}
	_, err := io.WriteString(w, visible(b.String()))
	return err
}
