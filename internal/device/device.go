// Package device says how much memory this machine has: that of its NVIDIA GPUs, as NVML,
// the driver's management library, reports it, and that of the host, within the limits of
// the control groups the process runs in. Tailor computes on the CPU; it asks for GPU
// memory to show it, and to size a block pool the way a GPU would hold it.
//
// A machine without a GPU is the ordinary case, so a Report either lists GPUs or says in
// one sentence why there are none. What is not known is absent; it is never a zero.
package device

import (
	"errors"
	"time"
)

var (
	// ErrHost says that the host's memory cannot be told.
	ErrHost = errors.New("device: host memory is unknown")
	// ErrHung says that a call of the driver did not return in time.
	ErrHung = errors.New("device: the driver does not answer")
)

// Library is what NVML is called where no other path is asked for; the dynamic linker
// finds it.
const Library = "libnvidia-ml.so.1"

// Options say what a Prober asks for.
type Options struct {
	Library   string // path of NVML; empty: Library
	Processes bool   // list the processes on each GPU, with their names
}

// State says how far a Probe came.
type State string

const (
	Found        State = "found"         // at least one GPU is listed
	NoDevice     State = "no_device"     // the driver works and sees no GPU
	NoLibrary    State = "no_library"    // NVML is not installed: no NVIDIA driver
	BadLibrary   State = "bad_library"   // the file is there and is not a usable NVML
	NoDriver     State = "no_driver"     // NVML is there, the kernel driver is not loaded
	NoPermission State = "no_permission" // the driver refuses this user
	Failed       State = "failed"        // NVML failed in another way
	Hung         State = "hung"          // a call of the driver has not returned
	NotBuilt     State = "not_built"     // this binary cannot ask: no cgo, or no Linux
)

// States are all of them.
var States = []State{Found, NoDevice, NoLibrary, BadLibrary, NoDriver, NoPermission, Failed, Hung, NotBuilt}

// Report is what one Probe saw.
type Report struct {
	State   State     `json:"state"`
	Reason  string    `json:"reason"` // one sentence; empty exactly if State is Found
	Sampled time.Time `json:"sampled_at,omitzero"`
	Driver  string    `json:"driver_version"` // empty: unknown, as the next two
	NVML    string    `json:"nvml_version"`
	CUDA    string    `json:"cuda_version"` // the newest that the driver supports, such as 12.4
	GPUs    []GPU     `json:"gpus"`         // in NVML's order; empty unless State is Found
}

// GPUState says what is known of one GPU.
type GPUState string

const (
	OK         GPUState = "ok"                  // name, UUID and memory are known
	Unreported GPUState = "memory_not_reported" // it has no memory that the driver reports
	Lost       GPUState = "lost"                // it fell off the bus
	Denied     GPUState = "no_permission"       // the driver does not let this user ask
	Faulty     GPUState = "failed"              // something else is unknown
)

// GPUStates are all of them.
var GPUStates = []GPUState{OK, Unreported, Lost, Denied, Faulty}

// GPU is one device. A GPU that the driver counts but does not describe is listed with
// what is known of it, so that the index of those after it stays right.
type GPU struct {
	Index  int      `json:"index"`
	UUID   string   `json:"uuid"` // empty if the driver does not say
	Name   string   `json:"name"` // empty if the driver does not say
	State  GPUState `json:"state"`
	Reason string   `json:"reason"` // one sentence on what is missing; empty exactly if State is OK
	Memory *Memory  `json:"memory"` // nil if the driver does not say; never zeros instead
	// Utilization is nil where the driver does not say, as in MIG mode.
	Utilization *Utilization `json:"utilization"`
	ECC         Mode         `json:"ecc"`
	MIG         Mode         `json:"mig"`
	// Instances are the parts of a GPU in MIG mode. Memory is that of the whole device.
	Instances []Instance `json:"mig_instances,omitempty"`
	// Processes is nil where they were not asked for or the driver does not say.
	Processes []Process `json:"processes,omitempty"`
}

// Mode is whether a feature is on.
type Mode string

const (
	Enabled     Mode = "enabled"
	Disabled    Mode = "disabled"
	Unsupported Mode = "unsupported" // the GPU does not have it
	Unknown     Mode = "unknown"     // the driver does not say
)

// Memory is in bytes, as the driver says it. Total = Used + Free + Reserved where the
// driver tells Reserved apart, as those from 510 on do; else Used includes it.
type Memory struct {
	Total    uint64  `json:"total_bytes"`
	Used     uint64  `json:"used_bytes"`
	Free     uint64  `json:"free_bytes"`
	Reserved *uint64 `json:"reserved_bytes"`
}

// Utilization is the percentage of the last sampling period, some tenths of a second, in
// which a kernel ran, and in which memory was read or written.
type Utilization struct {
	Compute int `json:"compute_percent"`
	Memory  int `json:"memory_percent"`
}

// Instance is a part of a GPU in MIG mode, with memory of its own.
type Instance struct {
	Index  int     `json:"index"`
	UUID   string  `json:"uuid"`
	Name   string  `json:"name"`
	Memory *Memory `json:"memory"`
	Reason string  `json:"reason"` // one sentence on what is missing
}

// Process is one that uses a GPU.
type Process struct {
	PID  int     `json:"pid"`  // as the driver counts them: in a container, the host's
	Name string  `json:"name"` // empty if it may not be read
	Kind string  `json:"kind"` // compute or graphics
	Used *uint64 `json:"used_bytes"`
}
