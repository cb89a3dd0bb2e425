package device

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// scrape is what Prometheus would read, one series a line.
func scrape(t *testing.T, report Report, host func() (Host, error)) (lines []string, rows []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(NewMonitor(always{report}, time.Hour, time.Minute), host))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		rows = append(rows, fmt.Sprintf("| `%s` | gauge | %s | %s |", f.GetName(), strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp()))
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = bytes.NewReader(text.Bytes())
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
	for line := range strings.Lines(text.String()) {
		if line[0] != '#' {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines, rows
}

// always is a Source with one Report.
type always struct{ report Report }

func (a always) Probe() Report { return a.report }

func knownHost() (Host, error) { return Host{Total: 4096, Available: 1024}, nil }

func TestCollectorTellsWhatIsKnown(t *testing.T) {
	reserved := uint64(7)
	lines, rows := scrape(t, Report{State: Found, Driver: "570.1", CUDA: "12.8", GPUs: []GPU{
		{Index: 0, UUID: "GPU-a", Name: "A", State: OK, Memory: &Memory{100, 0, 93, &reserved}, Utilization: &Utilization{50, 3}},
		{Index: 1, UUID: "GPU-b", Name: "B", State: Denied, MIG: Enabled, Instances: []Instance{{Index: 2, UUID: "MIG-2", Memory: &Memory{10, 1, 9, nil}}, {Index: 3}}},
		{Index: 2, State: Lost},
	}}, knownHost)
	want := []string{
		`tailor_gpu_info{cuda="12.8",driver="570.1",gpu="0",name="A",uuid="GPU-a"} 1`,
		`tailor_gpu_info{cuda="12.8",driver="570.1",gpu="1",name="B",uuid="GPU-b"} 1`,
		`tailor_gpu_memory_bytes{gpu="0",kind="free",mig="",uuid="GPU-a"} 93`,
		`tailor_gpu_memory_bytes{gpu="0",kind="reserved",mig="",uuid="GPU-a"} 7`,
		`tailor_gpu_memory_bytes{gpu="0",kind="total",mig="",uuid="GPU-a"} 100`,
		`tailor_gpu_memory_bytes{gpu="0",kind="used",mig="",uuid="GPU-a"} 0`,
		`tailor_gpu_memory_bytes{gpu="1",kind="free",mig="2",uuid="MIG-2"} 9`,
		`tailor_gpu_memory_bytes{gpu="1",kind="total",mig="2",uuid="MIG-2"} 10`,
		`tailor_gpu_memory_bytes{gpu="1",kind="used",mig="2",uuid="MIG-2"} 1`,
		`tailor_gpu_utilization_ratio{gpu="0",kind="compute",uuid="GPU-a"} 0.5`,
		`tailor_gpu_utilization_ratio{gpu="0",kind="memory",uuid="GPU-a"} 0.03`,
		`tailor_host_memory_bytes{kind="available"} 1024`,
		`tailor_host_memory_bytes{kind="total"} 4096`,
	}
	var states []string
	got := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		state := strings.Contains(line, "_state{")
		if state && strings.HasSuffix(line, "} 1") {
			states = append(states, line)
		}
		return state
	})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{
		`tailor_gpu_driver_state{state="found"} 1`, `tailor_gpu_state{gpu="0",state="ok"} 1`,
		`tailor_gpu_state{gpu="1",state="no_permission"} 1`, `tailor_gpu_state{gpu="2",state="lost"} 1`,
	}; !slices.Equal(states, want) {
		t.Errorf("states %q", states)
	}
	// The document has these rows, and no others.
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `tailor_gpu_") || strings.HasPrefix(line, "| `tailor_host_") {
			documented = append(documented, strings.TrimSpace(line))
		}
	}
	slices.Sort(documented)
	if !slices.Equal(rows, documented) {
		t.Errorf("docs/metrics.md has\n%s\nthe program\n%s", strings.Join(documented, "\n"), strings.Join(rows, "\n"))
	}
}

// Where nothing is known there is no number that could be taken for a reading.
func TestCollectorLeavesOutWhatIsUnknown(t *testing.T) {
	for _, state := range []State{NoLibrary, Hung} {
		lines, _ := scrape(t, Report{State: state, Reason: "why."}, func() (Host, error) { return Host{}, ErrHost })
		for _, line := range lines {
			if !strings.HasPrefix(line, "tailor_gpu_driver_state{") {
				t.Errorf("%s: %s", state, line)
			}
		}
		if len(lines) != len(States) {
			t.Errorf("%s: %d lines", state, len(lines))
		}
	}
}
