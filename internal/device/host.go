package device

import (
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// Host is the memory that this process may use, in bytes.
type Host struct {
	Total     uint64 `json:"total_bytes"`     // the machine's, or the lowest limit
	Available uint64 `json:"available_bytes"` // what can still be taken without reclaiming from others
	Limit     string `json:"limited_by"`      // the file that says Available is less than the machine's; empty: none
}

// ReadHost reads it from a Linux system's root directory: /proc/meminfo, and the limits of
// the control groups that the process is in, of version 1 and 2, up to their roots. Errors
// wrap ErrHost.
//
// What is available is the least, over the machine and all groups, of limit less use. A
// group's file cache that has not been used lately does not count as use: it goes first.
func ReadHost(root fs.FS) (Host, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return Host{}, fmt.Errorf("%w: %w", ErrHost, err)
	}
	h := Host{}
	var ok bool
	if h.Total, ok = meminfo(text, "MemTotal"); !ok || h.Total == 0 {
		return Host{}, fmt.Errorf("%w: /proc/meminfo has no MemTotal in kB", ErrHost)
	}
	// Kernels before 3.14 have no MemAvailable.
	if h.Available, ok = meminfo(text, "MemAvailable"); !ok {
		h.Available, _ = meminfo(text, "MemFree")
	}
	h.Available = min(h.Available, h.Total)
	for _, g := range groupsOf(root) {
		h.apply(root, g)
	}
	return h, nil
}

// meminfo reads a line such as "MemTotal:  16384 kB", in bytes.
func meminfo(text []byte, name string) (uint64, bool) {
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == name+":" && fields[2] == "kB" {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			return n << 10, err == nil && n <= math.MaxUint64>>10
		}
	}
	return 0, false
}

// apply takes one group's limits into account.
func (h *Host) apply(root fs.FS, g group) {
	used, known := readBytes(root, g.dir+"/"+g.files.usage)
	if known {
		idle := stat(root, g.dir+"/memory.stat", g.files.idle)
		used -= min(idle, used)
	}
	for _, name := range g.files.limits {
		file := g.dir + "/" + name
		limit, limited := readBytes(root, file)
		// Version 1 writes no limit as a number beyond all memory.
		if !limited || limit >= h.Total && limit-min(used, limit) >= h.Available {
			continue
		}
		h.Total = min(h.Total, limit)
		if left := limit - min(used, limit); left < h.Available {
			h.Available, h.Limit = left, "/"+file
		}
	}
}

// readBytes reads a file that holds one number; "max", and all else, is none.
func readBytes(root fs.FS, file string) (uint64, bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// stat reads one of a memory.stat's lines "name number"; 0 where there is none.
func stat(root fs.FS, file, name string) uint64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			n, _ := strconv.ParseUint(value, 10, 64)
			return n
		}
	}
	return 0
}
