package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/sugarme/tokenizer/model/bpe"
)

// maxFileBytes bounds each tokenizer file; the largest in use are near 35 MB.
const maxFileBytes = 100 << 20

// Load reads the tokenizer of a checkpoint folder in Hugging Face's layout: tokenizer.json
// or, where that is absent, vocab.json and merges.txt.
func Load(fsys fs.FS) (*Tokenizer, error) {
	data, err := readFile(fsys, "tokenizer.json")
	if err == nil {
		return loadJSON(data)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return loadPair(fsys)
	}
	return nil, err
}

// readFile is fs.ReadFile for a file that may be hostile.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrMalformed, name, maxFileBytes)
	}
	return data, nil
}

// source is a tokenizer as its files tell it, in whichever format.
type source struct {
	vocab       map[string]int // spelled in the byte alphabet
	merges      []mergeRule    // in the order learned
	added       []addedToken
	prefixSpace bool
}

// mergeRule joins two vocabulary entries.
type mergeRule struct{ left, right string }

// build checks the parts against each other and makes the tables.
func build(src source) (*Tokenizer, error) {
	t := &Tokenizer{prefixSpace: src.prefixSpace, special: make(map[string]int32)}
	if err := t.addVocabulary(src); err != nil {
		return nil, err
	}
	if err := t.addAdded(src); err != nil {
		return nil, err
	}
	if err := t.addLetters(src); err != nil {
		return nil, err
	}
	if err := t.addMerges(src); err != nil {
		return nil, err
	}
	return t, nil
}

// addVocabulary makes tokens and enters the ordinary ones.
func (t *Tokenizer) addVocabulary(src source) error {
	// The table is as long as the highest id, so that must stay in proportion to the
	// number of tokens that the file really has.
	count := len(src.vocab) + len(src.added)
	limit := 2*count + 1024
	highest := -1
	check := func(entry string, id int) error {
		if id < 0 || id >= limit {
			return fmt.Errorf("%w: token %q has id %d; with %d tokens it must be in [0, %d)",
				ErrMalformed, clip(entry), id, count, limit)
		}
		highest = max(highest, id)
		return nil
	}
	for entry, id := range src.vocab {
		if err := check(entry, id); err != nil {
			return err
		}
	}
	for _, a := range src.added {
		if err := check(a.text, int(a.id)); err != nil {
			return err
		}
	}
	t.tokens = make([]token, highest+1)
	for entry, id := range src.vocab {
		if t.tokens[id].kind != missing {
			return fmt.Errorf("%w: two tokens have id %d, one of them %q", ErrMalformed, id, clip(entry))
		}
		t.tokens[id] = token{text: spelled(entry), kind: ordinary}
	}
	return nil
}

// addAdded enters the added tokens, which may be in the vocabulary too. They stand for
// themselves and not for the bytes of the alphabet's letters.
func (t *Tokenizer) addAdded(src source) error {
	ids := make(map[string]int32, len(src.added))
	texts := make(map[int32]string, len(src.added))
	for _, a := range src.added {
		if a.text == "" {
			return fmt.Errorf("%w: added token %d is empty", ErrMalformed, a.id)
		}
		if id, ok := ids[a.text]; ok {
			return fmt.Errorf("%w: added token %q is there twice, with ids %d and %d",
				ErrMalformed, clip(a.text), id, a.id)
		}
		if text, ok := texts[a.id]; ok {
			return fmt.Errorf("%w: added tokens %q and %q both have id %d",
				ErrMalformed, clip(text), clip(a.text), a.id)
		}
		switch id, listed := src.vocab[a.text]; {
		case listed && id != int(a.id):
			return fmt.Errorf("%w: added token %q has id %d, but %d in the vocabulary",
				ErrMalformed, clip(a.text), a.id, id)
		case !listed && t.tokens[a.id].kind != missing:
			return fmt.Errorf("%w: added token %q has id %d, which is another token's in the vocabulary",
				ErrMalformed, clip(a.text), a.id)
		}
		ids[a.text], texts[a.id] = a.id, a.text
		t.tokens[a.id] = token{text: a.text, kind: ordinary}
		if a.special {
			t.tokens[a.id].kind = special
			t.special[a.text] = a.id
		}
		t.added[a.text[0]] = append(t.added[a.text[0]], a)
	}
	for _, list := range t.added {
		slices.SortFunc(list, func(a, b addedToken) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return nil
}

// addLetters finds the tokens that single bytes begin as.
func (t *Tokenizer) addLetters(src source) error {
	for b := range t.letters {
		letter := string(letterOf(byte(b)))
		id, ok := src.vocab[letter]
		if !ok {
			t.letters[b] = -1
			continue
		}
		if t.tokens[id].kind == special {
			return fmt.Errorf("%w: %q is both special token %d and byte 0x%02X", ErrMalformed, letter, id, b)
		}
		t.letters[b] = id
	}
	return nil
}

// addMerges translates the merges to ids. A merge that makes a special token is left
// out, for special tokens are never made from ordinary text.
func (t *Tokenizer) addMerges(src source) error {
	t.merges = make(bpe.Merges, len(src.merges))
	for rank, rule := range src.merges {
		left, ok := src.vocab[rule.left]
		if !ok {
			return fmt.Errorf("%w: merge %d joins %q, which is not in the vocabulary", ErrMalformed, rank, clip(rule.left))
		}
		right, ok := src.vocab[rule.right]
		if !ok {
			return fmt.Errorf("%w: merge %d joins %q, which is not in the vocabulary", ErrMalformed, rank, clip(rule.right))
		}
		whole, ok := src.vocab[rule.left+rule.right]
		if !ok {
			return fmt.Errorf("%w: merge %d makes %q, which is not in the vocabulary", ErrMalformed, rank, clip(rule.left+rule.right))
		}
		if t.tokens[whole].kind != special {
			// A pair listed twice has its later rank, as in GPT-2's own dictionary.
			t.merges[bpe.Pair{C1: left, C2: right}] = bpe.PairVal{Rank: rank, NewId: whole}
		}
	}
	return nil
}
