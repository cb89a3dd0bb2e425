package workload_test

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"tailor/internal/bench/workload"
	"tailor/model/tokenizer"
)

const (
	mooncakeFile = "../../../../shared/data/traces/mooncake/conversation_trace.jsonl"
	taubenchDir  = "../../../../shared/data/traces/taubench"
	gpt2Dir      = "../../../../shared/data/tokenizer"
)

// present skips the test where the data, which is not the project's to ship, is not beside it.
func present(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("others' data, not the project's to ship: %v", err)
		}
	}
}

type hashRow struct {
	Input  int   `json:"input_length"`
	Hashes []int `json:"hash_ids"`
}

func mooncakeRows(t *testing.T) (rows []hashRow) {
	f, err := os.Open(mooncakeFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r hashRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// blockLevel counts by hashes, as whoever published figures of the trace did: a block is
// reused that any earlier prompt had, full or not and the last one too.
func blockLevel(rows []hashRow, size int) float64 {
	seen := map[int]bool{}
	prompt, reused := 0, 0
	for _, r := range rows {
		n := 0
		for n < len(r.Hashes) && seen[r.Hashes[n]] {
			n++
		}
		prompt += r.Input
		reused += min(n*size, r.Input)
		for _, h := range r.Hashes {
			seen[h] = true
		}
	}
	return float64(reused) / float64(prompt)
}

// engineLevel counts by hashes what an engine does that keeps full blocks only and always
// computes the last token.
func engineLevel(rows []hashRow, size int) (reused int64) {
	seen := map[int]bool{}
	for _, r := range rows {
		n := 0
		for n < len(r.Hashes) && seen[r.Hashes[n]] {
			n++
		}
		reused += int64(min(n*size, r.Input-1))
		for _, h := range r.Hashes[:r.Input/size] {
			seen[h] = true
		}
	}
	return reused
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: %.5f, want %v", what, got, want)
	}
}

// TestMooncakeReach compares the workload with counts that were made from the file by
// other programs than this, and with one made here from its hashes.
func TestMooncakeReach(t *testing.T) {
	present(t, mooncakeFile)
	rows := mooncakeRows(t)
	near(t, "block level", blockLevel(rows, 512), 0.374, 0.0005)
	near(t, "block level, first 1000", blockLevel(rows[:1000], 512), 0.216, 0.0005)

	total := 0
	scaled := make([]hashRow, len(rows))
	for i, r := range rows {
		n := min((r.Input+31)/32, 1008)
		scaled[i] = hashRow{Input: n, Hashes: r.Hashes[:(n+15)/16]}
		total += n
	}
	near(t, "mean prompt", float64(total)/float64(len(rows)), 322, 0.05)
	near(t, "scaled", blockLevel(scaled, 16), 0.383, 0.0005)
	near(t, "scaled, first 4000", blockLevel(scaled[:4000], 16), 0.342, 0.0005)

	cfg := workload.DefaultTrace()
	if testing.Short() {
		cfg.Limit = 2000
		scaled = scaled[:2000]
	}
	w, err := workload.OpenTrace(mooncakeFile, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if w.Name != "mooncake" || len(w.Requests) != len(scaled) {
		t.Fatalf("%s: %d requests of %d", w.Name, len(w.Requests), len(scaled))
	}
	sent, err := w.Sent(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	prompts := slices.Clone(sent)
	for i, s := range sent {
		if len(s.Prompt) != scaled[i].Input {
			t.Fatalf("request %d: %d tokens, want %d", i, len(s.Prompt), scaled[i].Input)
		}
		prompts[i].Output = nil
	}
	for _, n := range []int{1000, 2000, len(sent)} {
		got, want := workload.Infinite(prompts[:n], 16), engineLevel(scaled[:n], 16)
		// Siblings that begin alike give a request one token more, at most.
		if got.Reused < want || got.Reused > want+int64(n) {
			t.Errorf("first %d: %d tokens reused, want %d or up to %d more", n, got.Reused, want, n)
		}
		// Answers complete blocks that a prompt leaves open.
		with := workload.Infinite(sent[:n], 16)
		if with.Reused < got.Reused || with.Reused > got.Reused+int64(15*n) {
			t.Errorf("first %d: %d tokens reused with answers, %d without", n, with.Reused, got.Reused)
		}
		t.Logf("first %d: %.4f reachable (%.4f by hashes, %.4f with answers), %d blocks", n,
			float64(got.Reused)/float64(got.Prompt), float64(want)/float64(got.Prompt), float64(with.Reused)/float64(got.Prompt), with.Blocks)
	}
	all := workload.Infinite(sent[:2000], 16)
	for _, blocks := range []int{1000, 4000, 40000} {
		lru, bound := workload.LRU(sent[:2000], 16, blocks), workload.Bound(sent[:2000], 16, blocks)
		t.Logf("first 2000, %d blocks: LRU %.4f, bound %.4f", blocks, float64(lru.Reused)/float64(lru.Prompt), float64(bound)/float64(lru.Prompt))
		if lru.Reused > bound || bound > all.Reused {
			t.Errorf("%d blocks: LRU %d, bound %d, infinite %d: want them ascending", blocks, lru.Reused, bound, all.Reused)
		}
	}
	if lru := workload.LRU(sent[:2000], 16, all.Blocks+64); lru != all {
		t.Errorf("LRU with ample blocks %+v, infinite %+v", lru, all)
	}
}

// TestTaubenchReach compares with an independent count with GPT-2's tokenizer.
func TestTaubenchReach(t *testing.T) {
	present(t, taubenchDir, gpt2Dir)
	gpt2, err := tokenizer.Load(os.DirFS(gpt2Dir))
	if err != nil {
		t.Fatal(err)
	}
	w, err := workload.OpenTrace(taubenchDir, workload.DefaultTrace())
	if err != nil {
		t.Fatal(err)
	}
	sent, err := w.Sent(func(r *workload.Request) ([]int32, error) { return gpt2.Encode(r.Text, false) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	sessions := map[string]bool{}
	var lengths []int
	total, blocks := 0, 0
	for i, s := range sent {
		sessions[w.Requests[i].Session] = true
		lengths = append(lengths, len(s.Prompt))
		total += len(s.Prompt)
		sent[i].Output = nil
		// The count at 16-token blocks: all whole blocks that an earlier prompt has too, even
		// where that is all of it.
		longest := 0
		for _, before := range sent[:i] {
			n := 0
			for n < len(s.Prompt) && n < len(before.Prompt) && s.Prompt[n] == before.Prompt[n] {
				n++
			}
			longest = max(longest, n)
		}
		blocks += longest / 16 * 16
	}
	slices.Sort(lengths)
	if len(sent) != 471 || len(sessions) != 24 || total != 81886 || lengths[235] != 108 || lengths[470] != 1298 {
		t.Errorf("%d requests in %d sessions, %d tokens, p50 %d, max %d; want 471, 24, 81886, 108, 1298",
			len(sent), len(sessions), total, lengths[235], lengths[470])
	}
	near(t, "16-token blocks", float64(blocks)/float64(total), 0.821, 0.0005)
	// At token level every token is kept and found by itself: blocks of one.
	byToken := workload.Infinite(sent, 1)
	near(t, "token level", float64(byToken.Reused)/float64(byToken.Prompt), 0.862, 0.0005)
	// The engine finds more than whole blocks, since it copies rows, and less than all
	// tokens, since it keeps whole blocks.
	engine := workload.Infinite(sent, 16)
	if engine.Reused >= byToken.Reused || engine.Reused <= int64(blocks)-int64(16*len(sent)) {
		t.Errorf("engine %d, token level %d, blocks %d", engine.Reused, byToken.Reused, blocks)
	}
	t.Logf("engine's rule: %.4f in %d blocks", float64(engine.Reused)/float64(engine.Prompt), engine.Blocks)
}

func TestTaubenchCutToTheContext(t *testing.T) {
	present(t, taubenchDir, gpt2Dir)
	gpt2, err := tokenizer.Load(os.DirFS(gpt2Dir))
	if err != nil {
		t.Fatal(err)
	}
	cfg := workload.DefaultTrace()
	cfg.Count = func(text string) int {
		ids, err := gpt2.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		return len(ids)
	}
	w, err := workload.OpenTrace(taubenchDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	longest := 0
	for _, r := range w.Requests {
		longest = max(longest, cfg.Count(r.Text))
	}
	if longest > 1008 || longest < 1000 {
		t.Errorf("the longest prompt has %d tokens, want 1008 or a few less", longest)
	}
	t.Log(w.Parameters)
}
