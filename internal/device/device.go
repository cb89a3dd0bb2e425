// Package device reports the memory of the machine's NVIDIA GPUs through NVML, the
// driver's management library. Tailor computes on the CPU; it asks for GPU memory to
// size a block pool the way a GPU of that size would hold it.
//
// A machine without a GPU is the ordinary case, so nothing here returns an error: a
// Report either lists GPUs or says in one sentence why there are none.
package device

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// State says how far a Probe came.
type State string

const (
	Found        State = "found"         // at least one GPU is listed
	NoDevice     State = "no_device"     // the driver works and sees no GPU
	NoLibrary    State = "no_library"    // NVML is not installed: no NVIDIA driver
	NoDriver     State = "no_driver"     // NVML is there, the kernel driver is not loaded
	NoPermission State = "no_permission" // the driver refuses this user
	Failed       State = "failed"        // NVML failed in another way
	NotBuilt     State = "not_built"     // this binary cannot ask: no cgo, or no Linux
)

// Report is what one Probe saw.
type Report struct {
	State  State  `json:"state"`
	GPUs   []GPU  `json:"gpus"`   // in NVML's order; empty unless State is Found
	Reason string `json:"reason"` // one sentence; empty exactly if State is Found
}

// GPU is one device. A GPU that the driver counts but does not describe is listed with
// what is known of it, so that the index of those after it stays right.
type GPU struct {
	Index  int     `json:"index"`
	UUID   string  `json:"uuid"`   // empty if the driver does not say
	Name   string  `json:"name"`   // empty if the driver does not say
	Memory *Memory `json:"memory"` // nil if the driver does not say; never zeros instead
	Reason string  `json:"reason"` // one sentence on what is missing; empty if nothing is
}

// Memory is in bytes. Used includes what the driver reserves: Total is Used plus Free.
type Memory struct {
	Total uint64 `json:"total_bytes"`
	Used  uint64 `json:"used_bytes"`
	Free  uint64 `json:"free_bytes"`
}

const gib = 1 << 30

// String is a table with a line per GPU, or the reason why there is none. It ends
// without a line break.
func (r Report) String() string {
	if len(r.GPUs) == 0 {
		return "No GPU: " + r.Reason
	}
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tNAME\tTOTAL\tUSED\tFREE\tUUID")
	for _, g := range r.GPUs {
		total, used, free := "unknown", "unknown", "unknown"
		if g.Memory != nil {
			total, used, free = size(g.Memory.Total), size(g.Memory.Used), size(g.Memory.Free)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", g.Index, orUnknown(g.Name), total, used, free, orUnknown(g.UUID))
	}
	w.Flush() // a strings.Builder does not fail
	for _, g := range r.GPUs {
		if g.Reason != "" {
			fmt.Fprintf(&s, "GPU %d: %s\n", g.Index, g.Reason)
		}
	}
	return strings.TrimSuffix(s.String(), "\n")
}

func size(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
