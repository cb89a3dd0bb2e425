package device

import (
	"strings"
	"testing"
)

func TestReportString(t *testing.T) {
	reserved := uint64(1 << 29)
	used := uint64(5 << 20)
	for _, c := range []struct {
		name   string
		report Report
		want   string
	}{
		{"none", Report{State: NoDevice, Reason: "the driver sees none."}, "No GPU: the driver sees none."},
		{"two", Report{State: Found, Driver: "550.54.15", GPUs: []GPU{
			{Index: 0, Name: "NVIDIA A100", UUID: "GPU-1", State: OK, ECC: Enabled, MIG: Disabled, Utilization: &Utilization{7, 3},
				Memory:    &Memory{Total: 40 << 30, Used: 2 << 29, Free: 77 << 29, Reserved: &reserved},
				Processes: []Process{{42, "python", "compute", &used}, {7, "", "graphics", nil}}},
			{Index: 1, Name: "NVIDIA GB10", UUID: "GPU-2", State: Unreported, ECC: Unsupported, MIG: Unsupported, Reason: "its memory is unknown: why."},
		}}, `Driver 550.54.15, CUDA unknown

GPU  NAME         TOTAL     USED     FREE      RESERVED   BUSY     ECC          MIG          UUID
0    NVIDIA A100  40.0 GiB  1.0 GiB  38.5 GiB  512.0 MiB  7 %      enabled      disabled     GPU-1
1    NVIDIA GB10  unknown   unknown  unknown   unknown    unknown  unsupported  unsupported  GPU-2
GPU 1: its memory is unknown: why.

GPU  PID  KIND      USED     PROCESS
0    42   compute   5.0 MiB  python
0    7    graphics  unknown  unknown`},
		{"MIG", Report{State: Found, GPUs: []GPU{{Index: 0, State: Denied, ECC: Unknown, MIG: Enabled, Reason: "its memory is unknown: why.",
			Instances: []Instance{{Index: 2, Name: "MIG 1g.10gb", UUID: "MIG-1", Reason: "gone."}}}}},
			`GPU  NAME         TOTAL    USED     FREE     RESERVED  BUSY     ECC      MIG      UUID
0    unknown      unknown  unknown  unknown  unknown   unknown  unknown  enabled  unknown
0:2  MIG 1g.10gb  unknown  unknown  unknown  unknown                              MIG-1
GPU 0: its memory is unknown: why.
GPU 0:2: gone.`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.report.String(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestReportLine(t *testing.T) {
	memory := &Memory{Total: 80 << 30, Free: 1 << 30}
	for want, r := range map[string]Report{
		"none (no NVIDIA driver)": {State: NoLibrary, Reason: "a long sentence."},
		"0 NVIDIA A100, 1.0 of 80.0 GiB free; 1 unknown, lost": {State: Found, GPUs: []GPU{
			{Name: "NVIDIA A100", State: OK, Memory: memory}, {Index: 1, State: Lost}}},
		"0 NVIDIA GB10, memory unknown": {State: Found, GPUs: []GPU{{Name: "NVIDIA GB10", State: Unreported}}},
		"0 NVIDIA H200, 1.0 of 80.0 GiB free, MIG instances: 2": {State: Found, GPUs: []GPU{
			{Name: "NVIDIA H200", State: OK, Memory: memory, MIG: Enabled, Instances: make([]Instance, 2)}}},
	} {
		if got := r.Line(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, s := range States {
		if got := (Report{State: s}).Line(); s != Found && (got == "none ()" || len(got) > 50) {
			t.Errorf("%s: %q", s, got)
		}
	}
}

// checkWhole asserts what every Report promises.
func checkWhole(t *testing.T, r Report) {
	t.Helper()
	if found := r.State == Found; found != (len(r.GPUs) > 0) || found != (r.Reason == "") || r.GPUs == nil {
		t.Errorf("state %q with %d GPUs and reason %q", r.State, len(r.GPUs), r.Reason)
	}
	sentences := []string{r.Reason}
	for i, g := range r.GPUs {
		if g.Index != i {
			t.Errorf("GPU %d has index %d", i, g.Index)
		}
		if known := g.UUID != "" && g.Name != "" && g.Memory != nil; known != (g.Reason == "") || known != (g.State == OK) {
			t.Errorf("GPU %d is %+v with reason %q", i, g, g.Reason)
		}
		if g.Memory != nil && g.Memory.Total == 0 {
			t.Errorf("GPU %d has 0 bytes", i)
		}
		sentences = append(sentences, g.Reason)
		for _, in := range g.Instances {
			if known := in.UUID != "" && in.Name != "" && in.Memory != nil; known != (in.Reason == "") {
				t.Errorf("GPU %d has instance %+v", i, in)
			}
			sentences = append(sentences, in.Reason)
		}
	}
	for _, s := range sentences {
		if s != "" && (!strings.HasSuffix(s, ".") || strings.HasSuffix(s, "..")) {
			t.Errorf("%q is no sentence", s)
		}
	}
}
