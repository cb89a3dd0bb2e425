//go:build linux && cgo

package device

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tailor/internal/device/devicetest"
)

// These tests load a real shared library, as a driver's would be. A process binds to the
// first that it loads, so that each variant needs a process of its own: the test binary,
// told by probeEnv to print one report of the library named there.
const probeEnv = "TAILOR_TEST_PROBE"

func TestMain(m *testing.M) {
	if library, asked := os.LookupEnv(probeEnv); asked {
		_ = json.NewEncoder(os.Stdout).Encode(NewProber(Options{Library: library, Processes: true}).Probe())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// probeInProcess is a Probe in a process of its own.
func probeInProcess(t *testing.T, library string, env ...string) Report {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), probeEnv+"="+library), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkWhole(t, r)
	return r
}

// gpu are the lines of a GPU of total GiB with some of everything.
func gpu(i, total int) []string {
	line := func(key string, value any) string { return fmt.Sprintf("%d.%s %v", i, key, value) }
	return []string{
		line("uuid", fmt.Sprintf("GPU-%d", i)), line("name", "NVIDIA Fake"), line("total", total<<30), line("used", 3<<30+i),
		line("free", (total-4)<<30-i), line("reserved", 1<<30), line("util", 10+i), line("memutil", i), line("ecc", 1),
	}
}

func machine(count int, more ...string) []string {
	lines := []string{"driver 570.1", "nvml 12.570.1", "cuda 12080", fmt.Sprintf("count %d", count)}
	for i := range count {
		lines = append(lines, gpu(i, 80)...)
	}
	return append(more, lines...) // the first line of a key counts
}

// TestProbeThisMachine needs no GPU: whatever the machine has, the report is whole.
func TestProbeThisMachine(t *testing.T) {
	r := probeInProcess(t, "")
	t.Logf("%s: %s", r.State, r)
}

