// Package devicetest makes a stand-in for the NVIDIA management library, for tests: a real
// shared library that programs load, whose GPUs a test changes while they run.
package devicetest

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed testdata/fake.c
var source []byte

// Variants of the library.
const (
	Whole  = ""
	Old    = "OLD"    // lacks what drivers before 510 lack
	Broken = "BROKEN" // lacks nearly everything
)

// Library compiles the stand-in and returns its path, or skips the test where there is no
// gcc to compile it with.
func Library(t *testing.T, variant string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the stand-in for NVML is compiled by the test")
	}
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skipf("go list does not find go-nvml, whose header the stand-in for NVML needs: %v", err)
	}
	file := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := []string{"-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-DNVML_NO_UNVERSIONED_FUNC_DEFS",
		"-I", filepath.Join(strings.TrimSpace(string(header)), "pkg", "nvml"), "-o", file, "-x", "c", "-"}
	if variant != Whole {
		args = append(args, "-D"+variant, "-Wno-unused-function")
	}
	compile := exec.Command(gcc, args...)
	compile.Stdin = bytes.NewReader(source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return file
}

// Control says what the stand-in answers.
type Control struct {
	t    *testing.T
	file string
	log  string
}

// NewControl makes a Control of a machine without GPUs. Env tells a library of it.
func NewControl(t *testing.T) *Control {
	t.Helper()
	dir := t.TempDir()
	c := &Control{t: t, file: filepath.Join(dir, "answers"), log: filepath.Join(dir, "log")}
	c.Set()
	return c
}

// Env are the environment variables that a process needs.
func (c *Control) Env() []string {
	return []string{"FAKE_NVML=" + c.file, "FAKE_NVML_LOG=" + c.log}
}

// Set says everything anew, as lines of "key value"; see the source for the keys. A call of
// the library sees all of it or nothing.
func (c *Control) Set(lines ...string) {
	c.t.Helper()
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		c.t.Fatal(err)
	}
}

// Balance counts how often the library was initialized and shut down.
func (c *Control) Balance() (initialized, shut int) {
	c.t.Helper()
	text, err := os.ReadFile(c.log)
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return strings.Count(string(text), "init\n"), strings.Count(string(text), "shutdown\n")
}
