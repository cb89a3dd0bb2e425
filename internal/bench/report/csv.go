package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"tailor/internal/bench"
)

var csvHeader = []string{
	"policy", "capacity_kv_blocks", "repeat", "index", "session",
	"due_seconds", "sent_seconds", "ttft_seconds", "e2e_seconds", "tpot_seconds",
	"prompt_tokens", "cached_tokens", "output_tokens", "replica", "error",
}

// WriteCSV writes one line for every request of every run, after RFC 4180 and with a header.
// The run that was under way when the benchmark was given up has "partial" for its repeat.
// Times of a request count from when it was due. A cell is empty where there is nothing to
// say: the times of a request that failed before its first token, the time per token of an
// answer of one, what the answer's usage left out.
//
// A spreadsheet takes a text that begins like a formula for one, and names of sessions and
// errors come from anywhere. Such texts get a ' in front, and so that they can be told from
// texts that had one already, those get another.
func WriteCSV(w io.Writer, r *bench.Report) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(csvHeader); err != nil {
		return err
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		for j := range g.Runs {
			if err := writeSamples(out, g, strconv.Itoa(j+1), g.Runs[j].Samples); err != nil {
				return err
			}
		}
	}
	if g := r.Partial; g != nil {
		for i := range g.Runs {
			if err := writeSamples(out, g, "partial", g.Runs[i].Samples); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

func writeSamples(out *csv.Writer, g *bench.Group, repeat string, samples []bench.Sample) error {
	for i := range samples {
		s := &samples[i]
		err := out.Write([]string{
			inert(g.Policy), number(g.KVBlocks, g.KVBlocks > 0), repeat, strconv.Itoa(s.Index), inert(s.Session),
			secondsCell(s.Due, true), secondsCell(s.Sent, true), secondsCell(s.TTFT, s.TTFT > 0), secondsCell(s.E2E, s.E2E > 0), secondsCell(s.TPOT(), s.TPOT() > 0),
			number(s.Prompt, s.Prompt > 0), number(s.Cached, s.Cached >= 0), number(s.Output, s.Prompt >= 0), inert(s.Replica), inert(s.Error),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func number(n int, known bool) string {
	if !known {
		return ""
	}
	return strconv.Itoa(n)
}

func secondsCell(d time.Duration, known bool) string {
	if !known {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// inert makes a text that no spreadsheet computes: OWASP's list of beginnings, and their
// full-width twins.
func inert(s string) string {
	if strings.IndexAny(s, "=+-@\t\r\n＝＋－＠'") == 0 {
		return "'" + s
	}
	return s
}
