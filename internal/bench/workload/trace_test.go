package workload_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"tailor/internal/bench/workload"
)

type reader = func(text string, cfg workload.TraceConfig) (*workload.Workload, error)

func mooncake(text string, cfg workload.TraceConfig) (*workload.Workload, error) {
	return workload.Mooncake(strings.NewReader(text), "m.jsonl", cfg)
}

func openAI(text string, cfg workload.TraceConfig) (*workload.Workload, error) {
	return workload.OpenAILog(strings.NewReader(text), "o.jsonl", cfg)
}

func agent(text string, cfg workload.TraceConfig) (*workload.Workload, error) {
	return workload.AgentTrace(strings.NewReader(text), "a.jsonl", cfg)
}

func must(t *testing.T, read reader, text string, cfg workload.TraceConfig) *workload.Workload {
	t.Helper()
	w, err := read(text, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMooncakeScales(t *testing.T) {
	w := must(t, mooncake, `{"timestamp": 5000, "input_length": 1024, "output_length": 33, "hash_ids": [0, 7]}
{"timestamp": 5250, "input_length": 1100, "output_length": 0, "hash_ids": [0, 7, 4102]}

{"timestamp": 7000, "input_length": 513, "output_length": 100000, "hash_ids": [0, 4102]}
{"timestamp": 7000, "input_length": 40000, "output_length": 512, "hash_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78]}
`, workload.DefaultTrace())
	if !w.Timed || w.Name != "mooncake" || len(w.Requests) != 4 {
		t.Fatalf("%q: timed %v, %d requests", w.Name, w.Timed, len(w.Requests))
	}
	for i, want := range []struct {
		at             time.Duration
		prompt, output int
	}{{0, 32, 2}, {250 * time.Millisecond, 35, 1}, {2 * time.Second, 17, 16}, {2 * time.Second, 1008, 16}} {
		r := w.Requests[i]
		if r.At != want.at || len(r.Tokens) != want.prompt || r.MaxTokens != want.output || r.After != -1 || r.Placement != -1 {
			t.Errorf("request %d: at %v, %d tokens, %d to generate, after %d, placed %d; want %+v",
				i, r.At, len(r.Tokens), r.MaxTokens, r.After, r.Placement, want)
		}
	}
	a, b, c := w.Requests[0].Tokens, w.Requests[1].Tokens, w.Requests[2].Tokens
	if !reflect.DeepEqual(a, b[:32]) {
		t.Error("equal ids spell different tokens")
	}
	// 7 and 4102 are 4095 apart: they begin with the same token and part at the second.
	if c[16] != a[16] || b[32] != c[16] || b[33] == a[17] {
		t.Errorf("id 7 begins %v, id 4102 %v", a[16:18], b[32:34])
	}
}

func TestMooncakeSpellsManyIdsApart(t *testing.T) {
	cfg := workload.DefaultTrace()
	cfg.Target = workload.Target{Vocab: 12, AvoidLow: 1, AvoidHigh: 1, Context: 64}
	cfg.ScaleBlocks = 4
	var text strings.Builder
	for _, id := range []string{"0", "1", "10", "99", "100", "9999"} {
		text.WriteString(`{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[` + id + "]}\n")
	}
	seen := map[[4]int32]int{}
	for i, r := range must(t, mooncake, text.String(), cfg).Requests {
		key := [4]int32(r.Tokens)
		if j, ok := seen[key]; ok {
			t.Errorf("rows %d and %d are both %v", j, i, key)
		}
		seen[key] = i
	}
	_, err := mooncake(`{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[10000]}`, cfg)
	if err == nil || !strings.Contains(err.Error(), "hash_ids: [0] is 10000") {
		t.Errorf("an id of 5 digits in 4 tokens: %v", err)
	}
}

func TestOpenAILogForms(t *testing.T) {
	w := must(t, openAI, `{"model": "m", "messages": [{"role": "user", "content": "<b>"}], "max_tokens": 9}
{"prompt": [1, 2], "max_tokens": 3}
{"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{}], "model": "m"}}
{"url": "https://host/v1/completions?api-version=1", "body": { "prompt": "Hi" }}
`, workload.DefaultTrace())
	if w.Timed {
		t.Error("timed, without times")
	}
	for i, want := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model": "m", "messages": [{"role": "user", "content": "<b>"}], "max_tokens": 9}`},
		{"/v1/completions", `{"prompt": [1, 2], "max_tokens": 3}`},
		{"/v1/chat/completions", `{"messages": [{}], "model": "m"}`},
		{"/v1/completions", `{ "prompt": "Hi" }`},
	} {
		r := w.Requests[i]
		if r.Path != want.path || string(r.Body) != want.body || r.MaxTokens != 16 || r.At != 0 || r.After != -1 {
			t.Errorf("request %d: %s %s %+v", i, r.Path, r.Body, r)
		}
	}
}

func TestOpenAILogTimes(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want time.Duration
	}{
		{"0", "1.5", 1500 * time.Millisecond},
		{"1760587752", "1760587752.25", 250 * time.Millisecond},
		{"1760587752017", "1760587752019", 2 * time.Millisecond},
		{"1760587752017385", "1760587752017390", 5 * time.Microsecond},
		{"1760587752017385001", "1760587752017385002", time.Nanosecond},
		{`"2026-11-30T18:32:00Z"`, `"2026-11-30T19:32:00.5+01:00"`, 500 * time.Millisecond},
		{"1e3", "1.0005e3", 500 * time.Millisecond},
		{"0", "1760587752.999999999", 1760587752*time.Second + 999999999},
		{"5.5e-1", "1e0", 450 * time.Millisecond},
	} {
		w := must(t, openAI, `{"prompt": "late", "timestamp": `+c.b+`}
{"timestamp": `+c.a+`, "body": {"prompt": "early"}}
`, workload.DefaultTrace())
		if !w.Timed || w.Requests[0].At != 0 || w.Requests[1].At != c.want {
			t.Errorf("%s and %s: %v and %v, want 0 and %v", c.a, c.b, w.Requests[0].At, w.Requests[1].At, c.want)
		}
		if body := string(w.Requests[1].Body); body != `{"prompt":"late"}` {
			t.Errorf("the body with a timestamp became %s", body)
		}
	}
}

