//go:build linux && cgo

package device

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// over is a Prober on a library that needs no loading.
func over(lib nvml.Interface) *Prober {
	return &Prober{lib: lib, library: Library, processes: true, usable: func() (State, string) { return Found, "" }}
}

// probeMock runs the library through a Prober and checks that it was left as it was found.
func probeMock(t *testing.T, lib *mock.Interface, full nvml.Interface) Report {
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
	r := over(full).Probe()
	if opened != 0 {
		t.Errorf("%d more initializations than shutdowns", opened)
	}
	checkWhole(t, r)
	return r
}

// complete answers the questions that go-nvml's own mock servers do not know.
func complete(s *server.Server) *server.Server {
	for i, d := range s.Devices {
		d, i := d.(*server.Device), i
		used := uint64(i) << 30
		d.MemoryInfo.Used, d.MemoryInfo.Free = used, d.MemoryInfo.Total-used
		d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{}, nvml.ERROR_NOT_SUPPORTED
		}
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: uint32(10 * i), Memory: uint32(i)}, nvml.SUCCESS
		}
		d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
		d.GetComputeRunningProcessesFunc, d.GetGraphicsRunningProcessesFunc = none, none
	}
	return s
}

func TestProbeDGX(t *testing.T) {
	for _, c := range []struct {
		server       *server.Server
		name         string
		gib          uint64
		driver, cuda string
	}{
		{dgxa100.New(), "Mock NVIDIA A100-SXM4-40GB", 40, "550.54.15", "12.4"},
		{dgxh200.New(), "NVIDIA H200 141GB HBM3e", 141, "550.54.15", "12.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := complete(c.server)
			r := probeMock(t, &s.Interface, s)
			if r.State != Found || len(r.GPUs) != 8 || r.Driver != c.driver || r.CUDA != c.cuda {
				t.Fatalf("state %q, %d GPUs, driver %s, CUDA %s", r.State, len(r.GPUs), r.Driver, r.CUDA)
			}
			for i, g := range r.GPUs {
				d := s.Devices[i].(*server.Device)
				if g.UUID != d.UUID || g.Name != c.name || g.ECC != Enabled || g.MIG != Disabled || *g.Utilization != (Utilization{10 * i, i}) {
					t.Errorf("GPU %d is %+v", i, g)
				}
				want := Memory{Total: c.gib << 30, Used: uint64(i) << 30, Free: (c.gib - uint64(i)) << 30}
				if g.Memory == nil || *g.Memory != want {
					t.Errorf("GPU %d has %+v, want %+v", i, g.Memory, want)
				}
			}
		})
	}
}

func TestProbeWithoutGPUs(t *testing.T) {
	ok := func() nvml.Return { return nvml.SUCCESS }
	fails := func(ret nvml.Return) *mock.Interface {
		return &mock.Interface{InitFunc: func() nvml.Return { return ret }, ShutdownFunc: ok}
	}
	counts := func(n int, ret nvml.Return) *mock.Interface {
		text := func() (string, nvml.Return) { return "1", nvml.SUCCESS }
		return &mock.Interface{InitFunc: ok, ShutdownFunc: ok,
			SystemGetDriverVersionFunc: text, SystemGetNVMLVersionFunc: text,
			ExtensionsFunc: func() nvml.ExtendedInterface {
				return &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error { return fmt.Errorf("no %s", name) }}
			},
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
		{"unknown error", fails(nvml.ERROR_UNKNOWN), Failed, "NVML error 999"},
		{"error of a newer NVML", fails(nvml.Return(4711)), Failed, "4711"},
		{"counting refused", counts(0, nvml.ERROR_NO_PERMISSION), NoPermission, "counting"},
		{"counting fails with a number", counts(3, nvml.ERROR_UNKNOWN), Failed, "counting"},
		{"driver gone between the calls", counts(0, nvml.ERROR_UNINITIALIZED), NoDriver, "counting"},
		{"no GPU", counts(0, nvml.SUCCESS), NoDevice, "sees no GPU"},
		{"nonsense count", counts(-1, nvml.SUCCESS), NoDevice, "sees no GPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := probeMock(t, c.lib, c.lib)
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
		state GPUState
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
		}, Denied, "does not open it: this user may not", GPU{}},
		{"memory not supported", func(_ *server.Server, d *server.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
		}, Unreported, "memory is unknown: the driver reports none", GPU{UUID: "uuid", Name: "name"}},
		{"memory of 0 bytes", func(_ *server.Server, d *server.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS }
		}, Unreported, "0 bytes", GPU{UUID: "uuid", Name: "name"}},
		{"lost", func(_ *server.Server, d *server.Device) {
			lost := func() (string, nvml.Return) { return "rest of a buffer", nvml.ERROR_GPU_IS_LOST }
			d.GetUUIDFunc, d.GetNameFunc = lost, lost
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 1, Free: 1}, nvml.ERROR_GPU_IS_LOST
			}
		}, Lost, "its UUID, name and memory are unknown: the GPU has fallen off the bus.", GPU{}},
		{"two reasons", func(_ *server.Server, d *server.Device) {
			d.GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NO_PERMISSION }
		}, Denied, "its memory is unknown: this user", GPU{UUID: "uuid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := complete(dgxa100.New())
			for _, d := range s.Devices {
				d := d.(*server.Device)
				d.GetUUIDFunc = func() (string, nvml.Return) { return "uuid", nvml.SUCCESS }
				d.GetNameFunc = func() (string, nvml.Return) { return "name", nvml.SUCCESS }
			}
			c.fault(s, s.Devices[faulty].(*server.Device))
			r := probeMock(t, &s.Interface, s)
			if r.State != Found || len(r.GPUs) != 8 {
				t.Fatalf("state %q and %d GPUs, want %q and 8", r.State, len(r.GPUs), Found)
			}
			for i, g := range r.GPUs {
				if i == faulty {
					if g.State != c.state || g.Memory != nil || g.UUID != c.keeps.UUID || g.Name != c.keeps.Name || !strings.Contains(g.Reason, c.says) {
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
	s := complete(dgxa100.New())
	open := 0
	s.InitFunc = func() nvml.Return { open++; return nvml.SUCCESS } // the race detector watches open
	s.ShutdownFunc = func() nvml.Return { open--; return nvml.SUCCESS }
	p := over(s)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { p.Probe() })
	}
	wg.Wait()
	if open != 0 {
		t.Errorf("%d initializations left open", open)
	}
}
