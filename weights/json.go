package weights

import (
	"encoding/json"
	"fmt"
	"io"
)

// maxDepth bounds how deep a skipped value may nest: the decoder keeps a word for each
// level that is open, and a file can open one per byte.
const maxDepth = 32

// jsonReader walks JSON token by token. Decoding into a map would keep the last of two
// members with the same name and say nothing.
type jsonReader struct{ dec *json.Decoder }

func newJSONReader(r io.Reader) *jsonReader {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	return &jsonReader{dec}
}

// offset is how far the reader has come.
func (r *jsonReader) offset() int64 { return r.dec.InputOffset() }

// token reads the next token, where one must be.
func (r *jsonReader) token() (json.Token, error) {
	tok, err := r.dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return tok, err
}

// object reads an object. member is called after each name and must read its value.
func (r *jsonReader) object(member func(name string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for r.dec.More() {
		name, err := r.text()
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%q is there twice", clip(name))
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	return r.delim('}')
}

// integers reads an array of at most most integers, none negative.
func (r *jsonReader) integers(most int) ([]int64, error) {
	if err := r.delim('['); err != nil {
		return nil, err
	}
	var list []int64
	for r.dec.More() {
		tok, err := r.token()
		if err != nil {
			return nil, err
		}
		number, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s where a number should be", clip(fmt.Sprint(tok)))
		}
		n, err := number.Int64()
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s is not a whole number from 0 to 2^63-1", clip(number.String()))
		}
		if len(list) == most {
			return nil, fmt.Errorf("an array of more than %d numbers", most)
		}
		list = append(list, n)
	}
	return list, r.delim(']')
}

// text reads a string.
func (r *jsonReader) text() (string, error) {
	tok, err := r.token()
	if err != nil {
		return "", err
	}
	text, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("%s where a string should be", clip(fmt.Sprint(tok)))
	}
	return text, nil
}

// skip reads a value of any kind and forgets it.
func (r *jsonReader) skip() error {
	for depth := 0; ; {
		tok, err := r.token()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		if depth > maxDepth {
			return fmt.Errorf("nested deeper than %d", maxDepth)
		}
	}
}

// delim reads one bracket.
func (r *jsonReader) delim(want json.Delim) error {
	tok, err := r.token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("%s where %q should be", clip(fmt.Sprint(tok)), want.String())
	}
	return nil
}

// end checks that nothing but white space is left.
func (r *jsonReader) end() error {
	tok, err := r.dec.Token()
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s after the end", clip(fmt.Sprint(tok)))
}

// clip shortens a text from a file for an error message.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
