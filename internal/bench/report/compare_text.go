package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText prints the comparison for a terminal.
func (c *Comparison) WriteText(w io.Writer) error {
	var out bytes.Buffer
	for _, side := range []struct {
		name string
		Side
	}{{"A", c.A}, {"B", c.B}} {
		parts := []string{machineText(side.Machine)}
		for _, s := range []string{side.Version, side.Created} {
			if s != "" {
				parts = append(parts, s)
			}
		}
		fmt.Fprintf(&out, "%s: %s\n", side.name, oneLine(strings.Join(parts, "; ")))
		if side.Command != "" {
			fmt.Fprintf(&out, "   %s\n", oneLine(side.Command))
		}
	}
	for _, line := range c.Warnings {
		fmt.Fprintf(&out, "note: %s\n", oneLine(line))
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		fmt.Fprintf(&out, "\n%s, %s\n", oneLine(g.Policy), capacityText(g.KVBlocks))
		t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "  figure\tA\tB\tchange\t")
		for j := range g.Figures {
			f := &g.Figures[j]
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", f.Label, f.side(true), f.side(false), f.amount(), f.judgement())
		}
		_ = t.Flush() // a buffer takes everything
	}
	if len(c.Groups) == 0 {
		fmt.Fprintln(&out, "\nNo policy ran with the same capacity in both.")
	}
	for _, only := range []struct {
		name   string
		groups []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		if len(only.groups) > 0 {
			fmt.Fprintf(&out, "\nonly in %s: %s\n", only.name, oneLine(strings.Join(only.groups, "; ")))
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (c *Change) side(a bool) string {
	s, known := c.B, c.KnownB
	if a {
		s, known = c.A, c.KnownA
	}
	if !known {
		return unknown
	}
	return rangeText(s, c.figure.text)
}

// amount is the change: in points of a percentage, or relative to A.
func (c *Change) amount() string {
	switch {
	case !c.KnownA || !c.KnownB:
		return ""
	case c.Noise == Same:
		return "0"
	case c.figure == &figTokenHitRate || c.figure == &figRequestHitRate:
		return strings.TrimSuffix(signedPercent(c.B.Median-c.A.Median), "%") + "points"
	case c.A.Median == 0:
		return ""
	}
	return signedPercent(c.Relative)
}

func (c *Change) judgement() string {
	switch {
	case !c.KnownA || !c.KnownB:
		return ""
	case c.Noise == FewRuns:
		return fmt.Sprintf("%s (%.0f %% by chance)", c.Noise, 100*c.Chance)
	case c.Better > 0:
		return string(c.Noise) + ": better"
	case c.Better < 0:
		return string(c.Noise) + ": worse"
	}
	return string(c.Noise)
}
