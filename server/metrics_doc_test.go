package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metricsText is what GET /metrics says after a completion.
func metricsText(t *testing.T, r *rig) string {
	t.Helper()
	r.complete("")
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// exported are the rows of the document that the replica's metrics make.
func exported(t *testing.T, text string) []string {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for name, f := range families {
		if !strings.HasPrefix(name, "vllm:") && !strings.HasPrefix(name, "tailor_") {
			continue
		}
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		delete(labels, "model_name")
		delete(labels, "engine")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()),
			strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp()))
	}
	slices.Sort(rows)
	return rows
}

func TestDocumentListsWhatIsExported(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	replica, router, found := strings.Cut(string(text), "## Router")
	if !found {
		t.Fatal("no section on the router")
	}
	var documented []string
	for line := range strings.Lines(replica) {
		if strings.HasPrefix(line, "| `") {
			documented = append(documented, strings.TrimSpace(line))
		}
	}
	slices.Sort(documented)
	want := exported(t, metricsText(t, newRig(t, says(spell(t, "a"), 0))))
	for _, row := range want {
		if !slices.Contains(documented, row) {
			t.Errorf("docs/metrics.md lacks\n%s", row)
		}
	}
	for _, row := range documented {
		if !slices.Contains(want, row) {
			t.Errorf("docs/metrics.md has, and the replica has not\n%s", row)
		}
	}
	// Many of the router's metrics are exported only once something has happened, so its
	// source is asked.
	name := regexp.MustCompile(`tailor_router_[a-z_]+`)
	inSource := map[string]bool{}
	files, err := filepath.Glob("../router/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			for _, n := range name.FindAllString(string(source), -1) {
				inSource[n] = true
			}
		}
	}
	inDocument := map[string]bool{}
	for _, n := range name.FindAllString(router, -1) {
		inDocument[n] = true
	}
	if !maps.Equal(inSource, inDocument) {
		t.Errorf("router: the document has %v, the source %v", slices.Sorted(maps.Keys(inDocument)), slices.Sorted(maps.Keys(inSource)))
	}
}

// promtool finds fault with nothing but vLLM's names: their colons, and a histogram called total.
func TestPromtoolAccepts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it comes with Debian's package prometheus")
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(metricsText(t, newRig(t, says(spell(t, "a"), 0))))
	var out bytes.Buffer
	check.Stdout, check.Stderr = &out, &out
	err = check.Run()
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "vllm:iteration_tokens_total ") {
			continue
		}
		if !strings.HasPrefix(line, "vllm:") || !strings.HasSuffix(line, "metric names should not contain ':'") {
			t.Errorf("%s", line)
		}
	}
	if check.ProcessState.ExitCode() != 3 { // 1: cannot be parsed; 3: there are remarks
		t.Errorf("%v: %s", err, out.String())
	}
}

// After mixed requests, whatever became of them, the histograms' counts are those of the
// counters.
func TestHistogramsAddUp(t *testing.T) {
	r, e := realRig(t, 128, withTemplate(t))
	requests := 500
	if testing.Short() {
		requests = 100
	}
	var all sync.WaitGroup
	for client := range 5 {
		all.Go(func() {
			for i := client; i < requests; i += 5 {
				mixedRequest(r, i)
			}
		})
	}
	all.Wait()
	r.http.Close() // handlers have ended, and written their books
	mustBeIdle(t, e)
	got := scrape(t, r.Server)
	ended := func(reason string) float64 { return got[`vllm:request_success_total{finished_reason="`+reason+`"}`] }
	good := ended("stop") + ended("length")
	for _, name := range []string{
		"vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds",
		"vllm:request_prompt_tokens", "vllm:request_generation_tokens",
	} {
		if got[name] != good {
			t.Errorf("%s counts %v, %v choices ended", name, got[name], good)
		}
	}
	withTokens := got["vllm:time_to_first_token_seconds"]
	if withTokens != got["vllm:request_prefill_time_seconds"] || withTokens != got["vllm:request_decode_time_seconds"] || withTokens >= good || withTokens == 0 {
		t.Errorf("%v first tokens, %v prefills, %v decodes of %v", withTokens, got["vllm:request_prefill_time_seconds"], got["vllm:request_decode_time_seconds"], good)
	}
	if ended("error") != 0 || ended("abort") == 0 || ended("stop") == 0 {
		t.Errorf("%v errors, %v aborts, %v stops", ended("error"), ended("abort"), ended("stop"))
	}
	answers := 0.0
	for name, value := range got {
		if strings.HasPrefix(name, "tailor_http_answers_total{") && strings.Contains(name, "completions") {
			answers += value
		}
	}
	if answers != float64(requests) {
		t.Errorf("%v answers to %d requests", answers, requests)
	}
	stats := e.Stats()
	if missed := got["vllm:prefix_cache_queries_total"]; missed != float64(stats.PromptComputed+stats.PromptReused) {
		t.Errorf("%v queries", missed)
	}
}

// mixedRequest sends request i: streams and not, chats, several choices, refusals, and
// clients that leave.
func mixedRequest(r *rig, i int) {
	prompt := fmt.Sprintf(`"prompt":"request %d wants a table","max_tokens":%d`, i%40, i%7)
	switch i % 8 {
	case 0, 1:
		r.do("POST", "/v1/completions", request(prompt))
	case 2:
		r.do("POST", "/v1/completions", request(prompt+`,"stream":true,"stop":"e"`))
	case 3:
		r.do("POST", "/v1/completions", request(prompt+`,"n":3,"stop":["a"," "]`))
	case 4:
		r.do("POST", "/v1/completions", request(`"temperature":9`))
	case 5:
		r.do("POST", "/v1/chat/completions", `{"model":"tailor-4m","messages":[{"role":"user","content":"hi"}],"max_tokens":4}`)
	case 6:
		r.do("POST", "/v1/completions", request(`"prompt":["a","b"],"best_of":2,"echo":true,"logprobs":1,"max_tokens":3`))
	case 7:
		res, err := r.http.Client().Post(r.http.URL+"/v1/completions", "", strings.NewReader(request(`"max_tokens":900,"ignore_eos":true,"stream":true`)))
		if err != nil {
			r.t.Error(err)
			return
		}
		_, _ = io.ReadFull(res.Body, make([]byte, 100))
		_ = res.Body.Close()
	}
}

// The dashboard asks for nothing that does not exist.
func TestDashboardAsksForDocumentedMetrics(t *testing.T) {
	dashboard, err := os.ReadFile("../docs/grafana/tailor.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(dashboard, &in); err != nil {
		t.Fatal(err)
	}
	name, seen := regexp.MustCompile(`(vllm:|tailor_)[a-z_0-9]+`), 0
	for _, panel := range in.Panels {
		for _, target := range panel.Targets {
			for _, n := range name.FindAllString(target.Expr, -1) {
				seen++
				if n = strings.TrimSuffix(n, "_bucket"); !bytes.Contains(document, []byte("| `"+n+"` |")) {
					t.Errorf("%s: there is no metric %s", panel.Title, n)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d metrics seen", seen)
	}
}
