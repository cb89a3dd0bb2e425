//go:build !linux || !cgo

package device

import (
	"runtime"
	"time"
)

// Prober stands in where NVML cannot be called.
type Prober struct{}

// NewProber is a Prober that finds no GPU.
func NewProber(Options) *Prober { return &Prober{} }

// Probe says why this binary cannot ask for GPUs.
func (*Prober) Probe() Report {
	reason := "this binary was built without cgo, which calling the NVIDIA management library needs."
	if runtime.GOOS != "linux" {
		reason = "Tailor asks for NVIDIA GPUs on Linux only; this is " + runtime.GOOS + "."
	}
	return Report{State: NotBuilt, Reason: reason, Sampled: time.Now(), GPUs: []GPU{}}
}
