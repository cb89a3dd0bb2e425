//go:build linux && cgo

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"

	"tailor/internal/device/devicetest"
	"tailor/internal/openai"
)

// fakeGPUs compiles the stand-in for NVML and lets the processes of this test find what it
// shall answer. The options make them load it.
func fakeGPUs(t *testing.T) (*devicetest.Control, []string) {
	t.Helper()
	library := devicetest.Library(t, devicetest.Whole)
	c := devicetest.NewControl(t)
	for _, v := range c.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return c, []string{"--nvml-library", library}
}

// runTailor runs a command to its end.
func runTailor(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runAsTailor+"=1")
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

// memoryLines are a GPU's lines with numbers that no rounding leaves alone.
func memoryLines(gpu string, i int, more ...string) []string {
	return append(more,
		fmt.Sprintf("%suuid GPU-%d", gpu, i), fmt.Sprintf("%sname NVIDIA Fake %d", gpu, i),
		fmt.Sprintf("%stotal %d", gpu, totalOf(i)), fmt.Sprintf("%sused %d", gpu, usedOf(i)),
		fmt.Sprintf("%sfree %d", gpu, totalOf(i)-usedOf(i)-5001), gpu+"reserved 5001",
		fmt.Sprintf("%sutil %d", gpu, 10*i), fmt.Sprintf("%smemutil %d", gpu, i))
}

func totalOf(i int) int { return 85899345923 + 1000*i }
func usedOf(i int) int  { return 1234567891 + i }

func fakeMachine(count int, more ...string) []string {
	lines := append(more, "driver 570.1", "nvml 12.570.1", "cuda 12080", fmt.Sprintf("count %d", count))
	for i := range count {
		lines = append(lines, memoryLines(fmt.Sprintf("%d.", i), i)...)
	}
	return lines
}

// devicesOf decodes what `tailor gpu --json` or /v1/devices says, numbers as they stand.
func devicesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", url, resp.StatusCode, err, body)
	}
	return string(body)
}

// gpuSeries are the values of tailor_gpu_* by name and labels.
func gpuSeries(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(prom.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if strings.HasPrefix(name, "tailor_gpu_memory") {
				series[name+" "+labels["gpu"]+":"+labels["mig"]+" "+labels["kind"]] = m.GetGauge().GetValue()
			} else if strings.HasPrefix(name, "tailor_gpu_") {
				series[name+" "+labels["gpu"]+" "+labels["kind"]+labels["state"]] = m.GetGauge().GetValue()
			}
		}
	}
	return series
}

