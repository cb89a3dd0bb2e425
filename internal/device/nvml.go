//go:build linux && cgo

package device

import (
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Prober asks NVML. It is safe for concurrent use; share one per process, since go-nvml
// rewrites package variables of its own whenever it loads the library.
//
// Invariants:
//   - the library is initialized only inside Probe: each successful Init is followed by
//     one Shutdown, whatever happens in between, and a failed one by none. Held open, it
//     would keep an administrator from reloading the driver.
//   - no function is called that the library lacks: calling one would end the process.
type Prober struct {
	mu        sync.Mutex
	lib       nvml.Interface
	library   string                 // for people
	usable    func() (State, string) // Found, or why the library cannot be used
	processes bool
}

// NewProber loads nothing yet.
func NewProber(o Options) *Prober {
	if o.Library == "" {
		o.Library = Library
	}
	return &Prober{
		lib:       nvml.New(nvml.WithLibraryPath(o.Library)),
		library:   o.Library,
		usable:    func() (State, string) { return checkLibrary(o.Library) },
		processes: o.Processes,
	}
}

// Probe lists the GPUs as they are now, or says why there are none. It takes as long as
// the driver does.
func (p *Prober) Probe() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Report{Sampled: time.Now(), GPUs: []GPU{}}
	none := func(state State, why string) Report {
		r.State, r.Reason = state, why+"."
		return r
	}
	if state, why := p.usable(); state != Found {
		return none(state, why)
	}
	if ret := p.lib.Init(); ret != nvml.SUCCESS {
		return none(p.explain(ret))
	}
	// A failing Shutdown leaves nothing to undo and does not make the readings wrong.
	defer p.lib.Shutdown()

	r.Driver, r.NVML, r.CUDA = p.versions()
	count, ret := p.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		state, why := p.explain(ret)
		return none(state, "counting the GPUs failed: "+why)
	}
	if count <= 0 {
		return none(NoDevice, "the NVIDIA driver is loaded and sees no GPU")
	}
	r.State = Found
	for i := range count {
		r.GPUs = append(r.GPUs, p.describe(i))
	}
	return r
}

// has tells whether the library has a function.
func (p *Prober) has(symbol string) bool { return p.lib.Extensions().LookupSymbol(symbol) == nil }

// versions are of the driver, of NVML, and of the newest CUDA that the driver supports.
func (p *Prober) versions() (driver, library, cuda string) {
	if v, ret := p.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		driver = v
	}
	if v, ret := p.lib.SystemGetNVMLVersion(); ret == nvml.SUCCESS {
		library = v
	}
	if p.has("nvmlSystemGetCudaDriverVersion") {
		// 12040 stands for 12.4.
		if v, ret := p.lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS && v > 0 {
			cuda = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
		}
	}
	return driver, library, cuda
}

// explain says what an NVML error means for the reader: a clause without a full stop.
func (p *Prober) explain(ret nvml.Return) (State, string) {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return NoLibrary, noLibrary(p.library)
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED:
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

func noLibrary(path string) string {
	return "the NVIDIA management library (" + path + ") is not on this machine, so no NVIDIA driver is installed or a container hides it"
}
