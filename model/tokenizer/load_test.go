package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// letters256 is a vocabulary's byte part as JSON members: ids 0 to 255 in byte order.
func letters256() string {
	var b strings.Builder
	for i := range 256 {
		if i > 0 {
			b.WriteByte(',')
		}
		letter, err := json.Marshal(string(letterOf(byte(i))))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%s:%d", letter, i)
	}
	return b.String()
}

// small is a tokenizer.json with three merges and one special token. The replacements are
// pairs of old and new text.
func small(t testing.TB, replacements ...string) fstest.MapFS {
	t.Helper()
	text := `{"added_tokens":[{"id":259,"content":"<end>","special":true}],
"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"post_processor":null,
"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{` + letters256() + `,"ab":256,"abc":257,"Ġa":258,"<end>":259},
"merges":["a b","ab c","Ġ a"]}}`
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(text, replacements[i]) {
			t.Fatalf("no %q in the file", replacements[i])
		}
		text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
	}
	return fstest.MapFS{"tokenizer.json": {Data: []byte(text)}}
}

func encode(t *testing.T, tok *Tokenizer, text string, special bool) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, special)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestLoadVariants(t *testing.T) {
	cases := []struct {
		name         string
		replacements []string
		text         string
		special      bool
		want         []int32
	}{
		{"plain", nil, "abcab a<end>", true, []int32{257, 256, 258, 259}},
		{"merges as pairs", []string{`["a b","ab c","Ġ a"]`, `[["a","b"],["ab","c"],["Ġ","a"]]`},
			"abcab a<end>", true, []int32{257, 256, 258, 259}},
		{"model without a type", []string{`"type":"BPE",`, ``}, "abc", false, []int32{257}},
		{"no decoder", []string{`"decoder":{"type":"ByteLevel"},`, ``}, "abc", false, []int32{257}},
		{"prefix space", []string{`"add_prefix_space":false`, `"add_prefix_space":true`},
			"a a<end>a", true, []int32{258, 258, 259, 258}},
		{"template without tokens", []string{`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","special_tokens":{}}`},
			"abc", true, []int32{257}},
		{"added token that is not special", []string{`"special":true`, `"special":false`}, "ab<end>", false, []int32{256, 259}},
		{"longest added token first", []string{`"added_tokens":[`, `"added_tokens":[{"id":260,"content":"<end><end>","special":true},`},
			"<end><end><end>", true, []int32{260, 259}},
		{"a special token is never merged", []string{`"content":"<end>"`, `"content":"abc"`, `"id":259`, `"id":257`},
			"abc", false, []int32{256, 'c'}},
		{"a gap in the ids", []string{`259`, `999`}, "<end>", true, []int32{999}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tok, err := Load(small(t, c.replacements...))
			if err != nil {
				t.Fatal(err)
			}
			if got := encode(t, tok, c.text, c.special); !slices.Equal(got, c.want) {
				t.Errorf("Encode(%q) = %v, want %v", c.text, got, c.want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	cases := []struct {
		name         string
		replacements []string
		is           error
		says         string
	}{
		{"not JSON", []string{`{"added_tokens"`, `["added_tokens"`}, ErrMalformed, "tokenizer.json"},
		{"huge id", []string{`"abc":257`, `"abc":2000000000`}, ErrMalformed, "2000000000"},
		{"negative id", []string{`"abc":257`, `"abc":-1`}, ErrMalformed, "-1"},
		{"fractional id", []string{`"abc":257`, `"abc":1.5`}, ErrMalformed, "1.5"},
		{"huge added id", []string{`"id":259`, `"id":2000000000`}, ErrMalformed, "2000000000"},
		{"one id twice", []string{`"abc":257`, `"abc":256`}, ErrMalformed, "256"},
		{"added token with two ids", []string{`"id":259`, `"id":300`}, ErrMalformed, "<end>"},
		{"added token takes an id", []string{`"content":"<end>"`, `"content":"<END>"`}, ErrMalformed, "<END>"},
		{"added token twice", []string{`"added_tokens":[`, `"added_tokens":[{"id":259,"content":"<end>"},`}, ErrMalformed, "twice"},
		{"two added tokens with one id", []string{`"added_tokens":[`, `"added_tokens":[{"id":300,"content":"x1"},{"id":300,"content":"x2"},`}, ErrMalformed, "300"},
		{"empty added token", []string{`"content":"<end>"`, `"content":""`}, ErrMalformed, "empty"},
		{"a byte as special token", []string{`"content":"<end>"`, `"content":"a"`, `"id":259`, `"id":97`}, ErrMalformed, "0x61"},
		{"merge of one part", []string{`"ab c"`, `"abc"`}, ErrMalformed, `"abc"`},
		{"merge of three parts", []string{`"ab c"`, `"a b c"`}, ErrMalformed, `"a b c"`},
		{"merge pair of three", []string{`"ab c"`, `["a","b","c"]`}, ErrMalformed, "3 parts"},
		{"merge that is a number", []string{`"ab c"`, `7`}, ErrMalformed, "number"},
		{"merge of an unknown token", []string{`"ab c"`, `"ax c"`}, ErrMalformed, `"ax"`},
		{"merge with an unknown token", []string{`"ab c"`, `"ab xx"`}, ErrMalformed, `"xx"`},
		{"merge into an unknown token", []string{`"ab c"`, `"ab d"`}, ErrMalformed, `"abd"`},
		{"WordPiece", []string{`"BPE"`, `"WordPiece"`}, ErrUnsupported, "WordPiece"},
		{"normalizer", []string{`"normalizer":null`, `"normalizer":{"type":"NFC"}`}, ErrUnsupported, "NFC"},
		{"other pre-tokenizer", []string{`"pre_tokenizer":{"type":"ByteLevel"`, `"pre_tokenizer":{"type":"Sequence"`}, ErrUnsupported, "pre_tokenizer"},
		{"no pre-tokenizer", []string{`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},`, ``}, ErrUnsupported, "pre_tokenizer"},
		{"no pattern", []string{`"add_prefix_space":false`, `"use_regex":false`}, ErrUnsupported, "use_regex"},
		{"other decoder", []string{`"decoder":{"type":"ByteLevel"}`, `"decoder":{"type":"Fuse"}`}, ErrUnsupported, "Fuse"},
		{"template with tokens", []string{`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","special_tokens":{"<s>":{}}}`}, ErrUnsupported, "adds tokens"},
		{"dropout", []string{`"type":"BPE"`, `"type":"BPE","dropout":0.1`}, ErrUnsupported, "dropout"},
		{"byte fallback", []string{`"type":"BPE"`, `"type":"BPE","byte_fallback":true`}, ErrUnsupported, "byte_fallback"},
		{"word suffix", []string{`"type":"BPE"`, `"type":"BPE","end_of_word_suffix":"</w>"`}, ErrUnsupported, "suffix"},
		{"stripping token", []string{`"content":"<end>"`, `"content":"<end>","lstrip":true`}, ErrUnsupported, "lstrip"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tok, err := Load(small(t, c.replacements...))
			if tok != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
		})
	}
}

func TestMissingByte(t *testing.T) {
	tok, err := Load(small(t, `"z":122,`, ``))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Encode("abz", false); !errors.Is(err, ErrNoToken) || !strings.Contains(err.Error(), "0x7A") {
		t.Errorf("got %v, want ErrNoToken for 0x7A", err)
	}
}

func TestLoadPair(t *testing.T) {
	vocab := `{` + letters256() + `,"ab":256,"abc":257,"Ġa":258,"<|endoftext|>":259,"<pad>":260}`
	files := fstest.MapFS{
		"vocab.json": {Data: []byte(vocab)},
		"merges.txt": {Data: []byte("#version: 0.2\r\na b\r\nab c\n\nĠ a")},
	}
	load := func() *Tokenizer {
		t.Helper()
		tok, err := Load(files)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	tok := load()
	if got, want := encode(t, tok, "abcab a<|endoftext|>", true), []int32{257, 256, 258, 259}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if tok.IsSpecial(260) || !tok.IsSpecial(259) {
		t.Errorf("special tokens: %v", tok.Special())
	}

	files["special_tokens_map.json"] = &fstest.MapFile{Data: []byte(
		`{"bos_token":"<|endoftext|>","pad_token":{"content":"<pad>","lstrip":false},"mask_token":null,
		"unk_token":"<not there>","additional_special_tokens":["<user>",{"content":"<bot>"}]}`)}
	files["added_tokens.json"] = &fstest.MapFile{Data: []byte(`{"<user>":261,"<bot>":262,"<plain>":263}`)}
	tok = load()
	if got, want := encode(t, tok, "<user><pad><plain><bot>", true), []int32{261, 260, 263, 262}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for id, want := range map[int32]bool{259: true, 260: true, 261: true, 262: true, 263: false} {
		if tok.IsSpecial(id) != want {
			t.Errorf("id %d special: %v, want %v", id, !want, want)
		}
	}

	files["merges.txt"].Data = []byte("#version: 0.2\na b\nabc\n")
	if _, err := Load(files); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("got %v, want ErrMalformed at line 3", err)
	}
	delete(files, "merges.txt")
	if _, err := Load(files); !errors.Is(err, ErrNoVocabulary) || !strings.Contains(err.Error(), "merges.txt") {
		t.Errorf("got %v, want ErrNoVocabulary for merges.txt", err)
	}
	if _, err := Load(fstest.MapFS{}); !errors.Is(err, ErrNoVocabulary) {
		t.Errorf("got %v, want ErrNoVocabulary", err)
	}
}

// The two formats of one vocabulary make one tokenizer.
func TestFormatsAgree(t *testing.T) {
	data, err := os.ReadFile(bundledDir + "/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct {
			Vocab  json.RawMessage
			Merges []string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	pair, err := Load(fstest.MapFS{
		"vocab.json": {Data: file.Model.Vocab},
		"merges.txt": {Data: []byte(strings.Join(file.Model.Merges, "\n"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkVectors(t, pair, readVectors(t, bundledDir+"/tokenizer_vectors.jsonl"))
	if one := bundled(t); pair.VocabSize() != one.VocabSize() || !pair.IsSpecial(4095) {
		t.Errorf("%d tokens, want %d; special %v", pair.VocabSize(), one.VocabSize(), pair.Special())
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(small(f)["tokenizer.json"].Data, "abc a<end>")
	f.Add(small(f, `["a b","ab c","Ġ a"]`, `[["a","b"]]`)["tokenizer.json"].Data, "ab")
	f.Add([]byte(`{"pre_tokenizer":{"type":"ByteLevel"},"model":{"vocab":{"a":0,"aa":1},"merges":["a a"]}}`), "aaa")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := Load(fstest.MapFS{"tokenizer.json": {Data: data}})
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		// A token takes more than two bytes of file, so no table outgrows it much.
		if tok.VocabSize() > len(data)+1024 {
			t.Fatalf("%d tokens from %d bytes", tok.VocabSize(), len(data))
		}
		ids, err := tok.Encode(text, true)
		if err != nil {
			if !errors.Is(err, ErrNoToken) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, id := range ids {
			if _, ok := tok.Bytes(id); !ok {
				t.Fatalf("%q: id %d has no bytes", text, id)
			}
		}
		held := 0
		checkStream(t, tok, ids, &held)
	})
}
