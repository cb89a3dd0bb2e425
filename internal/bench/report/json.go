package report

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"tailor/internal/bench"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of what [WriteJSON] writes.
func Schema() []byte { return slices.Clone(schema) }

// WriteJSON writes the report's JSON form, which [Schema] describes: lists and maps
// without entries are [] and {}, never null. A figure that is not a number is an error,
// since JSON cannot hold it.
func WriteJSON(w io.Writer, r *bench.Report) error {
	data, err := json.MarshalIndent(withoutNulls(r), "", "  ")
	if err != nil {
		return fmt.Errorf("writing the report as JSON: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// ReadJSON reads what WriteJSON wrote. A version other than [bench.SchemaVersion] is an
// error that wraps [ErrVersion]; fields that it does not know are ignored.
func ReadJSON(r io.Reader) (*bench.Report, error) {
	d := json.NewDecoder(r)
	// The version first: in another one, the fields may be of other types.
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("reading a benchmark report: %w", err)
	}
	if err := d.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading a benchmark report: more follows after its end")
	}
	var version struct {
		Schema *string `json:"schema"`
	}
	switch err := json.Unmarshal(raw, &version); {
	case err != nil:
		return nil, fmt.Errorf("reading a benchmark report: %w", err)
	case version.Schema == nil:
		return nil, fmt.Errorf("%w: the file names none in its field \"schema\", so it is not a report of this program", ErrVersion)
	case *version.Schema != bench.SchemaVersion:
		return nil, fmt.Errorf("%w: the file has %q, this program reads %q", ErrVersion, shortened(*version.Schema, 60), bench.SchemaVersion)
	}
	report := &bench.Report{}
	if err := json.Unmarshal(raw, report); err != nil {
		return nil, fmt.Errorf("reading a benchmark report: %w", err)
	}
	return report, nil
}

// withoutNulls copies what of a report has to be changed for its lists and maps to be there.
func withoutNulls(r *bench.Report) *bench.Report {
	c := *r
	c.Command = filled(c.Command)
	if c.Workload.Parameters == nil {
		c.Workload.Parameters = map[string]string{}
	}
	c.Reach.Bounds = filled(c.Reach.Bounds)
	c.Verdict.Text = filled(c.Verdict.Text)
	c.Groups = append([]bench.Group{}, c.Groups...)
	for i := range c.Groups {
		c.Groups[i] = groupWithoutNulls(c.Groups[i])
	}
	if c.Partial != nil {
		g := groupWithoutNulls(*c.Partial)
		c.Partial = &g
	}
	return &c
}

func groupWithoutNulls(g bench.Group) bench.Group {
	if g.Summary == nil {
		g.Summary = map[string]bench.Spread{}
	}
	g.Runs = append([]bench.Run{}, g.Runs...)
	for i := range g.Runs {
		run := &g.Runs[i]
		if run.Lost == nil {
			run.Lost = map[string]int64{}
		}
		run.TTFTCurve = filled(run.TTFTCurve)
		run.Load = append([]bench.LoadSeries{}, run.Load...)
		for j := range run.Load {
			run.Load[j].InFlight = filled(run.Load[j].InFlight)
		}
	}
	return g
}

func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
