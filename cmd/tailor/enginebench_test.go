package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tailor/model/speed"
)

// engineCommand runs `tailor bench --workload engine` in this process.
func engineCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot()
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"bench", "--workload", "engine"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestEngineBench(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	out, err := engineCommand(t, "-p", "8", "-n", "2", "-t", "1", "--batch", "1,2", "--repeat", "1", "--dtype", "bf16", "--kv-dtype", "bf16", "--json", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tailor-4m, --dtype bf16: weights in bfloat16", "keys and values in bf16", "limits of T=1:", "GB/s", "pp8", "tg2"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report speed.Report
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	if report.Model != "tailor-4m" || report.DType != "bf16" || report.KVDType != "bf16" || len(report.Results) != 3 || len(report.Limits) != 1 {
		t.Errorf("report %+v", report)
	}
}

func TestEngineBenchMisuse(t *testing.T) {
	for _, args := range [][]string{
		{"-p", "0", "-n", "0"}, {"-p", "-1"}, {"-d", "-1"}, {"--repeat", "0"}, {"-t", "0"}, {"-t", ""}, {"--batch", "0"},
		{"--shape", "gpt3"}, {"--shape", "gpt2-124m", "--model", "x"}, {"--dtype", "f8"}, {"--kv-dtype", "f8"}, {"-p", "1025", "-t", "1"},
	} {
		var usage *usageError
		if out, err := engineCommand(t, args...); !errors.As(err, &usage) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
