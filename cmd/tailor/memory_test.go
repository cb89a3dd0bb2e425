package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tailor/internal/device"
	"tailor/kvcache"
	"tailor/model"
)

func TestKVMemoryValues(t *testing.T) {
	for text, want := range map[string]kvMemory{
		"2GiB":    {kind: asSize, size: 2 << 30, instance: -1},
		"40%":     {kind: asPercent, percent: 40, instance: -1},
		"100%":    {kind: asPercent, percent: 100, instance: -1},
		"auto":    {kind: asAuto, instance: -1},
		"gpu:0":   {kind: asGPU, instance: -1},
		"gpu:3:2": {kind: asGPU, gpu: 3, instance: 2},
	} {
		want.text = text
		var got kvMemory
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := got.MarshalText(); err != nil || string(again) != text {
			t.Errorf("%q is printed as %q, %v", text, again, err)
		}
	}
	for _, text := range []string{"", "0%", "101%", "4.5%", "%", "-1%", "gpu", "gpu:", "gpu:x", "gpu:-1", "gpu:0:", "gpu:0:x", "gpu:99999", "AUTO", "1.5GiB", "half"} {
		got := kvMemory{text: "before"}
		if err := got.UnmarshalText([]byte(text)); err == nil || got != (kvMemory{text: "before"}) || !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

var bundledCheckpoint = sync.OnceValues(func() (*checkpoint, error) { return loadCheckpoint("", model.Auto) })

// onHost are flags on a machine with so much memory, and the bundled model's network.
func onHost(t *testing.T, ask string, replicas int, host device.Host, hostErr error) (*replicaFlags, *model.Model) {
	t.Helper()
	c, err := bundledCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	f := &replicaFlags{blockSize: 16, maxSequences: 64, maxBatchedTokens: 512, replicas: replicas, gpu: gpuFlags{utilization: .9}}
	if err := f.kvMemory.UnmarshalText([]byte(ask)); err != nil {
		t.Fatal(err)
	}
	f.machine = &machine{host: func() (device.Host, error) { return host, hostErr }}
	return f, c.net
}

// What is asked for is given to the block; beyond the host's memory it is cut, aloud.
func TestPoolSizes(t *testing.T) {
	const block, gib = 131072, 1 << 30
	small := device.Host{Total: 16 * gib, Available: 10 * gib}
	for _, c := range []struct {
		ask      string
		replicas int
		host     device.Host
		blocks   int
		says     string // in the ready message
		capped   bool
	}{
		{"64MiB", 1, small, 512, "64MiB: 64.0 MiB a replica", false},
		{"64MiB", 8, small, 512, "64MiB: 64.0 MiB a replica", false},
		{"4GiB", 2, small, 4 * gib / block, "4.0 GiB a replica", false},
		{"4GiB", 3, small, 10 * gib * 90 / 100 / 3 / block, "capped to 3.0 GiB: 90 % of the host's 10.0 GiB available, for 3 replicas", true},
		{"40%", 1, small, 10 * gib * 40 / 100 / block, "40%: 4.0 GiB a replica, of the host's 10.0 GiB available, for 1 replica", false},
		{"40%", 4, small, 10 * gib * 40 / 100 / 4 / block, "1.0 GiB a replica", false},
		{"100%", 2, small, 10 * gib * 90 / 100 / 2 / block, "capped to 4.5 GiB", true},
		{"auto", 3, small, 4096, "room for 64 sequences of 1024 tokens", false},
		{"auto", 16, small, 10 * gib / 2 / 16 / block, "half of the host's 10.0 GiB available, for 16 replicas", false},
		{"2GiB", 1, device.Host{Total: gib, Available: gib, Limit: "/sys/fs/cgroup/memory.max"}, gib * 90 / 100 / block, "limited by /sys/fs/cgroup/memory.max", true},
	} {
		f, net := onHost(t, c.ask, c.replicas, c.host, nil)
		var log bytes.Buffer
		if err := f.sizePool(t.Context(), net, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatalf("%s for %d: %v", c.ask, c.replicas, err)
		}
		if f.kvBlocks != c.blocks || !strings.Contains(f.sized, c.says) {
			t.Errorf("%s for %d: %d blocks, want %d; says %q, want %q", c.ask, c.replicas, f.kvBlocks, c.blocks, f.sized, c.says)
		}
		if said := strings.Contains(log.String(), "capped by the host's memory"); said != c.capped || strings.Contains(f.sized, "capped") != c.capped {
			t.Errorf("%s for %d: log %q, ready message %q", c.ask, c.replicas, log.String(), f.sized)
		}
	}
}

func TestPoolSizesWithoutHostMemory(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, ask := range []string{"40%", "auto"} {
		f, net := onHost(t, ask, 1, device.Host{}, device.ErrHost)
		if err := f.sizePool(t.Context(), net, quiet); !errors.Is(err, device.ErrHost) {
			t.Errorf("%s: %v", ask, err)
		}
	}
	f, net := onHost(t, "64MiB", 1, device.Host{}, device.ErrHost)
	if err := f.sizePool(t.Context(), net, quiet); err != nil || f.kvBlocks != 512 {
		t.Errorf("a size needs no host memory: %v, %d blocks", err, f.kvBlocks)
	}
	f, net = onHost(t, "131071", 1, device.Host{Total: 1 << 40, Available: 1 << 40}, nil)
	if err := f.sizePool(context.Background(), net, quiet); err == nil || !strings.Contains(err.Error(), "131072") {
		t.Errorf("less than a block: %v", err)
	}
}

func TestMemoryOfGPUs(t *testing.T) {
	report := device.Report{State: device.Found, GPUs: []device.GPU{
		{Index: 0, State: device.OK, Memory: &device.Memory{Total: 7}, MIG: device.Disabled},
		{Index: 1, State: device.Unreported, Reason: "it shares.", MIG: device.Unsupported},
		{Index: 2, State: device.OK, Memory: &device.Memory{Total: 9}, MIG: device.Enabled, Instances: []device.Instance{
			{Index: 3, Memory: &device.Memory{Total: 5}}, {Index: 4, Reason: "it is lost."}}},
	}}
	for _, c := range []struct {
		gpu, instance int
		total         uint64
		says          string
	}{
		{0, -1, 7, ""}, {2, 3, 5, ""},
		{1, -1, 0, "the memory of GPU 1 is unknown: it shares."},
		{3, -1, 0, "there is no GPU 3: the driver lists 3"},
		{2, -1, 0, "GPU 2 is in MIG mode"},
		{2, 0, 0, "GPU 2 has no MIG instance 0"},
		{2, 4, 0, "unknown: it is lost."},
		{0, 0, 0, "GPU 0 is not in MIG mode"},
	} {
		m, err := memoryOf(report, kvMemory{gpu: c.gpu, instance: c.instance})
		if m.Total != c.total || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("gpu:%d:%d: %+v, %v; want %q", c.gpu, c.instance, m, err, c.says)
		}
	}
	if _, err := memoryOf(device.Report{State: device.NoLibrary, Reason: "no driver."}, kvMemory{}); err == nil || !strings.Contains(err.Error(), "no driver.") {
		t.Errorf("%v", err)
	}
}

// The reserve for activations is what a workspace of that size takes.
func TestActivationBytes(t *testing.T) {
	cfg := model.Config{Width: 256, Inner: 1024, Vocab: 4096}
	if got, want := activationBytes(cfg, 512, 64), uint64(512*(7*256+1024)*4+64*4096*4); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// What the arithmetic says a pool takes is what the process grows by when it is touched,
// within 0.1 %, and writing all its rows then takes no more: for the bundled model's shape, GPT-2's, and one whose block is no
// power of two.
func TestPoolBytesAreResident(t *testing.T) {
	needRollup(t)
	size := uint64(160 << 20)
	if testing.Short() {
		size = 96 << 20
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing else grows or shrinks
	for name, c := range map[string]struct {
		net       model.Config
		blockSize int
	}{
		"tailor-4m": {model.Config{Layers: 4, Heads: 4, Width: 256}, 16},
		"gpt2-124m": {model.Config{Layers: 12, Heads: 12, Width: 768}, 16},
		"odd":       {model.Config{Layers: 6, Heads: 5, Width: 400}, 27},
	} {
		for _, kind := range []model.DType{model.F32, model.BF16} {
			f := replicaFlags{blockSize: c.blockSize, kvDType: kind}
			cfg := f.pool(c.net)
			cfg.Blocks = cfg.BlocksFor(int(size))
			want := cfg.Blocks * cfg.BlockBytes()
			debug.FreeOSMemory()
			before := resident(t)
			m, err := kvcache.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			made := resident(t)
			m.Touch()
			grown := resident(t) - made
			s, err := m.Allocate("", make([]int32, cfg.Blocks*cfg.BlockSize))
			if err != nil {
				t.Fatal(err)
			}
			allocated := resident(t)
			writeAll(s, cfg)
			after := resident(t)
			off := float64(grown-want) / float64(want)
			t.Logf("%s, %v: %d blocks of %d bytes are %d bytes; resident memory grew by %d (%+.4f %%), with the bookkeeping by %d (%+.4f %%)",
				name, kind, cfg.Blocks, cfg.BlockBytes(), want, grown, 100*off, after-before, 100*float64(after-before-want)/float64(want))
			if off < -.001 || off > .001 {
				t.Errorf("%s, %v: %d bytes planned, %d resident", name, kind, want, grown)
			}
			if more := after - allocated; more > want/1000 {
				t.Errorf("%s, %v: writing to a pool of %d bytes that was touched took %d more", name, kind, want, more)
			}
			m.Free(s)
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func needRollup(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skipf("/proc/self/smaps_rollup is Linux's, this is %s", runtime.GOOS)
	}
	if _, err := os.Stat("/proc/self/smaps_rollup"); err != nil {
		t.Skipf("this kernel does not tell a process its resident memory exactly: %v", err)
	}
}

// A replica has its pool's memory before it takes requests.
func TestServeTouchesItsPool(t *testing.T) {
	needRollup(t)
	const pool = 2000 * 128 << 10
	p := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kv-blocks", "2000")
	if got := anonymous(t, strconv.Itoa(p.cmd.Process.Pid)); got < pool {
		t.Errorf("%d bytes are resident, the pool alone has %d", got, pool)
	}
}

// writeAll writes every row of a sequence that has all blocks.
func writeAll(s *kvcache.Sequence, cfg kvcache.Config) {
	for block := range cfg.Blocks {
		for layer := range cfg.Layers {
			if cfg.BFloat16 {
				fill(s.Keys16(layer, block))
				fill(s.Values16(layer, block))
			} else {
				fill(s.Keys(layer, block))
				fill(s.Values(layer, block))
			}
		}
	}
}

func fill[T float32 | uint16](row []T) {
	for i := range row {
		row[i] = 1
	}
}

// resident is this process's anonymous resident memory in bytes: without the pages of the
// program's file, which come as its code runs.
func resident(t *testing.T) int {
	t.Helper()
	return anonymous(t, "self")
}

// anonymous is resident for a process by its number.
func anonymous(t *testing.T, pid string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Anonymous:" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("smaps_rollup has no line Anonymous")
	return 0
}

// A pool that the host's memory does not hold is left to be backed as its blocks are written,
// and the log says so.
func TestPoolThatDoesNotFitIsNotTouched(t *testing.T) {
	for name, c := range map[string]struct {
		available uint64
		err       error
		want      bool
	}{
		"ample":     {available: 1 << 30, want: true},
		"just":      {available: 1000 * 128 << 10, want: true},
		"too small": {available: 999 * 128 << 10},
		"unknown":   {err: errors.New("no /proc here"), want: true},
	} {
		f, net := onHost(t, "auto", 1, device.Host{Available: c.available}, c.err)
		f.kvBlocks = 900 // of 128 KiB
		var logged bytes.Buffer
		pool := f.pool(net.Config())
		got := f.fits(pool, slog.New(slog.NewTextHandler(&logged, nil)))
		if got != c.want || got == strings.Contains(logged.String(), "level=WARN") {
			t.Errorf("%s: a pool of %d bytes in %d: fits %v, want %v; log: %s", name, pool.PoolBytes(), c.available, got, c.want, &logged)
		}
	}
}
