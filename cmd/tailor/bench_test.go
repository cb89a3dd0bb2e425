package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
	"tailor/internal/openai"
)

// benchCommand runs `tailor bench` in this process.
func benchCommand(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newRoot()
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"bench"}, args...))
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// benchReport is what --json wrote.
func benchReport(t *testing.T, args ...string) *bench.Report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	out, err := benchCommand(t.Context(), append(args, "--json", path)...)
	if err != nil {
		t.Fatalf("bench %v: %v\n%s", args, err, out)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := report.ReadJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var smallWorkloads = map[string][]string{
	"shared-prefix": {"--workload=shared-prefix", "--groups=3", "--prompts-per-group=3", "--prefix-tokens=64", "--suffix-tokens=16", "--output-tokens=2"},
	"chat":          {"--workload=chat", "--sessions=3", "--turns=3", "--prefix-tokens=48", "--suffix-tokens=16", "--output-tokens=6", "--think=1ms"},
}

// TestBenchIsRepeatable runs tiny workloads twice on real replicas, with a pool so small that
// it must evict: with one client all counts are the same.
func TestBenchIsRepeatable(t *testing.T) {
	for name, workload := range smallWorkloads {
		t.Run(name, func(t *testing.T) {
			policies := "round_robin,prefix_affinity"
			if testing.Short() {
				policies = "prefix_affinity"
			}
			r := benchReport(t, append([]string{"--replicas=2", "--policies=" + policies, "--kv-blocks=9", "--seed=7", "--repeat=2"}, workload...)...)
			if len(r.Groups) != strings.Count(policies, ",")+1 || r.Reach.Unit != bench.Tokens {
				t.Fatalf("%d groups, reach %+v", len(r.Groups), r.Reach)
			}
			for _, g := range r.Groups {
				x, y := &g.Runs[0], &g.Runs[1]
				key := func(r *bench.Run) string {
					return fmt.Sprint(r.Requests, r.Failed, r.PromptTokens, r.Computed, r.Reused, r.Decoded, r.Hits, r.Evicted, r.LoadMax, r.Lost, r.Prompts)
				}
				if key(x) != key(y) {
					t.Errorf("%s: %s\nthen %s", g.Policy, key(x), key(y))
				}
				if x.Reused == 0 || x.Failed != 0 || x.Evicted == 0 {
					t.Errorf("%s: %d reused, %d failed, %d evicted", g.Policy, x.Reused, x.Failed, x.Evicted)
				}
			}
		})
	}
}

// TestBenchReachIsWhatOneReplicaReuses checks the count of what could be reused against the
// real thing: one replica that never evicts.
func TestBenchReachIsWhatOneReplicaReuses(t *testing.T) {
	for name, workload := range smallWorkloads {
		if testing.Short() && name != "chat" {
			continue
		}
		r := benchReport(t, append([]string{"--replicas=1", "--policies=round_robin", "--kv-blocks=512"}, workload...)...)
		run := &r.Groups[0].Runs[0]
		if run.Evicted != 0 || run.Reused != r.Reach.Infinite || run.Hits != r.Reach.InfiniteHits || run.PromptTokens != r.Reach.Prompt {
			t.Errorf("%s: %d reused in %d requests of %d; reach %+v", name, run.Reused, run.Hits, run.PromptTokens, r.Reach)
		}
		if r.Reach.Bounds[0].LRU != r.Reach.Infinite || r.Reach.Bounds[0].Reused != r.Reach.Infinite {
			t.Errorf("%s: bounds %+v", name, r.Reach)
		}
	}
}

func TestBenchWithLoadAndChurn(t *testing.T) {
	r := benchReport(t, "--workload=churn", "--replicas=3", "--requests=16", "--prefixes=4", "--prefix-tokens=32", "--suffix-tokens=8", "--output-tokens=2",
		"--policies=prefix_affinity", "--kv-blocks=64", "--rate=400", "--slo-ttft=1m")
	for i := range r.Groups {
		run := &r.Groups[i].Runs[0]
		if run.Failed != 0 || run.PromptTokens != 16*40 || len(run.Load) != 4 || run.Goodput != run.Rate {
			t.Errorf("%s: failed %d %v, %d prompt tokens, %d replicas, goodput %v of %v", r.Groups[i].Policy, run.Failed, run.Errors,
				run.PromptTokens, len(run.Load), run.Goodput, run.Rate)
		}
	}
}

// TestBenchOfWhatRuns measures a fleet that somebody else has started, and changes nothing of it.
func TestBenchOfWhatRuns(t *testing.T) {
	url := startProcess(t, "up", "--listen=127.0.0.1:0", "--replicas=2", "--kv-blocks=64", "--policy=prefix_hash").url(t)
	workload := smallWorkloads["shared-prefix"]
	args := append([]string{"--target=" + url}, workload...)
	cold := benchReport(t, args...)
	g := &cold.Groups[0]
	if len(cold.Groups) != 1 || g.Policy != "prefix_hash" || g.KVBlocks != 64 || cold.Replicas != 2 || cold.Cold {
		t.Errorf("group %s with %d blocks, %d replicas, cold %v", g.Policy, g.KVBlocks, cold.Replicas, cold.Cold)
	}
	warm := benchReport(t, args...)
	if a, b := g.Runs[0].Computed, warm.Groups[0].Runs[0].Computed; b >= a || b == 0 {
		t.Errorf("%d computed, then %d with warm caches", a, b)
	}
	again := benchReport(t, append(args, "--reset")...)
	if a, b := g.Runs[0].Computed, again.Groups[0].Runs[0].Computed; a != b || !again.Cold {
		t.Errorf("%d computed, then %d after a reset", a, b)
	}
	greedy := 0.0
	resp, err := complete(t.Context(), url, "", openai.CompletionRequest{Model: "tailor-4m", Prompt: openai.TextPrompt("x"), Temperature: &greedy})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s", resp.Status)
	}
}

