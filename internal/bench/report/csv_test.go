package report_test

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"time"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
)

func TestCSV(t *testing.T) {
	r := &bench.Report{Groups: []bench.Group{{Policy: "prefix_affinity", KVBlocks: 1024, Runs: []bench.Run{
		{},
		{Samples: []bench.Sample{
			{Index: 7, Due: 1500 * time.Millisecond, Sent: 1600 * time.Millisecond, TTFT: 40 * time.Millisecond, E2E: 100 * time.Millisecond, Prompt: 680, Cached: 512, Output: 4, Replica: "r2", Session: "a,\"b\"\nc"},
			{Index: 8, Due: 2 * time.Second, Sent: 2 * time.Second, E2E: time.Second, Prompt: -1, Cached: -1, Error: "=HYPERLINK(\"http://x\")"},
			{Index: 9, TTFT: time.Second, E2E: time.Second, Prompt: 5, Cached: 0, Output: 1, Session: "'quoted", Replica: "@r", Error: "ＳＵＭ"},
		}},
	}}}, Partial: &bench.Group{Policy: "+cost", Runs: []bench.Run{{Samples: []bench.Sample{{Prompt: 3, Session: "＝1"}}}}}}
	var b bytes.Buffer
	if err := report.WriteCSV(&b, r); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(b.Bytes())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"policy", "capacity_kv_blocks", "repeat", "index", "session", "due_seconds", "sent_seconds", "ttft_seconds", "e2e_seconds", "tpot_seconds", "prompt_tokens", "cached_tokens", "output_tokens", "replica", "error"},
		{"prefix_affinity", "1024", "2", "7", "a,\"b\"\nc", "1.5", "1.6", "0.04", "0.1", "0.02", "680", "512", "4", "r2", ""},
		{"prefix_affinity", "1024", "2", "8", "", "2", "2", "", "1", "", "", "", "", "", "'=HYPERLINK(\"http://x\")"},
		{"prefix_affinity", "1024", "2", "9", "''quoted", "0", "0", "1", "1", "", "5", "0", "1", "'@r", "ＳＵＭ"},
		{"'+cost", "", "partial", "0", "'＝1", "0", "0", "", "", "", "3", "0", "0", "", ""},
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(rows), len(want))
	}
	for i := range want {
		if !slices.Equal(rows[i], want[i]) {
			t.Errorf("row %d\n is   %q\n want %q", i, rows[i], want[i])
		}
	}
	// RFC 4180 ends lines with CR LF.
	if strings.Count(b.String(), "\r\n") != len(want)+1 || strings.Count(b.String(), "\n") != len(want)+1 {
		t.Errorf("lines do not all end with CR LF:\n%q", b.String())
	}
}

// Nothing in any cell begins like a formula, whatever the report says.
func TestCSVHasNoFormulas(t *testing.T) {
	for name, hostile := range hostileReports() {
		r := hostile()
		var b bytes.Buffer
		if err := report.WriteCSV(&b, r); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, row := range rows {
			for i, cell := range row {
				if strings.IndexAny(cell, "=+-@\t\r") == 0 {
					t.Errorf("%s: column %d: %q", name, i, cell)
				}
			}
		}
	}
}

func TestCSVErrorIsReturned(t *testing.T) {
	if err := report.WriteCSV(full{}, synthetic(fivePolicies, []int{1024}, 3, 4)); err == nil {
		t.Error("no error from a writer that is full")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