// The figures that the driver gives are those that everybody reads: with no GPU, one, two
// and eight, of which half have something wrong.
func TestFiguresArriveUnchanged(t *testing.T) {
	c, library := fakeGPUs(t)
	faults := []string{
		"3.memory_ret 15", // lost
		"4.memory_ret 3",  // shares the host's memory
		"5.handle 4",      // no permission
		"6.mig 1", "6.mig_max 2", "6.util_ret 3", "6.mig_handle.1 6", "6.mig.0.uuid MIG-0", "6.mig.0.name MIG 1g",
		"6.mig.0.total 10200547331", "6.mig.0.used 3", "6.mig.0.free 10200547328", "6.mig.0.memory2_ret 3",
		"0.process.0 42 1048577", "name.42 python3",
	}
	counts := []int{0, 1, 2, 8}
	if testing.Short() {
		counts = []int{8} // the most, and all faults
	}
	for _, count := range counts {
		lines := fakeMachine(count)
		if count == 8 {
			lines = fakeMachine(count, faults...)
		}
		c.Set(lines...)
		out, _, status := runTailor(t, append([]string{"gpu", "--json"}, library...)...)
		if status != 0 {
			t.Fatalf("tailor gpu: status %d", status)
		}
		said := devicesOf(t, out)
		gpus := said["gpus"].([]any)
		if len(gpus) != count {
			t.Fatalf("%d GPUs: %s", count, out)
		}
		known := map[string]float64{} // what /metrics has to say
		for i, g := range gpus {
			g := g.(map[string]any)
			memory, _ := g["memory"].(map[string]any)
			healthy := count < 8 || i < 3 || i > 5
			if healthy != (memory != nil) || healthy != (g["state"] == "ok") {
				t.Errorf("GPU %d of %d: %v", i, count, g)
				continue
			} else if healthy {
				for kind, want := range map[string]int{"total": totalOf(i), "used": usedOf(i), "free": totalOf(i) - usedOf(i) - 5001, "reserved": 5001} {
					if got := memory[kind+"_bytes"]; got != json.Number(fmt.Sprint(want)) {
						t.Errorf("GPU %d of %d: %s is %v, want %d", i, count, kind, got, want)
					}
					known[fmt.Sprintf("tailor_gpu_memory_bytes %d: %s", i, kind)] = float64(want)
				}
			}
			if busy := healthy || i == 4; busy && (count < 8 || i != 6) {
				known[fmt.Sprintf("tailor_gpu_utilization_ratio %d compute", i)] = float64(10*i) / 100
				known[fmt.Sprintf("tailor_gpu_utilization_ratio %d memory", i)] = float64(i) / 100
			}
		}
		if count == 8 {
			known["tailor_gpu_memory_bytes 6:0 total"], known["tailor_gpu_memory_bytes 6:0 used"], known["tailor_gpu_memory_bytes 6:0 free"] = 10200547331, 3, 10200547328
			// All GPUs answer to the end, and the one with a process names it.
			if p := gpus[0].(map[string]any)["processes"].([]any)[0].(map[string]any); p["name"] != "python3" || p["used_bytes"] != json.Number("1048577") {
				t.Errorf("process %v", p)
			}
			delete(gpus[0].(map[string]any), "processes") // these are the command's alone
		}

		up := startProcess(t, append([]string{"up", "--replicas", "2", "--listen", "127.0.0.1:0", "--threads", "1"}, library...)...)
		var fleet struct {
			Replicas []struct {
				URL     string
				Devices json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(fetch(t, up.url(t)+"/v1/devices")), &fleet); err != nil || len(fleet.Replicas) != 2 {
			t.Fatalf("%v: %+v", err, fleet)
		}
		for _, text := range []string{string(fleet.Replicas[0].Devices), string(fleet.Replicas[1].Devices), fetch(t, fleet.Replicas[0].URL+"/v1/devices")} {
			told := devicesOf(t, text)
			for _, key := range []string{"state", "reason", "driver_version", "nvml_version", "cuda_version", "gpus"} {
				if !reflect.DeepEqual(told[key], said[key]) {
					t.Errorf("%d GPUs: /v1/devices has %s %v, the command %v", count, key, told[key], said[key])
				}
			}
		}
		series := gpuSeries(t, fetch(t, fleet.Replicas[1].URL+"/metrics"))
		for name, want := range known {
			if got, there := series[name]; !there || got != want {
				t.Errorf("%d GPUs: %s is %v (%v), want %v", count, name, got, there, want)
			}
		}
		for name, value := range series {
			if _, expected := known[name]; !expected && (strings.HasPrefix(name, "tailor_gpu_memory") || strings.HasPrefix(name, "tailor_gpu_util")) {
				t.Errorf("%d GPUs: %s is %v, and nothing is known of it", count, name, value)
			}
		}
		if count == 8 && (series["tailor_gpu_state 3 lost"] != 1 || series["tailor_gpu_state 4 memory_not_reported"] != 1 || series["tailor_gpu_state 5 no_permission"] != 1) {
			t.Errorf("states: %v", series)
		}
		up.kill(t)
	}
}

// Memory changes, and then the driver is gone, while a replica runs.
func TestChangesArrive(t *testing.T) {
	if testing.Short() {
		t.Skip("a reading is told again for 5 s, twice")
	}
	c, library := fakeGPUs(t)
	c.Set(fakeMachine(1)...)
	serve := startProcess(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, library...)...)
	metric := func() (float64, bool) {
		v, there := gpuSeries(t, fetch(t, serve.url(t)+"/metrics"))["tailor_gpu_memory_bytes 0: used"]
		return v, there
	}
	if v, _ := metric(); v != float64(usedOf(0)) {
		t.Errorf("%v used", v)
	}
	c.Set(fakeMachine(1, "0.used 77")...)
	eventually(t, "the change arrives", func() bool { v, _ := metric(); return v == 77 })
	c.Set(fakeMachine(1, "init 9")...)
	eventually(t, "the number goes with the driver", func() bool { _, there := metric(); return !there })
	if told := devicesOf(t, fetch(t, serve.url(t)+"/v1/devices")); told["state"] != "no_driver" {
		t.Errorf("%v", told)
	}
	serve.kill(t)
}

// A driver that hangs holds up neither completions nor, for long, scrapes, nor the end.
func TestHungDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for the seconds that a driver is given")
	}
	c, library := fakeGPUs(t)
	c.Set(fakeMachine(1, "hang 1")...)
	begun := time.Now()
	p := startProcess(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, library...)...)
	if took := time.Since(begun); took > scrapePatience+10*time.Second || !strings.Contains(p.output.String(), "none (the NVIDIA driver does not answer)") {
		t.Errorf("ready after %v:\n%s", took, p.output)
	}
	begun = time.Now()
	if s := gpuSeries(t, fetch(t, p.url(t)+"/metrics")); s["tailor_gpu_driver_state  hung"] != 1 || time.Since(begun) > scrapePatience {
		t.Errorf("after %v: %v", time.Since(begun), s)
	}
	one := 1
	resp, err := complete(context.Background(), p.url(t), "", openai.CompletionRequest{Model: "tailor-4m", Prompt: openai.Prompt{Texts: []string{"a"}}, MaxTokens: &one})
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, resp)
	}
	resp.Body.Close()
	// It is told to stop while the call hangs.
	begun = time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	if p.cmd.ProcessState.ExitCode() != 0 || time.Since(begun) > scrapePatience+10*time.Second || !strings.Contains(p.output.String(), "the NVIDIA driver is left with a question") {
		t.Errorf("status %d after %v", p.cmd.ProcessState.ExitCode(), time.Since(begun))
	}
}

