//go:build linux && cgo

package device

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

// needed are the functions without which nothing can be said; of several names one will
// do. Those of lesser use are looked for where they are called.
var needed = [][]string{
	{"nvmlInit_v2", "nvmlInit"}, {"nvmlShutdown"}, {"nvmlErrorString"},
	{"nvmlSystemGetDriverVersion"}, {"nvmlSystemGetNVMLVersion"},
	{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	{"nvmlDeviceGetUUID"}, {"nvmlDeviceGetName"}, {"nvmlDeviceGetMemoryInfo"},
}

// checkLibrary tells whether a file can be used as NVML: Found, or why not as a clause
// without a full stop. go-nvml does not say why it could not load one, and calls functions
// without looking whether they are there, which would end the process.
func checkLibrary(path string) (State, string) {
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := lib.Open(); err != nil {
		text := err.Error()
		// Else it is a library that this one needs.
		if rest, ours := strings.CutPrefix(text, path+": "); ours && strings.HasSuffix(rest, "No such file or directory") {
			return NoLibrary, noLibrary(path)
		}
		return BadLibrary, "the NVIDIA management library cannot be loaded: " + text
	}
	defer lib.Close()
	for _, names := range needed {
		found := false
		for _, name := range names {
			found = found || lib.Lookup(name) == nil
		}
		if !found {
			return BadLibrary, fmt.Sprintf("%s is not the NVIDIA management library, or too old: it has no function %s", path, names[0])
		}
	}
	return Found, ""
}
