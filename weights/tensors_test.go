package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"gorgonia.org/tensor"
)

// file makes a safetensors file of a header and its data.
func file(header string, data []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

// shard writes tensors as F32.
func shard(t *testing.T, tensors map[string]*tensor.Dense) []byte {
	t.Helper()
	type description struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		begin := len(data)
		for _, x := range tensors[name].Data().([]float32) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		header[name] = description{"F32", tensors[name].Shape(), [2]int{begin, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return file(string(text)+"   ", data) // padded with blanks, as the format allows
}

func folder(files fstest.MapFS) *Folder { return &Folder{name: "test", fsys: files} }

func single(data []byte) *Folder {
	return folder(fstest.MapFS{singleFile: {Data: data}})
}

func sameTensors(t *testing.T, got, want map[string]*tensor.Dense) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			t.Errorf("no tensor %s", name)
			continue
		}
		if !slices.Equal(g.Shape(), w.Shape()) || !slices.Equal(g.Data().([]float32), w.Data().([]float32)) {
			t.Errorf("tensor %s differs", name)
		}
	}
}

func TestTypes(t *testing.T) {
	header := `{"f32":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"f16":{"dtype":"F16","shape":[3],"data_offsets":[8,14]},` +
		`"bf16":{"dtype":"BF16","shape":[2,1],"data_offsets":[14,18]},` +
		`"scalar":{"dtype":"F32","shape":[],"data_offsets":[18,22]}}`
	data := []byte{
		0, 0, 0x80, 0x3F, 0, 0, 0x20, 0xC0, // 1, -2.5
		0, 0x3C, 0xFF, 0x7B, 1, 0x80, // 1, 65504, -2^-24
		0x80, 0x3F, 0x49, 0x40, // 1, 3.140625
		0, 0, 0, 0x41, // 8
	}
	tensors, err := single(file(header, data)).Tensors()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float32{
		"f32": {1, -2.5}, "f16": {1, 65504, -0x1p-24}, "bf16": {1, 3.140625},
	} {
		if got := tensors[name].Data().([]float32); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if s := tensors["scalar"]; !s.IsScalar() || s.Data() != float32(8) {
		t.Errorf("scalar: %v", s)
	}
	if got := tensors["bf16"].Shape(); !slices.Equal(got, tensor.Shape{2, 1}) {
		t.Errorf("shape %v", got)
	}
}

// A tensor larger than the buffer is read in pieces, the last one short.
func TestLargeTensor(t *testing.T) {
	n := bufferBytes/4*3 + 5
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	want := map[string]*tensor.Dense{"x": tensor.New(tensor.WithShape(n), tensor.WithBacking(data))}
	got, err := single(shard(t, want)).Tensors()
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, got, want)
}

func TestNames(t *testing.T) {
	one := func() *tensor.Dense { return tensor.New(tensor.WithShape(1), tensor.WithBacking([]float32{1})) }
	tensors, err := single(shard(t, map[string]*tensor.Dense{
		"transformer.wte.weight":           one(),
		"transformer.h.0.attn.bias":        one(),
		"transformer.h.0.attn.masked_bias": one(),
		"transformer.h.0.attn.c_attn.bias": one(),
		"h.11.attn.bias":                   one(),
		"lm_head.weight":                   one(),
	})).Tensors()
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(tensors))
	if want := []string{"h.0.attn.c_attn.bias", "lm_head.weight", "wte.weight"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	// Masks may have a type that weights may not.
	mask := `{"h.0.attn.bias":{"dtype":"BOOL","shape":[1,1,2,2],"data_offsets":[0,4]}}`
	if tensors, err := single(file(mask, make([]byte, 4))).Tensors(); err != nil || len(tensors) != 0 {
		t.Errorf("a mask: %v, %v", tensors, err)
	}
}

// The bundled model in two shards is the bundled model.
func TestShards(t *testing.T) {
	want, err := Bundled().Tensors()
	if err != nil {
		t.Fatal(err)
	}
	files := sharded(t, want)
	got, err := folder(files).Tensors()
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, got, want)
	files[singleFile] = &fstest.MapFile{Data: shard(t, map[string]*tensor.Dense{"ln_f.bias": want["ln_f.bias"]})}
	if got, err := folder(files).Tensors(); err != nil || len(got) != 1 {
		t.Errorf("a single file beside an index: %d tensors, %v; want the single file's 1", len(got), err)
	}
}

// sharded writes tensors as a checkpoint in two files with an index.
func sharded(t *testing.T, tensors map[string]*tensor.Dense) fstest.MapFS {
	t.Helper()
	names := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
	parts := []map[string]*tensor.Dense{{}, {}}
	placed := make(map[string]string)
	for i, name := range slices.Sorted(maps.Keys(tensors)) {
		parts[i%2][name] = tensors[name]
		placed[name] = names[i%2]
	}
	index, err := json.Marshal(map[string]any{
		"metadata":   map[string]any{"total_size": 1, "nested": []any{map[string]any{"a": "b"}}},
		"weight_map": placed,
	})
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{
		indexFile: {Data: index},
		names[0]:  {Data: shard(t, parts[0])},
		names[1]:  {Data: shard(t, parts[1])},
	}
}

