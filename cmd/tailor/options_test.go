package main

import (
	"bytes"
	"strings"
	"testing"
)

// withOptions runs `serve --print-config` with these arguments, environment and file.
func withOptions(t *testing.T, env map[string]string, file string, args ...string) (string, error) {
	t.Helper()
	root := newRoot()
	for name, value := range env {
		t.Setenv(name, value)
	}
	if file != "" {
		args = append(args, "--config", write(t, "tailor.yaml", file))
	}
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{"serve", "--print-config"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestOptionsCountInOrder(t *testing.T) {
	const file = "# ours\nkv-blocks: 11\nblock-size: 8 # small\nid: 'r # 9'\nallow-origin:\n  - https://a.example\n- \"https://b.example\"\nmax-waiting: 33\n"
	env := map[string]string{"TAILOR_BLOCK_SIZE": "4", "TAILOR_MAX_WAITING": "44", "TAILOR_PORT": "tcp://10.0.0.1:80"}
	out, err := withOptions(t, env, file, "--max-waiting", "55", "--api-key", "a:secret")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kv-blocks: 11\n", "block-size: 4\n", "max-waiting: 55\n", "id: \"r # 9\"\n", "max-sequences: 64\n", "check: false\n",
		"allow-origin:\n  - \"https://a.example\"\n  - \"https://b.example\"\n", "# api-key: 1 given, not shown\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "secret") {
		t.Errorf("shows a key:\n%s", out)
	}
	// What is printed is a file that gives the same.
	again, err := withOptions(t, map[string]string{"TAILOR_BLOCK_SIZE": "4", "TAILOR_MAX_WAITING": "55"}, out)
	if want := strings.Replace(out, "# api-key: 1 given, not shown", "api-key: []", 1); err != nil || again != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, again, want)
	}
}

func TestOptionsRefuse(t *testing.T) {
	for file, says := range map[string]string{
		"kv-block: 1\n":              `line 1: "kv-block" is no option`,
		"\nkv-blocks: many\n":        "line 2: kv-blocks",
		"kv-blocks: 1\nkv-blocks: 2": "given twice",
		"kv-blocks 1\n":              "line 1: want name: value",
		"kv-blocks:1\n":              "want name: value",
		"server:\n  kv-blocks: 1\n":  "line 2",
		"- 1\n":                      "an item of no list",
		"kv-blocks: [1, 2]\n":        "2 values, want one",
		"kv-blocks:\n":               "0 values",
		"kv-blocks: {a: 1}\n":        "plain values",
		"id: \"a\n":                  "quotes",
		"id: 'a' b\n":                "quotes",
		"allow-origin: [a\n":         "]",
		"config: other.yaml\n":       "no option",
		"api-key-file: &x\n":         "plain values",
		"check: perhaps\n":           "check",
	} {
		out, err := withOptions(t, nil, file)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %s; want %q", file, err, out, says)
		}
	}
	if _, err := withOptions(t, nil, "", "--config", "/nowhere"); err == nil {
		t.Error("a file that is not there is accepted")
	}
	if _, err := withOptions(t, map[string]string{"TAILOR_KV_BLOCKS": "x"}, ""); err == nil || !strings.Contains(err.Error(), "TAILOR_KV_BLOCKS") {
		t.Errorf("%v", err)
	}
}

func FuzzParseOptions(f *testing.F) {
	f.Add("a: 1\nb:\n  - x\n- 'y'\nc: [1, \"2\"] \n# z")
	f.Add("---\na:\n\nb: \"\\u00e9\" # x")
	f.Fuzz(func(t *testing.T, text string) {
		options, err := parseOptions(text)
		if err != nil {
			return
		}
		for name, o := range options {
			if o.line < 1 || name != strings.TrimSpace(name) && !strings.Contains(text, name) {
				t.Errorf("%q: option %q at line %d", text, name, o.line)
			}
		}
	})
}

// Each command may print its options.
func TestEveryCommandPrintsItsOptions(t *testing.T) {
	for _, c := range newRoot().Commands() {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{c.Name(), "--print-config"})
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "log-level: \"info\"") {
			t.Errorf("%s: %v\n%s", c.Name(), err, out.String())
		}
	}
}
