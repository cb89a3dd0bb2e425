package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBundledFiles(t *testing.T) {
	f := Bundled()
	if f.Name() != "tailor-4m" {
		t.Errorf("name %q", f.Name())
	}
	data, err := fs.ReadFile(f.FS(), "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != "7003b5b556aed23b9cb28bdc84302012b198a0e56463816ac394d10eed406889" {
		t.Errorf("model.safetensors has sha256 %s", got)
	}
	files, err := fs.Glob(f.FS(), "*")
	if err != nil {
		t.Fatal(err)
	}
	// The recipe and the goldens stay out of the program.
	want := []string{"MODEL_CARD.md", "config.json", "generation_config.json",
		"model.safetensors", "tokenizer.json", "tokenizer_config.json"}
	if !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
}

// The values are from Python's struct module.
func TestBundledTensors(t *testing.T) {
	tensors, err := Bundled().Tensors()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, dense := range tensors {
		count += dense.Shape().TotalSize()
	}
	if len(tensors) != 52 || count != 4_470_272 {
		t.Errorf("%d tensors, %d parameters; want 52, 4470272", len(tensors), count)
	}
	cases := []struct {
		name                string
		shape               []int
		first, second, last float32
		sum                 float64
	}{
		{"wte.weight", []int{4096, 256}, -0.050048828125, 0.023223876953125, -0.0858154296875, -145.70670092105865},
		{"wpe.weight", []int{1024, 256}, 0.062225341796875, -0.00392913818359375, 0.00579833984375, 26.56443500518799},
		{"h.3.mlp.c_proj.weight", []int{1024, 256}, -0.1192626953125, -0.101318359375, -0.05364990234375, -11.052484333515167},
		{"ln_f.bias", []int{256}, 0.115478515625, 0.0263824462890625, 0.09173583984375, -0.5120620727539062},
		{"h.0.attn.c_attn.bias", []int{768}, 0.114501953125, 0.0014677047729492188, -0.004497528076171875, 2.4382117986679077},
	}
	for _, c := range cases {
		dense, ok := tensors[c.name]
		if !ok {
			t.Errorf("no %s", c.name)
			continue
		}
		data, ok := dense.Data().([]float32)
		if !ok || !slices.Equal([]int(dense.Shape()), c.shape) {
			t.Errorf("%s: %T %v, want float32 %v", c.name, dense.Data(), dense.Shape(), c.shape)
			continue
		}
		// Sums of halves of this size are exact in float64, in any order.
		var sum float64
		for _, x := range data {
			sum += float64(x)
		}
		if data[0] != c.first || data[1] != c.second || data[len(data)-1] != c.last || sum != c.sum {
			t.Errorf("%s: %g, %g ... %g, sum %v; want %g, %g ... %g, sum %v", c.name,
				data[0], data[1], data[len(data)-1], sum, c.first, c.second, c.last, c.sum)
		}
	}
}

func TestOpen(t *testing.T) {
	f, err := Open("bundled")
	if err != nil {
		t.Fatal(err)
	}
	if f.Name() != "bundled" {
		t.Errorf("name %q", f.Name())
	}
	fromDisk, err := f.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := Bundled().Tensors()
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, fromDisk, embedded)
	t.Chdir("bundled")
	if f, err := Open("."); err != nil || f.Name() != "bundled" {
		t.Errorf("Open(.): %v, %v", f, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(says string) {
		t.Helper()
		if _, err := Open(dir); !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrIncomplete that says %q", err, says)
		}
	}
	add := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("config.json")
	add("config.json")
	check("model.safetensors")
	add("pytorch_model.bin")
	check("pickle")
	add("model.safetensors.index.json")
	if _, err := Open(dir); err != nil {
		t.Errorf("with an index: %v", err)
	}
	dir = filepath.Join(dir, "config.json")
	check("not a folder")
}
