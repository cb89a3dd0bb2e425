package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
)

// outputFlags say where else the results go.
type outputFlags struct {
	json, csv, html, plots string
}

func (f *outputFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.json, "json", "", "also write the results to this file, as JSON")
	flags.StringVar(&f.csv, "csv", "", "also write every request to this file, as CSV")
	flags.StringVar(&f.html, "html", "", "also write a page with tables and plots to this file; it needs nothing else")
	flags.StringVar(&f.plots, "plots", "", "also write the plots to this folder, as SVG")
}

// outputs are the files to write, open from before the run on: what took minutes to measure
// must not be lost to a folder that does not exist.
type outputs struct {
	files []outputFile
	plots string
}

type outputFile struct {
	*os.File
	write func(io.Writer, *bench.Report) error
}

func (f *outputFlags) open() (*outputs, error) {
	o := &outputs{plots: f.plots}
	for _, want := range []struct {
		flag, path string
		write      func(io.Writer, *bench.Report) error
	}{{"--json", f.json, report.WriteJSON}, {"--csv", f.csv, report.WriteCSV}, {"--html", f.html, report.WriteHTML}} {
		if want.path == "" {
			continue
		}
		for _, other := range o.files {
			if other.Name() == want.path {
				o.close()
				return nil, fmt.Errorf("%s %s: another output has that file", want.flag, want.path)
			}
		}
		// What it holds goes only when there is something to put in its place.
		file, err := os.OpenFile(want.path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			o.close()
			return nil, fmt.Errorf("%s: %w", want.flag, err)
		}
		o.files = append(o.files, outputFile{file, want.write})
	}
	if o.plots != "" {
		if err := os.MkdirAll(o.plots, 0o755); err != nil {
			o.close()
			return nil, fmt.Errorf("--plots %s: %w", o.plots, err)
		}
	}
	return o, nil
}

// close is for when nothing is written any more; files that were are closed already.
func (o *outputs) close() {
	for _, f := range o.files {
		_ = f.Close()
	}
}

func (o *outputs) write(r *bench.Report) error {
	var errs []error
	for _, f := range o.files {
		err := f.write(f, r)
		// Shorter than before. What cannot be cut, such as a pipe, holds nothing old.
		if end, tell := f.Seek(0, io.SeekCurrent); err == nil && tell == nil {
			err = f.Truncate(end)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name(), err))
		}
	}
	if o.plots != "" {
		_, err := report.WritePlots(o.plots, r)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func newBenchCompare() *cobra.Command {
	return &cobra.Command{
		Use:     "compare A.json B.json",
		Short:   "Say what changed from one result of a benchmark to another",
		Example: "  tailor bench compare before.json after.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return misuse(cmd, "%d arguments: want two files that --json wrote", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var reports [2]*bench.Report
			for i, path := range args {
				file, err := os.Open(path)
				if err != nil {
					return err
				}
				reports[i], err = report.ReadJSON(file)
				_ = file.Close()
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			c, err := report.Compare(reports[0], reports[1])
			if err != nil {
				return err
			}
			return c.WriteText(cmd.OutOrStdout())
		},
	}
}

func newBenchSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of what --json writes",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(report.Schema())
			return err
		},
	}
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
