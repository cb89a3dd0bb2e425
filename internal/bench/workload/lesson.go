package workload

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
)

//go:embed lesson/lesson-5.jsonl lesson/lesson-20.jsonl
var lessonFiles embed.FS

const (
	lessonReplicas = 16
	// Suffix i begins with token lessonSuffixBase+i, prefix p with token p; all other
	// tokens come from the ids between, so that no two suffixes share a first token and
	// prefixes part at once: a reuse that is found is a reuse that the lesson counts.
	lessonSuffixBase = 3000
	lessonPrefixes   = 100
)

// lessonRow is one line of the recorded workload.
type lessonRow struct {
	Request      int `json:"request"`
	PrefixID     int `json:"prefix_id"`
	PrefixTokens int `json:"prefix_tokens"`
	SuffixTokens int `json:"suffix_tokens"`
	RandomServer int `json:"random_server"`
}

// Lesson returns the 300 requests of the prefix-routing lesson with 5 or 20 distinct
// prefixes of 500 tokens: which prefix each request has, how long its suffix is and which
// of 16 servers random routing gave it, as the lesson's own script drew them, and what that
// script then counts for random routing and for hash(prefix) mod 16.
func Lesson(prefixes int) (*Workload, error) {
	published := map[int]map[string]Published{
		5:  {"recorded": {Computed: 52743, Hits: 224}, "prefix_hash": {Computed: 17243, Hits: 295}},
		20: {"recorded": {Computed: 110743, Hits: 108}, "prefix_hash": {Computed: 24743, Hits: 280}},
	}[prefixes]
	if published == nil {
		return nil, fmt.Errorf("the lesson has 5 or 20 prefixes, not %d", prefixes)
	}
	data, err := lessonFiles.ReadFile(fmt.Sprintf("lesson/lesson-%d.jsonl", prefixes))
	if err != nil {
		return nil, err
	}
	w := &Workload{
		Name:       "lesson",
		Parameters: []Parameter{{Name: "prefixes", Value: strconv.Itoa(prefixes)}},
		Replicas:   lessonReplicas,
		Published:  published,
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var row lessonRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("lesson row %d: %w", len(w.Requests), err)
		}
		w.Requests = append(w.Requests, Request{
			Tokens:    lessonPrompt(row),
			MaxTokens: 1,
			After:     -1,
			Session:   fmt.Sprintf("prefix-%d", row.PrefixID),
			Placement: row.RandomServer,
		})
	}
	return w, lines.Err()
}

// lessonPrompt spells one row as token ids, the same ones on every run and machine.
func lessonPrompt(row lessonRow) []int32 {
	tokens := make([]int32, 0, row.PrefixTokens+row.SuffixTokens)
	tokens = append(tokens, int32(row.PrefixID))
	tokens = appendFiller(tokens, row.PrefixTokens-1, uint64(row.PrefixID))
	tokens = append(tokens, int32(lessonSuffixBase+row.Request))
	return appendFiller(tokens, row.SuffixTokens-1, uint64(lessonPrefixes+row.Request))
}

// appendFiller appends n tokens drawn from the ids between the prefix and suffix markers;
// each stream is another sequence.
func appendFiller(tokens []int32, n int, stream uint64) []int32 {
	draw := rand.New(rand.NewPCG(1, stream))
	for range n {
		tokens = append(tokens, lessonPrefixes+draw.Int32N(lessonSuffixBase-lessonPrefixes))
	}
	return tokens
}
