package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// tokenizerJSON is the part of tokenizer.json that says how text becomes ids. Truncation
// and padding are the caller's business; offsets are not kept, so trim_offsets says
// nothing here.
type tokenizerJSON struct {
	AddedTokens []struct {
		ID         int32  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Special    bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer    *component `json:"normalizer"`
	PreTokenizer  *component `json:"pre_tokenizer"`
	PostProcessor *component `json:"post_processor"`
	Decoder       *component `json:"decoder"`
	Model         struct {
		Type         string         `json:"type"`
		Vocab        map[string]int `json:"vocab"`
		Merges       []mergeRule    `json:"merges"`
		Dropout      float64        `json:"dropout"`
		Prefix       string         `json:"continuing_subword_prefix"`
		Suffix       string         `json:"end_of_word_suffix"`
		ByteFallback bool           `json:"byte_fallback"`
		IgnoreMerges bool           `json:"ignore_merges"`
	} `json:"model"`
}

// component is one stage of Hugging Face's pipeline.
type component struct {
	Type           string                     `json:"type"`
	AddPrefixSpace bool                       `json:"add_prefix_space"`
	UseRegex       *bool                      `json:"use_regex"` // absent means true
	SpecialTokens  map[string]json.RawMessage `json:"special_tokens"`
}

// UnmarshalJSON reads a merge as a string with one space ("Ġ t") or, as newer files have
// it, as an array of two strings.
func (m *mergeRule) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var pair []string
		if err := json.Unmarshal(data, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("merge %s: %d parts, not 2", clip(string(data)), len(pair))
		}
		m.left, m.right = pair[0], pair[1]
		return nil
	}
	var line string
	if err := json.Unmarshal(data, &line); err != nil {
		return err
	}
	rule, err := parseMerge(line)
	*m = rule
	return err
}

// parseMerge reads a merge as merges.txt spells it. The alphabet has no space, so the one
// between the parts is the only one.
func parseMerge(line string) (mergeRule, error) {
	left, right, ok := strings.Cut(line, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return mergeRule{}, fmt.Errorf("merge %q: not two parts with one space between", clip(line))
	}
	return mergeRule{left, right}, nil
}

// loadJSON builds a tokenizer from tokenizer.json.
func loadJSON(data []byte) (*Tokenizer, error) {
	var file tokenizerJSON
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%w: tokenizer.json: %v", ErrMalformed, err)
	}
	if err := file.check(); err != nil {
		return nil, fmt.Errorf("%w: tokenizer.json: %v", ErrUnsupported, err)
	}
	src := source{
		vocab:       file.Model.Vocab,
		merges:      file.Model.Merges,
		prefixSpace: file.PreTokenizer.AddPrefixSpace,
	}
	for _, a := range file.AddedTokens {
		src.added = append(src.added, addedToken{text: a.Content, id: a.ID, special: a.Special})
	}
	t, err := build(src)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

