package device

import (
	"strings"
	"testing"
)

func TestReportString(t *testing.T) {
	for _, c := range []struct {
		name   string
		report Report
		want   string
	}{
		{"none", Report{State: NoDevice, Reason: "the driver sees none."}, "No GPU: the driver sees none."},
		{"two", Report{State: Found, GPUs: []GPU{
			{Index: 0, Name: "NVIDIA A100", UUID: "GPU-1", Memory: &Memory{Total: 40 << 30, Used: 3 << 29, Free: 77 << 29}},
			{Index: 1, Name: "NVIDIA GB10", UUID: "GPU-2", Reason: "its memory is unknown: why."},
		}}, strings.Join([]string{
			"GPU  NAME         TOTAL     USED     FREE      UUID",
			"0    NVIDIA A100  40.0 GiB  1.5 GiB  38.5 GiB  GPU-1",
			"1    NVIDIA GB10  unknown   unknown  unknown   GPU-2",
			"GPU 1: its memory is unknown: why.",
		}, "\n")},
		{"lost", Report{State: Found, GPUs: []GPU{{Index: 0, Reason: "gone."}}}, strings.Join([]string{
			"GPU  NAME     TOTAL    USED     FREE     UUID",
			"0    unknown  unknown  unknown  unknown  unknown",
			"GPU 0: gone.",
		}, "\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.report.String(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestProbeThisMachine needs no GPU: whatever the machine has, the report is whole.
func TestProbeThisMachine(t *testing.T) {
	p := NewProber()
	for range 2 { // the second Probe finds NVML as the first left it
		r := p.Probe()
		t.Logf("%s: %s", r.State, r)
		checkWhole(t, r)
	}
}

// checkWhole asserts what every Report promises.
func checkWhole(t *testing.T, r Report) {
	t.Helper()
	if found := r.State == Found; found != (len(r.GPUs) > 0) || found != (r.Reason == "") {
		t.Errorf("state %q with %d GPUs and reason %q", r.State, len(r.GPUs), r.Reason)
	}
	sentences := []string{r.Reason}
	for i, g := range r.GPUs {
		if g.Index != i {
			t.Errorf("GPU %d has index %d", i, g.Index)
		}
		if known := g.UUID != "" && g.Name != "" && g.Memory != nil; known != (g.Reason == "") {
			t.Errorf("GPU %d is %+v with reason %q", i, g, g.Reason)
		}
		if g.Memory != nil && g.Memory.Total == 0 {
			t.Errorf("GPU %d has 0 bytes", i)
		}
		sentences = append(sentences, g.Reason)
	}
	for _, s := range sentences {
		if s != "" && (!strings.HasSuffix(s, ".") || strings.HasSuffix(s, "..")) {
			t.Errorf("%q is no sentence", s)
		}
	}
}
