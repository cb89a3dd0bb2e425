package workload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLine bounds a row of a trace, in bytes: four times what a replica takes as one body.
const maxLine = 16 << 20

// TraceError says where a trace is not what its format says.
type TraceError struct {
	File  string
	Line  int    // from 1; 0: the file as a whole
	Field string // empty: the line as a whole
	Err   error
}

func (e *TraceError) Error() string {
	var at strings.Builder
	at.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&at, ":%d", e.Line)
	}
	if e.Field != "" {
		at.WriteString(": " + e.Field)
	}
	return at.String() + ": " + e.Err.Error()
}

func (e *TraceError) Unwrap() error { return e.Err }

// rows reads the lines of files one after another, each a JSON object. Empty lines are
// passed over. It holds one line at a time.
type rows struct {
	names   []string
	open    func(name string) (io.ReadCloser, error)
	file    io.ReadCloser // nil: open the first of names
	scanner *bufio.Scanner
	line    int
	again   *row // what next returns once more
}

// fileRows reads the file or, of a folder, its *.jsonl files in the order of their names.
func fileRows(path string) (*rows, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			if !e.IsDir() && strings.HasSuffix(e.Name(), ".jsonl") {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
		if len(names) == 0 {
			return nil, &TraceError{File: path, Err: errors.New("the folder has no *.jsonl files")}
		}
	}
	return &rows{names: names, open: func(name string) (io.ReadCloser, error) { return os.Open(name) }}, nil
}

// readerRows reads what r yields.
func readerRows(r io.Reader, name string) *rows {
	return &rows{names: []string{name}, open: func(string) (io.ReadCloser, error) { return io.NopCloser(r), nil }}
}

// next returns the next row, or io.EOF after the last one of all files.
func (r *rows) next() (row, error) {
	if first := r.again; first != nil {
		r.again = nil
		return *first, nil
	}
	for len(r.names) > 0 {
		if r.file == nil {
			file, err := r.open(r.names[0])
			if err != nil {
				return row{}, err
			}
			r.file, r.line = file, 0
			r.scanner = bufio.NewScanner(file)
			r.scanner.Buffer(nil, maxLine)
		}
		for r.scanner.Scan() {
			r.line++
			if line := r.scanner.Bytes(); len(strings.TrimSpace(string(line))) > 0 {
				return parseRow(r.names[0], r.line, line)
			}
		}
		err := r.scanner.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d bytes", maxLine)
		}
		if err != nil {
			return row{}, &TraceError{File: r.names[0], Line: r.line + 1, Err: err}
		}
		r.close()
		r.names = r.names[1:]
	}
	return row{}, io.EOF
}

// peek returns what next will return.
func (r *rows) peek() (row, error) {
	first, err := r.next()
	if err == nil {
		r.again = &first
	}
	return first, err
}

// close ends reading early.
func (r *rows) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// row is one line. Its fields are looked up by their exact names.
type row struct {
	file   string
	line   int
	text   []byte // all of it; valid until the next row is read
	fields map[string]json.RawMessage
}

func parseRow(file string, line int, data []byte) (row, error) {
	r := row{file: file, line: line, text: data}
	if !utf8.Valid(data) {
		return r, r.fail("", "not UTF-8")
	}
	if err := json.Unmarshal(data, &r.fields); err != nil {
		return r, r.fail("", "not a JSON object: %w", err)
	}
	if r.fields == nil {
		return r, r.fail("", "null, want a JSON object")
	}
	return r, nil
}

func (r row) fail(field, format string, args ...any) error {
	return &TraceError{File: r.file, Line: r.line, Field: field, Err: fmt.Errorf(format, args...)}
}

// has says whether the field is there; null is as good as absent.
func (r row) has(field string) bool {
	v, ok := r.fields[field]
	return ok && string(v) != "null"
}

// decode reads a field that must be there.
func (r row) decode(field string, into any) error {
	if !r.has(field) {
		return r.fail(field, "missing")
	}
	if err := json.Unmarshal(r.fields[field], into); err != nil {
		return r.fail(field, "%w", err)
	}
	return nil
}

// number reads a whole number of at least min and at most an int32's.
func (r row) number(field string, min int) (int, error) {
	var n int
	if err := r.decode(field, &n); err != nil {
		return 0, err
	}
	if n < min || n > math.MaxInt32 {
		return 0, r.fail(field, "is %d, want %d to %d", n, min, math.MaxInt32)
	}
	return n, nil
}

// instant reads a time: a number of units since some start, as nanoseconds since then.
func (r row) instant(field string, unit time.Duration) (int64, error) {
	var n json.Number
	if raw := r.fields[field]; len(raw) > 0 && raw[0] == '"' { // json.Number would take it
		return 0, r.fail(field, "is %s, want a number", raw)
	}
	if err := r.decode(field, &n); err != nil {
		return 0, err
	}
	f, err := n.Float64()
	if err != nil || f < 0 || f >= math.MaxInt64 {
		return 0, r.fail(field, "is %s, want 0 to %d", n, math.MaxInt64/int64(unit)-1)
	}
	whole, part := int64(f), f-math.Floor(f)
	if before, after, _ := strings.Cut(string(n), "."); !strings.ContainsAny(after+before, "eE") {
		// Seconds since 1970 in a float64 are off by up to 0.1 us, nanoseconds by up to
		// 128: what is before and after the point is read on its own.
		whole, _ = strconv.ParseInt(before, 10, 64)
		part, _ = strconv.ParseFloat("0."+after, 64)
	}
	if whole >= math.MaxInt64/int64(unit) {
		return 0, r.fail(field, "is %s, want 0 to %d", n, math.MaxInt64/int64(unit)-1)
	}
	return whole*int64(unit) + int64(math.Round(part*float64(unit))), nil
}

// names lists the fields that there are, for errors.
func (r row) names() string {
	var list []string
	for name := range r.fields {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