// check refuses what would make other ids than GPT-2's pipeline does: better no tokenizer
// than one whose ids are off a little.
func (f *tokenizerJSON) check() error {
	m := &f.Model
	switch {
	case m.Type != "" && m.Type != "BPE": // older files do not name it
		return fmt.Errorf("model type %q, not BPE", clip(m.Type))
	case m.Dropout != 0:
		return fmt.Errorf("model.dropout %g", m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return errors.New("model with a subword prefix or suffix")
	case m.ByteFallback || m.IgnoreMerges:
		return errors.New("model with byte_fallback or ignore_merges")
	case f.Normalizer != nil:
		return fmt.Errorf("normalizer %q", clip(f.Normalizer.Type))
	case f.PreTokenizer == nil || f.PreTokenizer.Type != "ByteLevel":
		return errors.New("pre_tokenizer is not ByteLevel")
	case f.PreTokenizer.UseRegex != nil && !*f.PreTokenizer.UseRegex:
		return errors.New("pre_tokenizer with use_regex false")
	case f.Decoder != nil && f.Decoder.Type != "ByteLevel":
		return fmt.Errorf("decoder %q, not ByteLevel", clip(f.Decoder.Type))
	}
	if p := f.PostProcessor; p != nil && p.Type != "ByteLevel" &&
		(p.Type != "TemplateProcessing" || len(p.SpecialTokens) > 0) {
		return fmt.Errorf("post_processor %q, which adds tokens", clip(p.Type))
	}
	for _, a := range f.AddedTokens {
		if a.SingleWord || a.LStrip || a.RStrip {
			return fmt.Errorf("added token %q with single_word, lstrip or rstrip", clip(a.Content))
		}
	}
	return nil
}

// loadPair builds a tokenizer from vocab.json and merges.txt, the format of GPT-2's own
// release. added_tokens.json and special_tokens_map.json, where there are any, say which
// tokens are looked for in the text and which of them are special.
func loadPair(fsys fs.FS) (*Tokenizer, error) {
	vocab, err := readFile(fsys, "vocab.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: neither tokenizer.json nor vocab.json", ErrNoVocabulary)
	} else if err != nil {
		return nil, err
	}
	merges, err := readFile(fsys, "merges.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: vocab.json without merges.txt", ErrNoVocabulary)
	} else if err != nil {
		return nil, err
	}
	var src source
	if err := json.Unmarshal(vocab, &src.vocab); err != nil {
		return nil, fmt.Errorf("%w: vocab.json: %v", ErrMalformed, err)
	}
	if src.merges, err = parseMerges(merges); err != nil {
		return nil, err
	}
	if src.added, err = readAdded(fsys, src.vocab); err != nil {
		return nil, err
	}
	t, err := build(src)
	if err != nil {
		return nil, fmt.Errorf("vocab.json, merges.txt: %w", err)
	}
	return t, nil
}

// parseMerges reads merges.txt: a merge a line, after a line with the version.
func parseMerges(data []byte) ([]mergeRule, error) {
	rules := make([]mergeRule, 0, bytes.Count(data, []byte("\n"))+1)
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || number == 1 && strings.HasPrefix(line, "#version") {
			continue
		}
		rule, err := parseMerge(line)
		if err != nil {
			return nil, fmt.Errorf("%w: merges.txt line %d: %v", ErrMalformed, number, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// endOfText is special in GPT-2 though its two files do not say so.
const endOfText = "<|endoftext|>"

// readAdded returns the added tokens of a folder without tokenizer.json.
func readAdded(fsys fs.FS, vocab map[string]int) ([]addedToken, error) {
	var ids map[string]int32
	if err := readOptional(fsys, "added_tokens.json", &ids); err != nil {
		return nil, err
	}
	var named map[string]specialNames
	if err := readOptional(fsys, "special_tokens_map.json", &named); err != nil {
		return nil, err
	}
	special := map[string]bool{endOfText: true}
	for _, names := range named {
		for _, name := range names {
			special[name] = true
		}
	}
	delete(special, "") // a role that is set to null
	var added []addedToken
	for text, id := range ids {
		added = append(added, addedToken{text: text, id: id, special: special[text]})
		delete(special, text)
	}
	for text := range special {
		// A role may be given to a token that the vocabulary does not have.
		if id, ok := vocab[text]; ok {
			added = append(added, addedToken{text: text, id: int32(id), special: true})
		}
	}
	return added, nil
}

// readOptional decodes a JSON file that may be absent.
func readOptional(fsys fs.FS, name string, into any) error {
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrMalformed, name, err)
	}
	return nil
}

// specialNames is one entry of special_tokens_map.json: a token, an object with the token
// as its content, or a list of either.
type specialNames []string

func (s *specialNames) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		var name string
		err := json.Unmarshal(data, &name)
		*s = specialNames{name}
		return err
	case '[':
		var list []specialNames
		err := json.Unmarshal(data, &list)
		for _, names := range list {
			*s = append(*s, names...)
		}
		return err
	}
	var object struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(data, &object)
	*s = specialNames{object.Content}
	return err
}
