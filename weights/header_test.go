package weights

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"runtime"
	"strings"
	"testing"
)

// one is a header with a tensor "w" of the given dtype, shape and offsets.
func one(dtype, shape, offsets string) string {
	return `{"w":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

func length(n uint64, rest string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
}

var hostile = []struct {
	name string
	data []byte
	is   error
	says []string // what a reader needs to find the fault
}{
	{"empty file", nil, ErrMalformed, []string{"0 bytes"}},
	{"seven bytes", make([]byte, 7), ErrMalformed, []string{"7 bytes"}},
	{"no header", length(0, ""), ErrMalformed, []string{"offset 8"}},
	{"header past the file", length(3, "{}"), ErrMalformed, []string{"length 3", "10 bytes"}},
	{"header length 2^64-1", length(math.MaxUint64, "{}"), ErrMalformed, []string{"18446744073709551615"}},
	{"header length 2^63-1", length(math.MaxInt64, "{}"), ErrMalformed, []string{"9223372036854775807"}},
	{"not JSON", file(`hello`, nil), ErrMalformed, []string{"offset"}},
	{"not an object", file(`["w"]`, nil), ErrMalformed, []string{`"{"`}},
	{"cut off", file(`{"w":{"dtype":"F32"`, nil), ErrMalformed, []string{`"w"`, "offset 27"}},
	{"two objects", file(`{}{}`, nil), ErrMalformed, []string{"after the end"}},
	{"metadata that nests", file(`{"__metadata__":{"a":[[]]}}`, nil), ErrMalformed, []string{"string"}},
	{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, nil), ErrMalformed, []string{"__metadata__", "twice"}},
	{"entry that is no object", file(`{"w":7}`, nil), ErrMalformed, []string{`"w"`}},
	{"tensor twice", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, []byte{1}),
		ErrMalformed, []string{`"w"`, "twice", "offset"}},
	{"tensor twice by escape", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0077":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, []byte{1}),
		ErrMalformed, []string{`"w"`, "twice"}},
	{"member twice", file(`{"w":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}}`, []byte{1}), ErrMalformed, []string{`"w"`, `"dtype"`, "twice"}},
	{"unknown member", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, []byte{1}), ErrMalformed, []string{`"w"`, `"x"`}},
	{"no dtype", file(`{"w":{"shape":[1],"data_offsets":[0,1]}}`, []byte{1}), ErrMalformed, []string{`"w"`, "dtype"}},
	{"no shape", file(`{"w":{"dtype":"U8","data_offsets":[0,1]}}`, []byte{1}), ErrMalformed, []string{`"w"`, "shape"}},
	{"no offsets", file(`{"w":{"dtype":"U8","shape":[1]}}`, []byte{1}), ErrMalformed, []string{`"w"`, "data_offsets"}},
	{"one offset", file(one("U8", "[1]", "[0]"), []byte{1}), ErrMalformed, []string{`"w"`, "two data_offsets"}},
	{"three offsets", file(one("U8", "[1]", "[0,1,1]"), []byte{1}), ErrMalformed, []string{`"w"`, "more than 2"}},
	{"unknown dtype", file(one("F12", "[1]", "[0,1]"), []byte{1}), ErrMalformed, []string{`"w"`, "F12"}},
	{"offsets past the data", file(one("F32", "[2]", "[0,8]"), make([]byte, 4)), ErrMalformed, []string{`"w"`, "[0, 8]", "4 bytes"}},
	{"offsets of 2^63-1", file(one("U8", "[1]", "[9223372036854775806,9223372036854775807]"), []byte{1}), ErrMalformed, []string{`"w"`, "9223372036854775807"}},
	{"offset over 2^63", file(one("U8", "[1]", "[0,9223372036854775808]"), []byte{1}), ErrMalformed, []string{`"w"`, "9223372036854775808"}},
	{"offsets backwards", file(one("U8", "[1]", "[1,0]"), []byte{1}), ErrMalformed, []string{`"w"`, "[1, 0]"}},
	{"negative offset", file(one("U8", "[1]", "[-1,0]"), []byte{1}), ErrMalformed, []string{`"w"`, "-1"}},
	{"fractional offset", file(one("U8", "[1]", "[0,1.5]"), []byte{1}), ErrMalformed, []string{`"w"`, "1.5"}},
	{"offsets in a string", file(one("U8", "[1]", `["0",1]`), []byte{1}), ErrMalformed, []string{`"w"`, "number"}},
	{"negative dimension", file(one("U8", "[-1,-1]", "[0,1]"), []byte{1}), ErrMalformed, []string{`"w"`, "-1"}},
	{"shape product 2^64 + 4 bytes", file(one("F32", "[4611686018427387905]", "[0,4]"), make([]byte, 4)), ErrMalformed, []string{`"w"`, "4611686018427387905"}},
	{"shape product over 2^64", file(one("U8", "[4294967296,4294967296]", "[0,0]"), nil), ErrMalformed, []string{`"w"`, "4294967296"}},
	{"nine dimensions", file(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), []byte{1}), ErrMalformed, []string{`"w"`, "more than 8"}},
	{"wrong size for the dtype", file(one("F32", "[2]", "[0,4]"), make([]byte, 4)), ErrMalformed, []string{`"w"`, "[2]", "F32", "4 bytes"}},
	{"shape too small", file(one("F16", "[1]", "[0,4]"), make([]byte, 4)), ErrMalformed, []string{`"w"`, "[1]"}},
	{"overlap", file(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, make([]byte, 4)),
		ErrMalformed, []string{`"a"`, `"b"`, "overlap", "offset 115"}},
	{"two names for the same bytes", file(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`, make([]byte, 3)),
		ErrMalformed, []string{`"a"`, `"b"`, "overlap"}},
	{"gap between tensors", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, make([]byte, 3)),
		ErrMalformed, []string{`"a"`, `"b"`, "no tensor owns"}},
	{"gap before the first", file(one("U8", "[1]", "[1,2]"), make([]byte, 2)), ErrMalformed, []string{`"w"`, "no tensor owns"}},
	{"data after the last", file(one("U8", "[1]", "[0,1]"), make([]byte, 2)), ErrMalformed, []string{`"w"`, "ends at offset"}},
	{"data without a tensor", file(`{}`, make([]byte, 2)), ErrMalformed, []string{"12 bytes", "offset 10"}},
	{"weights of integers", file(one("I32", "[1]", "[0,4]"), make([]byte, 4)), ErrUnsupported, []string{`"w"`, "I32", "offset"}},
	{"weights without elements", file(one("F32", "[0,9223372036854775807]", "[0,0]"), nil), ErrUnsupported, []string{`"w"`, "no elements"}},
	{"both names of a tensor", file(`{"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"transformer.w":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}`, make([]byte, 4)),
		ErrMalformed, []string{`"w"`, "twice", "offset"}},
	{"long name", file(`{"`+strings.Repeat("x", 1<<20)+`":7}`, nil), ErrMalformed, []string{`xxx..."`}},
}

