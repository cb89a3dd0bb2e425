//go:build !linux || !cgo

package main

import (
	"bytes"
	"strings"
	"testing"
)

// A build that cannot ask for GPUs says so, and all else works.
func TestGPUInABuildThatCannotAsk(t *testing.T) {
	for _, args := range [][]string{{"gpu"}, {"gpu", "--json", "--nvml-library", "/usr/lib/libnvidia-ml.so.1"}} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(args)
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "built without cgo") && !strings.Contains(out.String(), "on Linux only") {
			t.Errorf("%v: %v: %s", args, err, out.String())
		}
	}
	p := startProcess(t, "serve", "--listen", "127.0.0.1:0")
	if !strings.Contains(p.output.String(), "\n  gpu     none (this build cannot ask)\n") {
		t.Errorf("%s", p.output)
	}
}
