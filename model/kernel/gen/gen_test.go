package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGeneratedFilesAreCurrent runs the generator and compares with what is checked in,
// past the first line, which names the command. Run it with -count=1: the test cache
// does not see files outside this module.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	files := []string{"vector_amd64.s", "vector_amd64.go"}
	cmd := exec.Command("go", "run", ".", "-out", filepath.Join(dir, files[0]), "-stubs", filepath.Join(dir, files[1]), "-pkg", "kernel")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("..", f))
		if err != nil {
			t.Fatal(err)
		}
		_, got, _ = bytes.Cut(got, []byte("\n"))
		_, want, _ = bytes.Cut(want, []byte("\n"))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate", f)
		}
	}
}