func TestFakeLibrary(t *testing.T) {
	c := devicetest.NewControl(t)
	for _, v := range c.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	p := NewProber(Options{Library: devicetest.Library(t, devicetest.Whole), Processes: true})
	probes := 0
	probe := func(lines []string) Report {
		c.Set(lines...)
		probes++
		r := p.Probe()
		checkWhole(t, r)
		return r
	}
	for _, count := range []int{1, 2, 8} {
		r := probe(machine(count))
		if r.State != Found || len(r.GPUs) != count || r.Driver != "570.1" || r.NVML != "12.570.1" || r.CUDA != "12.8" {
			t.Fatalf("%d GPUs: %+v", count, r)
		}
		for i, g := range r.GPUs {
			m := g.Memory
			if g.State != OK || g.UUID != fmt.Sprintf("GPU-%d", i) || g.ECC != Enabled || g.MIG != Disabled || *g.Utilization != (Utilization{10 + i, i}) ||
				m.Total != 80<<30 || m.Used != 3<<30+uint64(i) || m.Free != 76<<30-uint64(i) || *m.Reserved != 1<<30 {
				t.Errorf("GPU %d of %d: %+v, memory %+v", i, count, g, m)
			}
		}
	}
	if r := probe(machine(0)); r.State != NoDevice {
		t.Errorf("no GPU: %+v", r)
	}
	// Memory changes, and then the GPU is gone, between two calls.
	if r := probe(machine(2, "1.used 7", "1.free 5")); r.GPUs[1].Memory.Used != 7 || r.GPUs[1].Memory.Free != 5 || r.GPUs[0].Memory.Used != 3<<30 {
		t.Errorf("changed memory: %+v", r.GPUs[1].Memory)
	}
	for _, f := range []struct {
		name   string
		line   []string
		state  GPUState
		reason string
	}{
		{"lost whole", []string{"1.handle 15"}, Lost, "does not open it: the GPU has fallen off the bus."},
		{"lost between questions", []string{"1.memory_ret 15"}, Lost, "its memory is unknown: the GPU has fallen off the bus."},
		{"no permission", []string{"1.handle 4"}, Denied, "this user may not"},
		{"unified memory", []string{"1.memory_ret 3"}, Unreported, "share the host's memory"},
		{"an error with the driver's words", []string{"1.memory_ret 17"}, Faulty, "NVML error 17, fake error 17"},
		{"only the first version works", []string{"1.memory2_ret 25"}, OK, ""},
		{"no utilisation", []string{"1.util_ret 3", "1.ecc_ret 3", "1.mig_ret 999", "1.process_ret 4"}, OK, ""},
	} {
		r := probe(machine(2, f.line...))
		if r.State != Found || len(r.GPUs) != 2 || r.GPUs[0].State != OK {
			t.Fatalf("%s: %+v", f.name, r)
		}
		g := r.GPUs[1]
		if g.State != f.state || !strings.Contains(g.Reason, f.reason) || (f.state == OK) != (g.Memory != nil) {
			t.Errorf("%s: %+v", f.name, g)
		}
		if f.name == "only the first version works" && (g.Memory.Reserved != nil || g.Memory.Used != 4<<30+1) {
			t.Errorf("%s: %+v", f.name, g.Memory)
		}
		if f.name == "no utilisation" && (g.Utilization != nil || g.ECC != Unsupported || g.MIG != Unknown || g.Processes != nil) {
			t.Errorf("%s: %+v", f.name, g)
		}
	}
	// MIG: numbers with a hole, an instance that may not be opened, a device that says
	// nothing of its memory.
	r := probe(machine(1, "0.mig 1", "0.mig_max 4", "0.memory_ret 4", "0.util_ret 3", "0.mig_handle.1 6", "0.mig_handle.3 4",
		"0.mig.0.uuid MIG-0", "0.mig.0.name MIG 1g.10gb", "0.mig.0.total 10737418240", "0.mig.0.used 12", "0.mig.0.free 10737418228",
		"0.mig.2.uuid MIG-2", "0.mig.2.name MIG 2g.20gb", "0.mig.2.memory_ret 15"))
	g := r.GPUs[0]
	if g.State != Denied || g.MIG != Enabled || len(g.Instances) != 3 || g.Utilization != nil {
		t.Fatalf("MIG: %+v", g)
	}
	if a, b, d := g.Instances[0], g.Instances[1], g.Instances[2]; a.UUID != "MIG-0" || a.Memory.Total != 10<<30 || a.Memory.Used != 12 || a.Reason != "" ||
		b.Index != 2 || b.Memory != nil || !strings.Contains(b.Reason, "off the bus") || d.Index != 3 || !strings.Contains(d.Reason, "does not open it") {
		t.Errorf("MIG instances: %+v", g.Instances)
	}
	// More processes than go-nvml makes room for at first; a name and a use may be unknown.
	g = probe(machine(1, "0.process.0 42 1048576", "0.process.1 43 18446744073709551615", "0.process.2 44 0", "name.42 /usr/bin/python3")).GPUs[0]
	if n := len(g.Processes); n != 3 || g.Processes[0].Name != "/usr/bin/python3" || *g.Processes[0].Used != 1<<20 || g.Processes[0].Kind != "compute" ||
		g.Processes[1].Used != nil || g.Processes[1].Name != "" || *g.Processes[2].Used != 0 {
		t.Errorf("processes: %+v", g.Processes)
	}
	if opened, shut := c.Balance(); opened != probes || shut != probes {
		t.Errorf("%d probes: %d initializations, %d shutdowns", probes, opened, shut)
	}
	// The driver disappears, in any of these ways, and comes back.
	for _, f := range []struct {
		line  string
		state State
		says  string
	}{
		{"init 9", NoDriver, "not loaded"}, {"init 18", NoDriver, "versions"}, {"init 4", NoPermission, "/dev/nvidia"},
		{"count_ret 1", NoDriver, "counting"}, {"init 999", Failed, "fake error 999"},
	} {
		if r := probe(machine(1, f.line)); r.State != f.state || !strings.Contains(r.Reason, f.says) {
			t.Errorf("%s: %+v", f.line, r)
		}
	}
	if r := probe(machine(1)); r.State != Found {
		t.Errorf("back again: %+v", r)
	}
	if opened, shut := c.Balance(); opened != shut {
		t.Errorf("%d initializations, %d shutdowns", opened, shut)
	}
}

// An old library lacks what newer ones have, and a call of it would end the process.
func TestOldLibrary(t *testing.T) {
	c := devicetest.NewControl(t)
	c.Set(machine(1, "0.mig 1", "0.process.0 42 1")...)
	r := probeInProcess(t, devicetest.Library(t, devicetest.Old), c.Env()...)
	if r.State != Found || r.CUDA != "" || r.GPUs[0].Memory.Reserved != nil || r.GPUs[0].Memory.Used != 4<<30 ||
		r.GPUs[0].MIG != Unsupported || r.GPUs[0].Processes != nil || r.GPUs[0].ECC != Enabled {
		t.Errorf("%+v, memory %+v", r, r.GPUs[0].Memory)
	}
}

func TestLibrariesThatAreNone(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		library string
		state   State
		says    string
	}{
		{devicetest.Library(t, devicetest.Broken), BadLibrary, "no function nvmlInit_v2"},
		{"/nowhere/libnvidia-ml.so.1", NoLibrary, "(/nowhere/libnvidia-ml.so.1) is not on this machine"},
		{text, BadLibrary, "cannot be loaded"},
		{"libc.so.6", BadLibrary, "no function"},
	} {
		if r := probeInProcess(t, c.library); r.State != c.state || !strings.Contains(r.Reason, c.says) {
			t.Errorf("%s: %+v", c.library, r)
		}
	}
	// Without a path the dynamic linker looks for it.
	dir := filepath.Dir(devicetest.Library(t, devicetest.Whole))
	c := devicetest.NewControl(t)
	c.Set(machine(1)...)
	if r := probeInProcess(t, "", append(slices.Clone(c.Env()), "LD_LIBRARY_PATH="+dir)...); r.State != Found {
		t.Errorf("found by the linker: %+v", r)
	}
}
