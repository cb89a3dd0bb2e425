//go:build linux && cgo

package device

import (
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// probe runs the library through a Prober and checks that it was left as it was found.
func probe(t *testing.T, lib *mock.Interface, full nvml.Interface) Report {
	t.Helper()
	opened := 0
	initialize, shutdown := lib.InitFunc, lib.ShutdownFunc
	lib.InitFunc = func() nvml.Return {
		ret := initialize()
		if ret == nvml.SUCCESS {
			opened++
		}
		return ret
	}
	lib.ShutdownFunc = func() nvml.Return { opened--; return shutdown() }
	r := (&Prober{lib: full}).Probe()
	if opened != 0 {
		t.Errorf("%d more initializations than shutdowns", opened)
	}
	checkWhole(t, r)
	return r
}

func TestProbeDGX(t *testing.T) {
	s := dgxa100.New()
	for i, d := range s.Devices {
		total, used := uint64(40<<30), uint64(i)<<30
		d.(*server.Device).MemoryInfo = nvml.Memory{Total: total, Used: used, Free: total - used}
	}
	r := probe(t, &s.Interface, s)
	if r.State != Found || len(r.GPUs) != 8 {
		t.Fatalf("state %q and %d GPUs, want %q and 8", r.State, len(r.GPUs), Found)
	}
	for i, g := range r.GPUs {
		d := s.Devices[i].(*server.Device)
		if g.UUID != d.UUID || g.Name != "Mock NVIDIA A100-SXM4-40GB" {
			t.Errorf("GPU %d is %q, %q", i, g.UUID, g.Name)
		}
		want := Memory{Total: 40 << 30, Used: uint64(i) << 30, Free: uint64(40-i) << 30}
		if g.Memory == nil || *g.Memory != want {
			t.Errorf("GPU %d has %+v, want %+v", i, g.Memory, want)
		}
	}
}

func TestProbeWithoutGPUs(t *testing.T) {
	ok := func() nvml.Return { return nvml.SUCCESS }
	fails := func(ret nvml.Return) *mock.Interface {
		return &mock.Interface{InitFunc: func() nvml.Return { return ret }, ShutdownFunc: ok}
	}
	counts := func(n int, ret nvml.Return) *mock.Interface {
		return &mock.Interface{InitFunc: ok, ShutdownFunc: ok,
			DeviceGetCountFunc: func() (int, nvml.Return) { return n, ret }}
	}
	for _, c := range []struct {
		name  string
		lib   *mock.Interface
		state State
		says  string
	}{
		{"no library", fails(nvml.ERROR_LIBRARY_NOT_FOUND), NoLibrary, "libnvidia-ml.so.1"},
		{"no driver", fails(nvml.ERROR_DRIVER_NOT_LOADED), NoDriver, "not loaded"},
		{"driver updated under a running kernel", fails(nvml.ERROR_LIB_RM_VERSION_MISMATCH), NoDriver, "different versions"},
		{"no permission", fails(nvml.ERROR_NO_PERMISSION), NoPermission, "/dev/nvidia"},
		{"unknown error", fails(nvml.ERROR_UNKNOWN), Failed, "ERROR_UNKNOWN"},
		{"error of a newer NVML", fails(nvml.Return(4711)), Failed, "4711"},
		{"counting refused", counts(0, nvml.ERROR_NO_PERMISSION), NoPermission, "counting"},
		{"counting fails with a number", counts(3, nvml.ERROR_UNKNOWN), Failed, "counting"},
		{"no GPU", counts(0, nvml.SUCCESS), NoDevice, "sees no GPU"},
		{"nonsense count", counts(-1, nvml.SUCCESS), NoDevice, "sees no GPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := probe(t, c.lib, c.lib)
			if r.State != c.state || !strings.Contains(r.Reason, c.says) {
				t.Errorf("state %q, reason %q; want %q and %q", r.State, r.Reason, c.state, c.says)
			}
		})
	}
}

// TestProbeFaultyDevices breaks one GPU of eight: it says what is missing, the others
// are listed in full.
func TestProbeFaultyDevices(t *testing.T) {
	const faulty = 3
	for _, c := range []struct {
		name  string
		fault func(*server.Server, *server.Device)
		says  string
		keeps GPU // what is still known of the faulty one, Memory aside
	}{
		{"handle refused", func(s *server.Server, _ *server.Device) {
			handle := s.DeviceGetHandleByIndexFunc
			s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
				if i == faulty {
					return nil, nvml.ERROR_NO_PERMISSION
				}
				return handle(i)
			}
		}, "does not open it: this user may not", GPU{}},
		{"memory not supported", func(_ *server.Server, d *server.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
		}, "memory is unknown: the driver does not support", GPU{UUID: "uuid", Name: "name"}},
		{"memory of 0 bytes", func(_ *server.Server, d *server.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS }
		}, "0 bytes", GPU{UUID: "uuid", Name: "name"}},
		{"lost", func(_ *server.Server, d *server.Device) {
			lost := func() (string, nvml.Return) { return "rest of a buffer", nvml.ERROR_GPU_IS_LOST }
			d.GetUUIDFunc, d.GetNameFunc = lost, lost
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 1, Free: 1}, nvml.ERROR_GPU_IS_LOST
			}
		}, "its UUID is unknown: the GPU has fallen off the bus; its name", GPU{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dgxa100.New()
			for _, d := range s.Devices {
				d := d.(*server.Device)
				d.MemoryInfo = nvml.Memory{Total: 40 << 30, Free: 40 << 30}
				d.GetUUIDFunc = func() (string, nvml.Return) { return "uuid", nvml.SUCCESS }
				d.GetNameFunc = func() (string, nvml.Return) { return "name", nvml.SUCCESS }
			}
			c.fault(s, s.Devices[faulty].(*server.Device))
			r := probe(t, &s.Interface, s)
			if r.State != Found || len(r.GPUs) != 8 {
				t.Fatalf("state %q and %d GPUs, want %q and 8", r.State, len(r.GPUs), Found)
			}
			for i, g := range r.GPUs {
				if i == faulty {
					if g.Memory != nil || g.UUID != c.keeps.UUID || g.Name != c.keeps.Name || !strings.Contains(g.Reason, c.says) {
						t.Errorf("the faulty GPU is %+v, want %q", g, c.says)
					}
				} else if g.Memory == nil || g.Reason != "" {
					t.Errorf("GPU %d is %+v", i, g)
				}
			}
		})
	}
}

func TestProbeConcurrently(t *testing.T) {
	s := dgxa100.New()
	open := 0
	s.InitFunc = func() nvml.Return { open++; return nvml.SUCCESS } // the race detector watches open
	s.ShutdownFunc = func() nvml.Return { open--; return nvml.SUCCESS }
	p := &Prober{lib: s}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { p.Probe() })
	}
	wg.Wait()
	if open != 0 {
		t.Errorf("%d initializations left open", open)
	}
}
