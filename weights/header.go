package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// maxHeader is the limit that the format's reference implementation sets.
const maxHeader = 100_000_000

// maxRank bounds a shape's length; no model has tensors of more dimensions.
const maxRank = 8

// entry is one tensor of a safetensors file. After readHeader has returned it:
//
//   - begin and end are offsets in the file, within it, and end-begin is the product of
//     shape times the type's size;
//   - no other entry overlaps it, and together the entries cover all bytes after the header.
type entry struct {
	name       string
	dtype      dtype
	shape      []int
	begin, end int64
}

// elements returns the number of elements.
func (e *entry) elements() int64 { return (e.end - e.begin) / e.dtype.size() }

// readHeader reads the header of a safetensors file of size bytes, and checks it:
//
//	8 bytes    length of the JSON, little-endian
//	JSON       {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//	data       to the end of the file; data_offsets count from its beginning
//
// The entries are in the order of their data.
func readHeader(file io.ReaderAt, size int64) ([]entry, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, fmt.Errorf("%w: %d bytes, less than the 8 of the header's length", ErrMalformed, size)
	}
	if err := readFull(file, prefix[:], 0); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > uint64(size)-8 {
		return nil, fmt.Errorf("%w: header length %d at offset 0 goes past the end of the file (%d bytes)", ErrMalformed, length, size)
	}
	if length > maxHeader {
		return nil, fmt.Errorf("%w: header length %d at offset 0 is over the limit of %d", ErrMalformed, length, maxHeader)
	}
	header := make([]byte, length) // the file has at least that many bytes
	if err := readFull(file, header, 8); err != nil {
		return nil, err
	}
	data := 8 + int64(length)
	entries, err := parseHeader(header, data, size)
	if err != nil {
		return nil, err
	}
	return entries, checkLayout(entries, data, size)
}

// readFull is ReadAt that turns a short file into ErrMalformed.
func readFull(file io.ReaderAt, buf []byte, offset int64) error {
	n, err := file.ReadAt(buf, offset)
	if n == len(buf) {
		return nil
	}
	if err == io.EOF {
		return fmt.Errorf("%w: the file ends at offset %d, inside what should end at %d",
			ErrMalformed, offset+int64(n), offset+int64(len(buf)))
	}
	return err
}

// parseHeader reads the entries of a header whose data begins at offset data.
func parseHeader(header []byte, data, size int64) ([]entry, error) {
	r := newJSONReader(bytes.NewReader(header))
	var entries []entry
	err := r.object(func(name string) error {
		if name == "__metadata__" {
			return r.object(func(string) error {
				_, err := r.text()
				return err
			})
		}
		e, err := parseEntry(r, name, data, size)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", clip(name), err)
		}
		entries = append(entries, e)
		return nil
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		// Positions in the JSON are 8 less than in the file.
		return nil, fmt.Errorf("%w: header, near offset %d: %v", ErrMalformed, 8+r.offset(), err)
	}
	return entries, nil
}

// parseEntry reads one tensor's description and checks it against itself and the file.
func parseEntry(r *jsonReader, name string, data, size int64) (entry, error) {
	e := entry{name: name}
	var shape, offsets []int64
	members := 0
	err := r.object(func(key string) (err error) {
		members++
		switch key {
		case "dtype":
			var text string
			text, err = r.text()
			e.dtype = dtype(text)
		case "shape":
			shape, err = r.integers(maxRank)
		case "data_offsets":
			offsets, err = r.integers(2)
		default:
			err = fmt.Errorf("unknown member %q", clip(key))
		}
		return err
	})
	if err != nil {
		return e, err
	}
	// The reader refuses duplicates, so three members are all three.
	if members != 3 || len(offsets) != 2 {
		return e, fmt.Errorf("not one each of dtype, shape and two data_offsets")
	}
	if e.dtype.size() == 0 {
		return e, fmt.Errorf("unknown dtype %q", clip(string(e.dtype)))
	}
	begin, end := offsets[0], offsets[1]
	if begin > end || end > size-data {
		return e, fmt.Errorf("data_offsets [%d, %d] are not within the %d bytes of data that begin at offset %d",
			begin, end, size-data, data)
	}
	bytes, ok := product(shape, e.dtype.size())
	if !ok || bytes != end-begin {
		return e, fmt.Errorf("shape %v of %s does not take the %d bytes of data_offsets [%d, %d]",
			shape, e.dtype, end-begin, begin, end)
	}
	for _, n := range shape {
		e.shape = append(e.shape, int(n))
	}
	e.begin, e.end = data+begin, data+end
	return e, nil
}

// product multiplies a shape's dimensions, which are not negative, and the element size;
// ok is false on overflow. A zero dimension makes the product zero whatever the others.
func product(shape []int64, size int64) (bytes int64, ok bool) {
	if slices.Contains(shape, 0) {
		return 0, true
	}
	total := uint64(size)
	for _, n := range shape {
		high, low := bits.Mul64(total, uint64(n))
		if high != 0 || low > 1<<63-1 {
			return 0, false
		}
		total = low
	}
	return int64(total), true
}

// checkLayout sorts the entries by their data and checks that they follow one another
// without overlap or gap, from the header's end to the file's: bytes that no tensor owns
// could hide anything, and shared ones mean that one of two tensors is not what it seems.
func checkLayout(entries []entry, data, size int64) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at, before := data, "the header"
	for _, e := range entries {
		switch {
		case e.begin < at:
			return fmt.Errorf("%w: tensor %q begins at offset %d, but %s ends at %d: they overlap",
				ErrMalformed, clip(e.name), e.begin, before, at)
		case e.begin > at:
			return fmt.Errorf("%w: tensor %q begins at offset %d, but %s ends at %d: no tensor owns the bytes between",
				ErrMalformed, clip(e.name), e.begin, before, at)
		}
		at, before = e.end, fmt.Sprintf("tensor %q", clip(e.name))
	}
	if at != size {
		return fmt.Errorf("%w: the file has %d bytes, but %s ends at offset %d", ErrMalformed, size, before, at)
	}
	return nil
}