func TestHostileFiles(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tensors, err := single(c.data).Tensors()
			runtime.ReadMemStats(&after)
			if tensors != nil || !errors.Is(err, c.is) {
				t.Fatalf("got %v, want %v", err, c.is)
			}
			for _, says := range append(c.says, singleFile) {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("error %q does not say %q", err, says)
				}
			}
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			// Nothing here may be sized by a number that the file does not back.
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+20*len(c.data)); got > most {
				t.Errorf("%d bytes allocated for a file of %d", got, len(c.data))
			}
		})
	}
}

// short is a file that ends before the size that Stat told, as one does that is being
// cut off meanwhile.
type short struct {
	zeros
	end int64
}

func (s *short) Open(name string) (fs.File, error) {
	if _, err := s.zeros.Open(name); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *short) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= s.end {
		return s.zeros.ReadAt(p, off)
	}
	n, err := s.zeros.ReadAt(p[:max(s.end-off, 0)], off)
	if err == nil {
		err = io.EOF
	}
	return n, err
}

func TestTruncatedFile(t *testing.T) {
	whole := file(one("F32", "[1000]", "[0,4000]"), nil)
	size := int64(len(whole)) + 4000
	for _, end := range []int64{4, 20, int64(len(whole)) + 100} {
		s := &short{zeros{prefix: whole, size: size}, end}
		if tensors, err := (&Folder{fsys: s}).Tensors(); tensors != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("file ends at %d of %d: %v", end, size, err)
		}
	}
	s := &short{zeros{prefix: whole, size: size}, size}
	if _, err := (&Folder{fsys: s}).Tensors(); err != nil {
		t.Errorf("whole file: %v", err)
	}
}

// FuzzTensors takes any file apart. What is accepted must account for every byte.
func FuzzTensors(f *testing.F) {
	for _, c := range hostile {
		if len(c.data) < 1<<10 {
			f.Add(c.data)
		}
	}
	f.Add(file(one("F32", "[2]", "[0,8]"), make([]byte, 8)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := single(data).Tensors()
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		total := 8 + binary.LittleEndian.Uint64(data)
		for _, dense := range tensors {
			total += 2 * uint64(dense.Shape().TotalSize()) // two bytes an element at least
		}
		if total > uint64(len(data)) {
			t.Fatalf("%d bytes of tensors from a file of %d", total, len(data))
		}
	})
}

// FuzzIndex takes any index apart. Only files in the folder may be opened.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":4},"weight_map":{"w":"a.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"w":"../a.safetensors","x":"b.safetensors"}}`))
	f.Fuzz(func(t *testing.T, index []byte) {
		files := &watched{t: t, index: index}
		if _, err := (&Folder{fsys: files}).Tensors(); err == nil {
			t.Fatal("a checkpoint without tensors was accepted")
		}
	})
}
