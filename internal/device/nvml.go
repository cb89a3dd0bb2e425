//go:build linux && cgo

package device

import (
	"fmt"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Prober asks NVML. It is safe for concurrent use; share one per process, since go-nvml
// rewrites package variables of its own whenever it loads the library.
//
// Invariants:
//   - the library is initialized only inside Probe: each successful Init is followed by
//     one Shutdown, whatever happens in between, and a failed one by none.
type Prober struct {
	mu  sync.Mutex
	lib nvml.Interface
}

// NewProber is a Prober on the machine's own libnvidia-ml.so.1. It loads nothing yet.
func NewProber() *Prober { return &Prober{lib: nvml.New()} }

// Probe lists the GPUs as they are now, or says why there are none.
func (p *Prober) Probe() Report {
	p.mu.Lock()
	defer p.mu.Unlock()

	if ret := p.lib.Init(); ret != nvml.SUCCESS {
		state, why := explain(ret)
		return Report{State: state, Reason: why + "."}
	}
	// A failing Shutdown leaves nothing to undo and does not make the readings wrong.
	defer p.lib.Shutdown()

	count, ret := p.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		state, why := explain(ret)
		return Report{State: state, Reason: "counting the GPUs failed: " + why + "."}
	}
	if count <= 0 {
		return Report{State: NoDevice, Reason: "the NVIDIA driver is loaded and sees no GPU."}
	}
	r := Report{State: Found, GPUs: make([]GPU, count)}
	for i := range r.GPUs {
		r.GPUs[i] = p.describe(i)
	}
	return r
}

func (p *Prober) describe(index int) GPU {
	g := GPU{Index: index}
	dev, ret := p.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		_, why := explain(ret)
		g.Reason = "the driver does not open it: " + why + "."
		return g
	}

	var missing []string
	miss := func(what string, ret nvml.Return) {
		_, why := explain(ret)
		missing = append(missing, fmt.Sprintf("its %s is unknown: %s", what, why))
	}
	if g.UUID, ret = dev.GetUUID(); ret != nvml.SUCCESS {
		g.UUID = ""
		miss("UUID", ret)
	}
	if g.Name, ret = dev.GetName(); ret != nvml.SUCCESS {
		g.Name = ""
		miss("name", ret)
	}
	// The first version of the call: the second one is absent from drivers before 510,
	// and a call into a missing function ends the process.
	switch m, ret := dev.GetMemoryInfo(); {
	case ret != nvml.SUCCESS:
		miss("memory", ret)
	case m.Total == 0:
		missing = append(missing, "its memory is unknown: the driver reports 0 bytes in total")
	default:
		g.Memory = &Memory{Total: m.Total, Used: m.Used, Free: m.Free}
	}
	if len(missing) > 0 {
		g.Reason = strings.Join(missing, "; ") + "."
	}
	return g
}

// explain says what an NVML error means for the reader: a clause without a full stop.
func explain(ret nvml.Return) (State, string) {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return NoLibrary, "the NVIDIA management library (libnvidia-ml.so.1) is not on this machine, so no NVIDIA driver is installed or a container hides it"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return NoDriver, "the NVIDIA driver is installed but not loaded, or a container hides its device files"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return NoDriver, "the loaded NVIDIA driver and its library have different versions; a reboot or reloading the driver usually helps"
	case nvml.ERROR_NO_PERMISSION:
		return NoPermission, "this user may not use the NVIDIA driver (see the permissions of /dev/nvidia*)"
	case nvml.ERROR_NOT_SUPPORTED:
		return Failed, "the driver does not support the query for this GPU"
	case nvml.ERROR_GPU_IS_LOST:
		return Failed, "the GPU has fallen off the bus"
	default:
		// Text of the return value comes from the library while that is loaded.
		return Failed, fmt.Sprintf("NVML error %d, %s", int(ret), ret.Error())
	}
}