func TestIndexRefuses(t *testing.T) {
	one := func() *tensor.Dense { return tensor.New(tensor.WithShape(1), tensor.WithBacking([]float32{1})) }
	a := shard(t, map[string]*tensor.Dense{"a": one()})
	placed := func(shard string) string { return fmt.Sprintf(`{"weight_map":{"a":%q}}`, shard) }
	cases := []struct {
		name, index string
		is          error
		says        string
	}{
		{"path out of the folder", placed("../other/a.safetensors"), ErrMalformed, "../other"},
		{"absolute path", placed("/etc/a.safetensors"), ErrMalformed, "/etc"},
		{"sub-folder", placed("x/a.safetensors"), ErrMalformed, "x/a"},
		{"backslash", placed(`..\a.safetensors`), ErrMalformed, "a.safetensors"},
		{"other file", placed("config.json"), ErrMalformed, "config.json"},
		{"empty name", placed(""), ErrMalformed, `"a"`},
		{"dots", placed(".."), ErrMalformed, ".."},
		{"missing shard", placed("b.safetensors"), fs.ErrNotExist, "b.safetensors"},
		{"tensor not in its shard", `{"weight_map":{"a":"a.safetensors","wte.weight":"a.safetensors"}}`, ErrMalformed, `"wte.weight" is missing`},
		{"tensor not in the index", `{"weight_map":{"b":"a.safetensors"}}`, ErrMalformed, `"a" at offset`},
		{"tensor in two shards", `{"weight_map":{"a":"a.safetensors","transformer.a":"c.safetensors"}}`, ErrMalformed, `"a" at offset`},
		{"tensor listed twice", `{"weight_map":{"a":"a.safetensors","a":"c.safetensors"}}`, ErrMalformed, "twice"},
		{"no map", `{"metadata":{}}`, ErrMalformed, "weight_map"},
		{"empty map", `{"weight_map":{}}`, ErrMalformed, "weight_map"},
		{"map of numbers", `{"weight_map":{"a":1}}`, ErrMalformed, "string"},
		{"not an object", `[]`, ErrMalformed, "{"},
		{"cut off", `{"weight_map":{"a":"a.saf`, ErrMalformed, "offset"},
		{"more after the end", placed("a.safetensors") + "{}", ErrMalformed, "after the end"},
		{"nested without end", `{"metadata":` + strings.Repeat("[", 1000), ErrMalformed, "nested"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tensors, err := folder(fstest.MapFS{
				indexFile:       {Data: []byte(c.index)},
				"a.safetensors": {Data: a},
				"c.safetensors": {Data: shard(t, map[string]*tensor.Dense{"transformer.a": one()})},
			}).Tensors()
			if tensors != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
		})
	}
}

func TestNoTensors(t *testing.T) {
	if _, err := folder(fstest.MapFS{}).Tensors(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
	dir := fstest.MapFS{singleFile + "/x": {}}
	if _, err := folder(dir).Tensors(); !errors.Is(err, ErrMalformed) {
		t.Errorf("a folder in a file's place: %v", err)
	}
}

// zeros is a file that claims a size and reads as prefix, then zeros.
type zeros struct {
	prefix []byte
	size   int64
	most   int // the largest read so far
}

func (z *zeros) Open(name string) (fs.File, error) {
	if name != singleFile {
		return nil, fs.ErrNotExist
	}
	return z, nil
}
func (z *zeros) Stat() (fs.FileInfo, error) { return z, nil }
func (z *zeros) Read([]byte) (int, error)   { return 0, fs.ErrInvalid }
func (z *zeros) Close() error               { return nil }
func (z *zeros) Name() string               { return singleFile }
func (z *zeros) Size() int64                { return z.size }
func (z *zeros) Mode() fs.FileMode          { return 0 }
func (z *zeros) ModTime() time.Time         { return time.Time{} }
func (z *zeros) IsDir() bool                { return false }
func (z *zeros) Sys() any                   { return nil }
func (z *zeros) ReadAt(p []byte, off int64) (int, error) {
	z.most = max(z.most, len(p))
	clear(p)
	if off < int64(len(z.prefix)) {
		copy(p, z.prefix[off:])
	}
	return len(p), nil
}

// A header over the limit is refused before any of it is read, even where the file has
// that many bytes.
func TestHeaderLimit(t *testing.T) {
	z := &zeros{prefix: binary.LittleEndian.AppendUint64(nil, maxHeader+1), size: 1 << 40}
	_, err := (&Folder{fsys: z}).Tensors()
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "limit") {
		t.Errorf("got %v, want ErrMalformed that names the limit", err)
	}
	if z.most > 8 {
		t.Errorf("read %d bytes at once", z.most)
	}
}

// watched is a folder that has an index and fails at any name outside itself.
type watched struct {
	t     *testing.T
	index []byte
}

func (w *watched) Open(name string) (fs.File, error) {
	if strings.ContainsAny(name, `/\:`) || name == ".." || name == "." {
		w.t.Fatalf("opened %q", name)
	}
	return fstest.MapFS{indexFile: {Data: w.index}}.Open(name)
}
