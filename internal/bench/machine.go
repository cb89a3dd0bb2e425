package bench

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// ThisMachine describes where the benchmark runs.
func ThisMachine() Machine {
	return Machine{CPU: processor("/proc/cpuinfo"), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
}

// processor is the name that Linux gives it; empty elsewhere.
func processor(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