// TestBenchOfAnotherServer hides all of a replica but the OpenAI API.
func TestBenchOfAnotherServer(t *testing.T) {
	replica := startProcess(t, "serve", "--listen=127.0.0.1:0", "--kv-blocks=64").url(t)
	base, err := url.Parse(replica)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(base) },
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			for name := range r.Header {
				if strings.HasPrefix(name, "X-Tailor") {
					r.Header.Del(name)
				}
			}
			return nil
		},
	}
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models", "/v1/completions":
			// The answer may begin before the proxy has read the body's end, which net/http's
			// server would then cut off.
			_ = http.NewResponseController(w).EnableFullDuplex()
			proxy.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	defer foreign.Close()
	dir := t.TempDir()
	r := benchReport(t, append([]string{"--target=" + foreign.URL, "--html=" + filepath.Join(dir, "h"), "--csv=" + filepath.Join(dir, "c"),
		"--plots=" + filepath.Join(dir, "p")}, smallWorkloads["chat"]...)...)
	run := &r.Groups[0].Runs[0]
	// Whoever does not know the length of a block counts single tokens, and so a little more.
	if run.Failed != 0 || run.Reused == 0 || run.Reused > r.Reach.Infinite || run.PromptTokens != r.Reach.Prompt || r.Reach.Unit != bench.Tokens {
		t.Errorf("failed %d, reused %d, reach %+v", run.Failed, run.Reused, r.Reach)
	}
	for _, name := range []string{"prefill_cpu_seconds", "blocks_evicted", "lost", "load"} {
		if run.Known(name) {
			t.Errorf("%s: nobody counted it", name)
		}
	}
	if r.Verdict.Pays != bench.PaysUnclear || r.Groups[0].KVBlocks != 0 || r.Replicas != 0 {
		t.Errorf("verdict %+v, %d blocks, %d replicas", r.Verdict, r.Groups[0].KVBlocks, r.Replicas)
	}
}

// TestBenchInterrupted cancels once the first run is over; what ran is reported, files and
// all, and nothing is left behind.
func TestBenchInterrupted(t *testing.T) {
	before := runtime.NumGoroutine()
	dir := t.TempDir()
	path := filepath.Join(dir, "report.json")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Sessions think for an hour between their turns, so the second turn never comes.
	timer := time.AfterFunc(2*time.Second, cancel)
	defer timer.Stop()
	out, err := benchCommand(ctx, "--workload=chat", "--replicas=2", "--sessions=2", "--turns=2", "--prefix-tokens=32", "--suffix-tokens=8",
		"--output-tokens=2", "--think=1h", "--policies=round_robin,prefix_affinity", "--kv-blocks=64", "--json="+path)
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("err = %v\n%s", err, out)
	}
	if !strings.Contains(out, "interrupted") {
		t.Errorf("output:\n%s", out)
	}
	var r bench.Report
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil || !r.Interrupted {
		t.Errorf("report: %v, %s", err, data)
	}
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > before {
		all := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after:\n%s", before, now, all[:runtime.Stack(all, true)])
	}
}

