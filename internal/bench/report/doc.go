// Package report writes what a benchmark measured: as JSON with a schema, as CSV of its
// requests, as SVG plots and as one HTML page that needs nothing else; and it compares two
// reports.
//
// Everything here is a function of a [bench.Report] alone: no clock, no environment, no
// network. A report may come from a file of anybody's, so every text in it is escaped and
// every number may be absurd. What nobody counted ([bench.Run.Unknown]) is shown as
// unknown, never as 0.
//
// The plots are drawn here and not by a library, because they have to follow the reader's
// light or dark theme by CSS, carry titles and descriptions for screen readers, and stay
// small text; chart.go, scale.go and theme.go are all that takes.
package report
