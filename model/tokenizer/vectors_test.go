package tokenizer

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
)

const (
	bundledDir = "../../weights/bundled"
	// GPT-2's own vocabulary is not part of the project; the tests that need it skip
	// where it is absent.
	gpt2Dir = "../../../shared/data/tokenizer"
)

func bundled(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := Load(os.DirFS(bundledDir))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func gpt2(t testing.TB) *Tokenizer {
	t.Helper()
	if _, err := os.Stat(gpt2Dir); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("GPT-2's vocabulary is not here (%s): it is not the project's to ship", gpt2Dir)
	}
	tok, err := Load(os.DirFS(gpt2Dir))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type vector struct {
	Source string
	Text   string
	IDs    []int32
}

func readVectors(t *testing.T, name string) []vector {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []vector
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func checkVectors(t *testing.T, tok *Tokenizer, vectors []vector) {
	t.Helper()
	for _, v := range vectors {
		got, err := tok.Encode(v.Text, false)
		if err != nil {
			t.Errorf("Encode(%q): %v", v.Text, err)
			continue
		}
		if !slices.Equal(got, v.IDs) {
			t.Errorf("Encode(%q) = %v, want %v (%s)", v.Text, got, v.IDs, v.Source)
		}
		if text := tok.Decode(v.IDs); text != v.Text {
			t.Errorf("Decode(%v) = %q, want %q (%s)", v.IDs, text, v.Text, v.Source)
		}
	}
}

// The ids are from an encoder in Python that trained the bundled vocabulary.
func TestBundledVectors(t *testing.T) {
	vectors := readVectors(t, bundledDir+"/tokenizer_vectors.jsonl")
	if len(vectors) != 53 {
		t.Fatalf("%d vectors, want 53", len(vectors))
	}
	checkVectors(t, bundled(t), vectors)
}

// The ids are from five other projects' test suites.
func TestGPT2Vectors(t *testing.T) {
	tok := gpt2(t)
	vectors := readVectors(t, gpt2Dir+"/gpt2_vectors.jsonl")
	if len(vectors) != 140 {
		t.Fatalf("%d vectors, want 140", len(vectors))
	}
	checkVectors(t, tok, vectors)
}

func TestBundledGolden(t *testing.T) {
	data, err := os.ReadFile(bundledDir + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden []struct {
		Text       string  `json:"text"`
		IDs        []int32 `json:"ids"`
		GreedyIDs  []int32 `json:"greedy_ids"`
		GreedyText string  `json:"greedy_text"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden) == 0 {
		t.Fatal("golden.json is empty")
	}
	tok := bundled(t)
	for _, g := range golden {
		checkVectors(t, tok, []vector{{"golden.json", g.Text, g.IDs}})
		// The golden text leaves the end-of-text token out.
		plain := slices.DeleteFunc(slices.Clone(g.GreedyIDs), tok.IsSpecial)
		if got := tok.Decode(plain); got != g.GreedyText {
			t.Errorf("greedy ids of %q decode to %q, want %q", g.Text, got, g.GreedyText)
		}
	}
}
