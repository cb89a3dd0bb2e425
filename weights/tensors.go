package weights

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"gorgonia.org/tensor"
)

// bufferBytes is how much of a tensor is read at a time: large against the cost of a
// read, small enough to stay in a core's cache while it is widened.
const bufferBytes = 256 << 10

// Tensors reads all tensors, widened to float32. Names are GPT-2's own ("h.0.ln_1.weight"):
// the prefix "transformer." that some checkpoints have is taken off, and the attention
// masks attn.bias and attn.masked_bias, which are constants and no weights, are left out.
// The caller owns the result; each call reads the files again.
func (f *Folder) Tensors() (map[string]*tensor.Dense, error) {
	l := loader{
		fsys:    f.fsys,
		buffer:  make([]byte, bufferBytes),
		tensors: make(map[string]*tensor.Dense),
	}
	// With one file there is no index to say what it must hold. Where there is neither,
	// the error names the single file.
	shards := map[string]map[string]bool{singleFile: nil}
	if !f.has(singleFile) && f.has(indexFile) {
		var err error
		if shards, err = readIndex(f.fsys); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		if err := l.readFile(name, shards[name]); err != nil {
			return nil, err
		}
	}
	return l.tensors, nil
}

// loader collects the tensors of one checkpoint from its files.
type loader struct {
	fsys    fs.FS
	buffer  []byte
	tensors map[string]*tensor.Dense
}

// readFile reads the tensors of one safetensors file. placed holds the names that the
// index places in this file; nil if there is no index.
func (l *loader) readFile(name string, placed map[string]bool) error {
	if err := l.read(name, placed); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (l *loader) read(name string, placed map[string]bool) error {
	file, err := l.fsys.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	at, ok := file.(io.ReaderAt)
	if !ok || !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", ErrMalformed)
	}
	entries, err := readHeader(at, info.Size())
	if err != nil {
		return err
	}
	if placed != nil {
		if err := checkPlacement(entries, placed); err != nil {
			return err
		}
	}
	for i := range entries {
		e := &entries[i]
		name := strings.TrimPrefix(e.name, "transformer.")
		if isMask(name) {
			continue
		}
		if _, ok := l.tensors[name]; ok {
			return fmt.Errorf("%w: tensor %q at offset %d is there twice, with and without the prefix or in two files",
				ErrMalformed, clip(name), e.begin)
		}
		if l.tensors[name], err = l.readTensor(at, e); err != nil {
			return fmt.Errorf("tensor %q, %s %v at offset %d: %w", clip(e.name), e.dtype, e.shape, e.begin, err)
		}
	}
	return nil
}

// isMask reports whether a tensor is one of the constants that old versions of the
// reference implementation saved along with the weights.
func isMask(name string) bool {
	return strings.HasSuffix(name, ".attn.bias") || strings.HasSuffix(name, ".attn.masked_bias")
}

// readTensor reads and widens one tensor.
func (l *loader) readTensor(file io.ReaderAt, e *entry) (*tensor.Dense, error) {
	if !e.dtype.readable() {
		return nil, fmt.Errorf("%w: only F32, F16 and BF16 are read", ErrUnsupported)
	}
	if e.begin == e.end {
		return nil, fmt.Errorf("%w: it has no elements", ErrUnsupported)
	}
	data := make([]float32, e.elements())
	size := e.dtype.size()
	rest, offset := data, e.begin
	for len(rest) > 0 {
		n := min(int64(len(rest)), int64(len(l.buffer))/size)
		raw := l.buffer[:n*size]
		if err := readFull(file, raw, offset); err != nil {
			return nil, err
		}
		e.dtype.widen(rest[:n], raw)
		rest, offset = rest[n:], offset+n*size
	}
	if len(e.shape) == 0 {
		return tensor.New(tensor.FromScalar(data[0])), nil
	}
	return tensor.New(tensor.WithShape(e.shape...), tensor.WithBacking(data)), nil
}

// readIndex reads the index of a checkpoint in several files: the names of the tensors
// that each file holds.
//
//	{"metadata": ..., "weight_map": {"wte.weight": "model-00001-of-00002.safetensors", ...}}
func readIndex(fsys fs.FS) (map[string]map[string]bool, error) {
	file, err := fsys.Open(indexFile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	shards := make(map[string]map[string]bool)
	// An index is a list of names like a header, so a header's limit is ample.
	r := newJSONReader(io.LimitReader(file, maxHeader))
	err = r.object(func(member string) error {
		if member != "weight_map" {
			return r.skip()
		}
		return r.object(func(name string) error {
			shard, err := r.text()
			if err != nil {
				return err
			}
			if !isShardName(shard) {
				return fmt.Errorf("tensor %q is placed in %q, which is not the name of a .safetensors file in the folder",
					clip(name), clip(shard))
			}
			if shards[shard] == nil {
				shards[shard] = make(map[string]bool)
			}
			shards[shard][name] = true
			return nil
		})
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && len(shards) == 0 {
		err = fmt.Errorf("no weight_map, or an empty one")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: near offset %d: %v", indexFile, ErrMalformed, r.offset(), err)
	}
	return shards, nil
}

// isShardName keeps an index from naming files outside its folder.
func isShardName(name string) bool {
	return path.Base(name) == name && path.Ext(name) == ".safetensors" && !strings.ContainsAny(name, `\:`)
}

// checkPlacement compares a file's tensors with those that the index places in it.
func checkPlacement(entries []entry, placed map[string]bool) error {
	found := make(map[string]bool, len(entries))
	for _, e := range entries {
		if !placed[e.name] {
			return fmt.Errorf("%w: tensor %q at offset %d is not placed in this file by %s",
				ErrMalformed, clip(e.name), e.begin, indexFile)
		}
		found[e.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(placed)) {
		if !found[name] {
			return fmt.Errorf("%w: tensor %q is missing, though %s places it in this file",
				ErrMalformed, clip(name), indexFile)
		}
	}
	return nil
}