// A pool sized by a GPU has the blocks that the arithmetic shows, and a GPU that cannot be
// gone by is said to be so, with the flag and its value.
func TestPoolAsTheGPUWouldHoldIt(t *testing.T) {
	c, library := fakeGPUs(t)
	c.Set(fakeMachine(3, "0.total 268435456", "0.free 201326592", "1.memory_ret 3", "2.mig 1")...)
	kinds := []string{"f32", "bf16"}
	if testing.Short() {
		kinds = kinds[1:]
	}
	for _, kind := range kinds {
		args := append([]string{"--kv-dtype", kind, "--gpu-memory-utilization", "0.8", "--max-sequences", "8"}, library...)
		out, _, status := runTailor(t, append([]string{"gpu", "--json", "--model", "bundled"}, args...)...)
		var planned struct{ Plan plan }
		if err := json.Unmarshal([]byte(out), &planned); err != nil || status != 0 || len(planned.Plan.Pools) != 1 || len(planned.Plan.Unknown) != 1 {
			t.Fatalf("%v, status %d: %s", err, status, out)
		}
		one := planned.Plan.Pools[0]
		// 64 MiB - 0.2 x 256 MiB are left alone, the rest by hand: weights in 2 MiB pages,
		// 512 x (7 x 256 + 1024) x 4 and 8 x 4096 x 4 bytes of activations.
		pool := uint64(201326592-(268435456-214748364)) - one.Weights - 512*(7*256+1024)*4 - 8*4096*4
		if block := map[string]uint64{"f32": 131072, "bf16": 65536}[kind]; one.Pool != pool || one.Blocks != int(pool/block) || one.Weights%(2<<20) != 0 || one.Weights < 9<<20 {
			t.Errorf("%s: %+v, want a pool of %d", kind, one, pool)
		}
		p := startProcess(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--kv-memory", "gpu:0"}, args...)...)
		var info struct {
			KVBlocks map[string]int `json:"kv_blocks"`
		}
		if err := json.Unmarshal([]byte(fetch(t, p.url(t)+"/get_server_info")), &info); err != nil || info.KVBlocks["total"] != one.Blocks {
			t.Errorf("%s: %v, %+v, want %d blocks", kind, err, info, one.Blocks)
		}
		if !strings.Contains(p.output.String(), "memory  gpu:0: ") {
			t.Errorf("the ready message does not say where the pool's size is from:\n%s", p.output)
		}
		p.kill(t)
	}
	wrong := map[string]string{
		"gpu:1": "--kv-memory gpu:1: the memory of GPU 1 is unknown", "gpu:2": "--kv-memory gpu:2: GPU 2 is in MIG mode",
		"gpu:7": "--kv-memory gpu:7: there is no GPU 7: the driver lists 3", "gpu:x": "gpu:x", "120%": "120%",
	}
	if testing.Short() {
		delete(wrong, "gpu:1")
		delete(wrong, "gpu:2")
	}
	for ask, says := range wrong {
		if _, stderr, status := runTailor(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--kv-memory", ask}, library...)...); status != 2 || !strings.Contains(stderr, says) {
			t.Errorf("%s: status %d: %s", ask, status, stderr)
		}
	}
	if _, stderr, status := runTailor(t, "serve", "--gpu-memory-utilization", "1.5"); status != 2 || !strings.Contains(stderr, "--gpu-memory-utilization 1.5: must be") {
		t.Errorf("status %d: %s", status, stderr)
	}
	// What fits nowhere is told with its numbers.
	c.Set(fakeMachine(1, "0.total 268435456", "0.free 62914560")...)
	if _, stderr, status := runTailor(t, append([]string{"serve", "--kv-memory", "gpu:0", "--gpu-memory-utilization", "0.8"}, library...)...); status != 2 || !strings.Contains(stderr, "leave nothing for blocks") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// Where there is no driver, that is no error.
func TestNoDriver(t *testing.T) {
	library := []string{"--nvml-library", "/nowhere/libnvidia-ml.so.1"}
	out, stderr, status := runTailor(t, append([]string{"gpu"}, library...)...)
	if status != 0 || stderr != "" || !strings.HasPrefix(out, "No GPU: the NVIDIA management library (/nowhere/libnvidia-ml.so.1) is not on this machine") {
		t.Errorf("status %d: %s%s", status, out, stderr)
	}
	out, _, status = runTailor(t, append([]string{"gpu", "--json", "--model", "bundled"}, library...)...)
	if said := devicesOf(t, out); status != 0 || said["state"] != "no_library" || len(said["gpus"].([]any)) != 0 || said["host"] == nil {
		t.Errorf("status %d: %s", status, out)
	}
	p := startProcess(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, library...)...)
	if !strings.Contains(p.output.String(), "\n  gpu     none (no NVIDIA driver)\n") {
		t.Errorf("%s", p.output)
	}
	for name, value := range gpuSeries(t, fetch(t, p.url(t)+"/metrics")) {
		if !strings.HasPrefix(name, "tailor_gpu_driver_state") {
			t.Errorf("%s is %v", name, value)
		}
	}
}
