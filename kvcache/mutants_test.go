package kvcache

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var mutants = flag.String("mutants", "", "regular expression: break the code in the ways of testdata/mutants.txt whose names match, and see that tests fail")

// mutant is one way to break the module.
type mutant struct {
	name     string
	file     string   // below the module's root
	packages []string // whose tests must notice
	old, new []string // lines, without the white space around them
}

// TestMutantsAreCaught breaks the code on purpose, one line at a time, and demands that a
// test fails: what no test notices is not tested. It changes no file: the go tool reads
// the broken one in place of the real one (-overlay). A mutant takes some seconds.
//
//	go test ./kvcache -run Mutants -mutants . -v -timeout 1h
func TestMutantsAreCaught(t *testing.T) {
	if *mutants == "" {
		t.Skip("compiles and tests the module once per mutant; ask for it with -mutants .")
	}
	list, err := readMutants("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := regexp.Compile(*mutants)
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(m mutant) bool { return !wanted.MatchString(m.name) })
	if len(list) == 0 {
		t.Fatalf("no mutant's name matches %q", *mutants)
	}

	healthy := make(map[string]bool)
	for _, m := range list {
		for _, pkg := range m.packages {
			healthy[pkg] = true
		}
	}
	for pkg := range healthy {
		if caught, err := runTests(t.Context(), "", pkg); caught != "" || err != nil {
			t.Fatalf("%s, as it is: %s %v", pkg, caught, err)
		}
	}
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			overlay, err := m.overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			caught, err := runTests(t.Context(), overlay, m.packages...)
			switch {
			case err != nil:
				t.Fatal(err)
			case caught == "":
				t.Errorf("%s: all tests of %v pass with %q in place of %q", m.file, m.packages, m.new, m.old)
			default:
				t.Logf("caught by %s", caught)
			}
		})
	}
}

// readMutants reads stanzas that are separated by empty lines. The first line is the name;
// then come the file, the packages to test, and the lines to replace (-) and what replaces
// them (+). Lines that start with # are remarks.
func readMutants(path string) ([]mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []mutant
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		var m mutant
		for line := range strings.Lines(stanza) {
			line = strings.TrimSpace(line)
			key, value, _ := strings.Cut(line, " ")
			value = strings.TrimSpace(value)
			switch {
			case line == "" || key == "#":
			case key == "file":
				m.file = value
			case key == "test":
				m.packages = strings.Fields(value)
			case key == "-":
				m.old = append(m.old, value)
			case key == "+":
				m.new = append(m.new, value)
			case m.name == "":
				m.name = line
			default:
				return nil, fmt.Errorf("%s: mutant %q: what is %q?", path, m.name, line)
			}
		}
		if m.name == "" && m.file == "" {
			continue
		}
		if m.name == "" || m.file == "" || len(m.packages) == 0 || len(m.old) == 0 {
			return nil, fmt.Errorf("%s: mutant %+v lacks something", path, m)
		}
		list = append(list, m)
	}
	return list, nil
}

// apply returns the file's text with the mutation in it.
func (m mutant) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	at := -1
	for i := range lines[:max(0, len(lines)-len(m.old)+1)] {
		same := slices.EqualFunc(lines[i:i+len(m.old)], m.old, func(line, old string) bool { return strings.TrimSpace(line) == old })
		switch {
		case same && at >= 0:
			return "", fmt.Errorf("%s: %q is on lines %d and %d: it must be there once", m.file, m.old, at+1, i+1)
		case same:
			at = i
		}
	}
	if at < 0 {
		return "", fmt.Errorf("%s: %q is not there", m.file, m.old)
	}
	return strings.Join(slices.Replace(lines, at, at+len(m.old), m.new...), "\n"), nil
}

// overlay writes the broken file and what tells the go tool to use it.
func (m mutant) overlay(dir string) (string, error) {
	file, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	broken, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	instead := filepath.Join(dir, filepath.Base(file))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: instead}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, errors.Join(os.WriteFile(instead, []byte(broken), 0o644), os.WriteFile(path, overlay, 0o644))
}

var failed = regexp.MustCompile(`(?m)^\s*(?:--- FAIL: |panic: test timed out.*\n(?:.*\n)*?\s+)(\S+) \(`)

// runTests runs the short tests of packages and returns the first that fails, or "". Code
// that does not compile is an error.
func runTests(ctx context.Context, overlay string, packages ...string) (caught string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	args := []string{"test", "-short", "-failfast", "-vet=off", "-count=1", "-timeout=60s"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", nil
	}
	if found := failed.FindSubmatch(out); found != nil {
		return string(found[1]), nil
	}
	if fatal := regexp.MustCompile(`(?m)^fatal error: .*`).Find(out); fatal != nil {
		return string(fatal), nil
	}
	return "", fmt.Errorf("no test has failed, but: %w\n%s", err, out)
}

// TestMutantsApply: every mutant of the cache still finds its line, once. Those of other
// packages have to when they are run.
func TestMutantsApply(t *testing.T) {
	list, err := readMutants("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, m := range list {
		if dir := filepath.Dir(m.file); dir == "kvcache" || dir == "radixattn" || dir == "paging" {
			if _, err := m.overlay(t.TempDir()); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		if names[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		names[m.name] = true
	}
	m := mutant{old: []string{"b", "c"}, new: []string{"x"}}
	for text, want := range map[string]string{"a\n b\n\tc\nd": "a\nx\nd", "b\nc\nb\nc": "", "b\nd\nc": "", "b": "", "": ""} {
		if got, err := m.apply(text); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
