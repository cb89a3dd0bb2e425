// Package tailor_test holds what is true of the repository as a whole.
package tailor_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// layers is the import table: for each package of the module, the packages of the module
// that its non-test code may import. Imports point down only. A package that is not listed
// is an error, so that a new one has to take its place in the house.
var layers = map[string][]string{
	"paging":                     {},
	"weights":                    {},
	"internal/openai":            {},
	"internal/device":            {},
	"internal/device/devicetest": {},
	"model/kernel":               {},
	"model/tokenizer":            {},
	"model/sample":               {},
	"router/policy":              {},
	"radixattn":                  {"paging"},
	"kvcache":                    {"paging", "radixattn"},
	"model":                      {"model/kernel"},
	"model/kernel/blas":          {"model/kernel"},
	"model/kernel/genneon":       {},
	"model/graph":                {"model"},
	"model/speed":                {"model", "model/kernel"},
	"server/blocklog":            {"kvcache"},
	"server/engine":              {"server/blocklog", "kvcache", "model", "model/sample"},
	"server":                     {"server/engine", "server/blocklog", "model", "model/sample", "model/tokenizer", "internal/openai"},
	"router":                     {"router/policy", "internal/openai"},
	"internal/bench/workload":    {},
	"internal/bench":             {"internal/bench/workload", "internal/openai"},
	"internal/bench/report":      {"internal/bench"},
	"cmd/tailor": {
		"internal/bench", "internal/bench/report", "internal/bench/workload", "internal/device", "internal/openai", "kvcache", "model", "model/graph", "model/kernel/blas", "model/sample",
		"model/speed", "model/tokenizer", "router", "router/policy", "server", "server/engine", "weights",
	},
}

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "e2e" || name == "gen") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		seen[pkg] = true
		allowed, listed := layers[pkg]
		if !listed {
			t.Errorf("%s: package %s is not in the import table", path, pkg)
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			target, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			if target, inside := strings.CutPrefix(target, "tailor/"); inside && !slices.Contains(allowed, target) {
				t.Errorf("%s imports %s; %s may import only %v", path, target, pkg, allowed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var absent []string
	for pkg := range layers {
		if !seen[pkg] {
			absent = append(absent, pkg)
		}
	}
	sort.Strings(absent)
	if len(absent) > 0 {
		t.Errorf("packages of the import table without code: %v", absent)
	}
}