func TestBenchMisuse(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "no", "file")
	for _, c := range []struct{ args, want string }{
		{"--workload best", `--workload "best": want one of lesson, `},
		{"--prefixes 7", "--prefixes 7"},
		{"--turns 3", "--turns 3: --workload lesson has no such setting"},
		{"--workload hot --think 1s", "--think 1s: --workload hot has no such setting"},
		{"--workload chat --exponent 1", "--exponent 1: --workload chat has no such setting"},
		{"--workload hot --requests 0", "--workload hot: "},
		{"--trace x --workload hot", "--trace x and --workload hot"},
		{"--trace " + nowhere, nowhere},
		{"--trace-format mooncake", "--trace-format mooncake: it is for --trace"},
		{"--trace x --trace-format csv", `--trace-format "csv"`},
		{"--policies best", `"best"`},
		{"--workload hot --policies recorded", "recorded"},
		{"--kv-blocks 64,0", "--kv-blocks 0"},
		{"--kv-blocks ,", "--kv-blocks"},
		{"--kv-blocks 64,33", "--kv-blocks 33: request "},
		{"--replicas 257", "--replicas 257"},
		{"--repeat 0", "--repeat 0"},
		{"--concurrency 0", "--concurrency 0"},
		{"--rate 0", "--rate 0"},
		{"--rate 5 --concurrency 2", "--concurrency 2, --rate 5"},
		{"--speed 1", "--speed 1: "},
		{"--rate 5 --max-in-flight 0", "--max-in-flight 0"},
		{"--slo-ttft -1s", "--slo-ttft -1s"},
		{"--block-size 0", "--block-size 0"},
		{"--reset", "--reset"},
		{"--target ftp://x", `--target "ftp://x"`},
		{"--target http://user:pass@127.0.0.1:1", "--target: want"},
		{"--target http://127.0.0.1:1 --policies random", "--policies"},
		{"--target http://127.0.0.1:1 --threads 2", "--threads 2: with --target"},
		{"--target http://127.0.0.1:1 --target-key-file " + nowhere, "--target-key-file"},
		{"compare a.json", "1 arguments"},
		{"more", `"more"`},
	} {
		var usage *usageError
		if out, err := benchCommand(t.Context(), strings.Fields(c.args)...); !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want misuse that says %q\n%s", c.args, err, c.want, out)
		}
	}
	// What a file held stays until there is something to put in its place.
	kept := filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(kept, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := benchCommand(t.Context(), "--json", kept, "--html", kept); err == nil || !strings.Contains(err.Error(), "another output") {
		t.Errorf("two outputs in one file: %v", err)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "before" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	// Files that cannot be written end it before anything has run.
	for _, flag := range []string{"--json", "--csv", "--html", "--plots"} {
		if testing.Short() && flag != "--json" {
			continue
		}
		path := nowhere
		if flag == "--plots" {
			path = filepath.Join(os.Args[0], "plots") // below a file
		}
		if out, err := benchCommand(t.Context(), flag, path); err == nil || out != "" || !strings.Contains(err.Error(), path) {
			t.Errorf("%s %s: %v\n%s", flag, path, err, out)
		}
	}
}

// A file as --print-config writes it names every option, and must mean the same as none.
func TestBenchTakesOptionsFromFileAndEnvironment(t *testing.T) {
	printed, err := benchCommand(t.Context(), "--print-config")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "options")
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TAILOR_WORKLOAD", "no-reuse")
	t.Setenv("TAILOR_REQUESTS", "3")
	t.Setenv("TAILOR_REPLICAS", "1")
	t.Setenv("TAILOR_POLICIES", "random")
	t.Setenv("TAILOR_KV_BLOCKS", "64")
	r := benchReport(t, "--config", file)
	if len(r.Groups) != 1 || r.Groups[0].KVBlocks != 64 || r.Groups[0].Runs[0].Requests != 3 {
		t.Errorf("groups %+v", r.Groups)
	}
}

func TestBenchHelpIsGrouped(t *testing.T) {
	out, err := benchCommand(t.Context(), "--help")
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, title := range []string{"\nWorkload:", "\nArrival:", "\nComparison:", "\nTarget:", "\nOutput:", "\nReplicas:", "\nWorkload 'engine':", "\nGlobal:"} {
		next := strings.Index(out, title)
		if next <= at {
			t.Errorf("%q is not where it should be:\n%s", title, out)
		}
		at = next
	}
	for _, flag := range []string{"--kv-blocks", "--trace", "--batch", "--eviction", "--config"} {
		if strings.Count(out, "      "+flag+" ") != 1 {
			t.Errorf("%s is there %d times:\n%s", flag, strings.Count(out, flag+" "), out)
		}
	}
	out, err = benchCommand(t.Context(), "schema")
	if err != nil || !strings.Contains(out, bench.SchemaVersion) || !json.Valid([]byte(out)) {
		t.Errorf("schema: %v\n%s", err, out)
	}
	out, err = benchCommand(t.Context(), "compare", "--help")
	if err != nil || strings.Contains(out, "--kv-blocks") || !strings.Contains(out, "compare A.json B.json") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNothingWorked(t *testing.T) {
	group := func(sent, failed int64) bench.Group {
		return bench.Group{Runs: []bench.Run{{Requests: sent, Failed: failed}}}
	}
	for _, c := range []struct {
		groups []bench.Group
		want   bool
	}{
		{nil, false},
		{[]bench.Group{group(0, 0)}, false},
		{[]bench.Group{group(3, 3), group(3, 3)}, true},
		{[]bench.Group{group(3, 3), group(3, 2)}, false},
	} {
		if got := nothingWorked(&bench.Report{Groups: c.groups}); got != c.want {
			t.Errorf("%+v: %v, want %v", c.groups, got, c.want)
		}
	}
}