func TestAgentTraceSortsAndCuts(t *testing.T) {
	const text = `{"timestamp": 2000000, "input": "one two three four", "output": "", "session_id": "s"}
{"timestamp": 1000000, "input": "one", "output": "a b c d e f", "session_id": "r"}
{"timestamp": 2000000, "input": "éé éé éé éé", "output": "a b", "session_id": "q"}
`
	cfg := workload.DefaultTrace()
	cfg.Target.Context, cfg.MaxOutput = 7, 4
	w := must(t, agent, text, cfg)
	if w.Requests[1].Text != "one two three four" || w.Requests[0].MaxTokens != 3 || w.Requests[1].MaxTokens != 1 {
		t.Errorf("without a count: %+v", w.Requests)
	}
	cfg.Count = func(s string) int { return len(strings.Fields(s)) }
	w = must(t, agent, text, cfg)
	type r struct {
		at     time.Duration
		text   string
		output int
		of     string
	}
	var got []r
	for _, q := range w.Requests {
		got = append(got, r{q.At, q.Text, q.MaxTokens, q.Session})
	}
	if want := []r{{0, "one", 4, "r"}, {time.Second, "one two three ", 1, "s"}, {time.Second, "éé éé éé ", 2, "q"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if last := w.Parameters[len(w.Parameters)-1]; last != (workload.Parameter{Name: "prompts_cut", Value: "2"}) {
		t.Errorf("last parameter %v", last)
	}
}

func TestLimitTakesTheEarliest(t *testing.T) {
	var text strings.Builder
	for _, second := range []string{"9", "3", "5", "8", "1", "7", "2", "6", "4"} {
		text.WriteString(`{"timestamp": ` + second + `000000, "input": "` + second + `", "output": "", "session_id": ""}` + "\n")
	}
	for limit, want := range map[int]string{0: "123456789", 1: "1", 2: "12", 4: "1234", 9: "123456789", 50: "123456789"} {
		cfg := workload.DefaultTrace()
		cfg.Limit = limit
		got := ""
		for _, r := range must(t, agent, text.String(), cfg).Requests {
			got += r.Text
		}
		if got != want {
			t.Errorf("limit %d: %s, want %s", limit, got, want)
		}
	}
	// What comes after the limit is not even read where the order is known.
	cfg := workload.DefaultTrace()
	cfg.Limit = 1
	for _, w := range []*workload.Workload{
		must(t, openAI, "{\"prompt\": \"x\"}\nbroken", cfg),
		must(t, mooncake, "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\nbroken", cfg),
	} {
		if len(w.Requests) != 1 {
			t.Errorf("%s: limit 1: %d requests", w.Name, len(w.Requests))
		}
	}
}

func TestTracesRefuse(t *testing.T) {
	const moon = `{"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}` + "\n"
	for _, c := range []struct {
		read reader
		text string
		line int
		says string
	}{
		{mooncake, "", 0, "m.jsonl: has no requests"},
		{mooncake, "\n \n", 0, "m.jsonl: has no requests"},
		{mooncake, moon + "{", 2, "m.jsonl:2: not a JSON object"},
		{mooncake, moon + "null", 2, "m.jsonl:2: null"},
		{mooncake, moon + "[]", 2, "m.jsonl:2: not a JSON object"},
		{mooncake, moon + "{} {}", 2, "m.jsonl:2: not a JSON object"},
		{mooncake, "{\"\xff\": 1}", 1, "m.jsonl:1: not UTF-8"},
		{mooncake, `{"timestamp": 5}`, 1, "m.jsonl:1: input_length: missing"},
		{mooncake, `{"Timestamp": 5}`, 1, "m.jsonl:1: timestamp: missing"},
		{mooncake, `{"timestamp": null}`, 1, "m.jsonl:1: timestamp: missing"},
		{mooncake, `{"timestamp": "5"}`, 1, `m.jsonl:1: timestamp: is "5", want a number`},
		{mooncake, `{"timestamp": -1}`, 1, "m.jsonl:1: timestamp: is -1"},
		{mooncake, `{"timestamp": 1e300}`, 1, "m.jsonl:1: timestamp: is 1e300"},
		{mooncake, `{"timestamp": 9223372036854775807}`, 1, "m.jsonl:1: timestamp: is 9223372036854775807"},
		{mooncake, strings.Replace(moon, "600", "0", 1), 1, "m.jsonl:1: input_length: is 0, want 1"},
		{mooncake, strings.Replace(moon, "600", "600.5", 1), 1, "m.jsonl:1: input_length: "},
		{mooncake, strings.Replace(moon, "600", "3000000000", 1), 1, "m.jsonl:1: input_length: is 3000000000"},
		{mooncake, strings.Replace(moon, "600", "1600", 1), 1, "m.jsonl:1: hash_ids: has 2 ids, want 4 for input_length 1600"},
		{mooncake, strings.Replace(moon, "[0, 1]", "[0, null]", 1), 1, "m.jsonl:1: hash_ids: [1] is not a number"},
		{mooncake, strings.Replace(moon, "[0, 1]", "[-1, 1]", 1), 1, "m.jsonl:1: hash_ids: [0] is not a number"},
		{mooncake, strings.Replace(moon, "[0, 1]", `["0", 1]`, 1), 1, "m.jsonl:1: hash_ids: "},
		{mooncake, strings.Replace(moon, `"output_length": 1`, `"output_length": -1`, 1), 1, "m.jsonl:1: output_length: is -1"},
		{mooncake, moon + strings.Replace(moon, "5", "4", 1), 2, "m.jsonl:2: timestamp: is 4, earlier"},
		{mooncake, moon + strings.Repeat(" ", 16<<20) + moon, 2, "m.jsonl:2: longer than 16777216 bytes"},

		{openAI, `{"model": "m"}`, 1, "o.jsonl:1: prompt: missing, and so are messages, among the fields: model"},
		{openAI, `{"prompt": "a", "messages": []}`, 1, "o.jsonl:1: prompt: beside messages"},
		{openAI, `{"messages": []}`, 1, "o.jsonl:1: messages: is empty"},
		{openAI, `{"messages": "a"}`, 1, "o.jsonl:1: messages: "},
		{openAI, `{"body": "a"}`, 1, "o.jsonl:1: body: "},
		{openAI, `{"body": {"input": "a"}}`, 1, "o.jsonl:1: prompt: missing, and so are messages, among the fields: input"},
		{openAI, `{"body": {"prompt": "a"}, "method": "GET"}`, 1, `o.jsonl:1: method: is "GET"`},
		{openAI, `{"body": {"prompt": "a"}, "method": 1}`, 1, "o.jsonl:1: method: "},
		{openAI, `{"body": {"prompt": "a"}, "url": "/v1/embeddings"}`, 1, `o.jsonl:1: url: is "/v1/embeddings"`},
		{openAI, `{"body": {"prompt": "a"}, "url": "/v1/chat/completions"}`, 1, "o.jsonl:1: url: is"},
		{openAI, `{"body": {"messages": [1]}, "url": "/v1/completions"}`, 1, "o.jsonl:1: url: is"},
		{openAI, "{\"prompt\": \"a\", \"timestamp\": 1}\n{\"prompt\": \"a\"}", 2, "o.jsonl:2: timestamp: some rows"},
		{openAI, "{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"timestamp\": 1}", 2, "o.jsonl:2: timestamp: some rows"},
		{openAI, `{"prompt": "a", "timestamp": "yesterday"}`, 1, "o.jsonl:1: timestamp: "},
		{openAI, `{"prompt": "a", "timestamp": "1822-01-01T00:00:00Z"}`, 1, "o.jsonl:1: timestamp: is 1822"},
		{openAI, `{"prompt": "a", "timestamp": [1]}`, 1, "o.jsonl:1: timestamp: "},
		{openAI, `{"prompt": "a", "timestamp": -1}`, 1, "o.jsonl:1: timestamp: is -1"},

		{agent, `{"timestamp": 1}`, 1, "a.jsonl:1: input: missing"},
		{agent, `{"timestamp": 1, "input": 5}`, 1, "a.jsonl:1: input: "},
		{agent, `{"timestamp": 1, "input": "", "output": "", "session_id": ""}`, 1, "a.jsonl:1: input: is empty"},
		{agent, `{"timestamp": 1, "input": "x"}`, 1, "a.jsonl:1: output: missing"},
		{agent, `{"timestamp": 1, "input": "x", "output": "x"}`, 1, "a.jsonl:1: session_id: missing"},
	} {
		_, err := c.read(c.text, workload.DefaultTrace())
		short := c.text[:min(len(c.text), 90)]
		var at *workload.TraceError
		if !errors.As(err, &at) {
			t.Errorf("%q: error %v, want one that says %q", short, err, c.says)
			continue
		}
		if at.Line != c.line || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%q: %q of line %d, want %q of line %d", short, err, at.Line, c.says, c.line)
		}
	}
}

func TestTraceConfigRefuses(t *testing.T) {
	for says, change := range map[string]func(*workload.TraceConfig){
		"limit is -1":          func(c *workload.TraceConfig) { c.Limit = -1 },
		"max_output is 0":      func(c *workload.TraceConfig) { c.MaxOutput = 0 },
		"max_output is 1024":   func(c *workload.TraceConfig) { c.MaxOutput = 1024 },
		"scale_blocks is 0":    func(c *workload.TraceConfig) { c.ScaleBlocks = 0 },
		"scale_blocks is 1000": func(c *workload.TraceConfig) { c.ScaleBlocks = 1000 },
		"vocab is 0":           func(c *workload.TraceConfig) { c.Target.Vocab = 0 },
	} {
		cfg := workload.DefaultTrace()
		change(&cfg)
		if _, err := mooncake("", cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func TestOpenTraceDetectsTheFormat(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	agentRow := func(at, input string) string {
		return `{"timestamp": ` + at + `, "input": "` + input + `", "output": "", "session_id": ""}` + "\n"
	}
	write("agents/b.jsonl", agentRow("2", "two")+agentRow("4", "four"))
	write("agents/a.jsonl", "")
	write("agents/c.jsonl", agentRow("3", "three")+agentRow("1", "one"))
	write("agents/LICENSE", "not a trace")
	for path, want := range map[string]struct {
		name     string
		requests int
	}{
		write("m", `{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}`): {"mooncake", 1},
		write("o", `{"prompt": "x"}`):           {"openai", 1},
		write("p", `{"body": {"prompt": "x"}}`): {"openai", 1},
		write("q", `{"messages": [{}]}`):        {"openai", 1},
		filepath.Join(dir, "agents"):            {"lmcache", 4},
	} {
		w, err := workload.OpenTrace(path, workload.DefaultTrace())
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if w.Name != want.name || len(w.Requests) != want.requests || w.Parameters[0].Value != filepath.Base(path) {
			t.Errorf("%s: %s with %d requests, %v; want %v", path, w.Name, len(w.Requests), w.Parameters, want)
		}
		if w.Name == "lmcache" && w.Requests[0].Text+w.Requests[3].Text != "onefour" {
			t.Errorf("not sorted: %+v", w.Requests)
		}
	}
	if _, err := workload.OpenTrace(write("x", "\n{\"time\": 3, \"size\": 4}"), workload.DefaultTrace()); err == nil ||
		!strings.Contains(err.Error(), "x:2: has none of") || !strings.Contains(err.Error(), "size, time") {
		t.Errorf("unknown fields: %v", err)
	}
	if _, err := workload.OpenTrace(filepath.Join(dir, "absent"), workload.DefaultTrace()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	os.Mkdir(filepath.Join(dir, "empty"), 0o755)
	if _, err := workload.OpenTrace(filepath.Join(dir, "empty"), workload.DefaultTrace()); err == nil {
		t.Error("no files in the folder, and no error")
	}
	cfg := workload.DefaultTrace()
	cfg.Format = "pcap"
	if _, err := workload.OpenTrace(filepath.Join(dir, "m"), cfg); err == nil || !strings.Contains(err.Error(), `format is "pcap"`) {
		t.Errorf("unknown format: %v", err)
	}
}
