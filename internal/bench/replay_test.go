package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"tailor/internal/openai"
)

// fakeReplica answers like a replica whose cache never forgets and counts like one.
type fakeReplica struct {
	id     string
	mu     sync.Mutex
	seen   [][]int32
	counts counters
	// fail, if set, is sent instead of an answer.
	fail string
}

func (f *fakeReplica) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/metrics" {
		fmt.Fprintf(w, `# TYPE tailor_tokens_total counter
tailor_tokens_total{mode="prefill_compute"} %v
tailor_tokens_total{mode="prefill_cache"} %v
tailor_tokens_total{mode="decode"} %v
# TYPE tailor_requests_admitted_total counter
tailor_requests_admitted_total %v
# TYPE tailor_request_hits_total counter
tailor_request_hits_total %v
# TYPE tailor_prefill_cpu_seconds_total counter
tailor_prefill_cpu_seconds_total %v
# TYPE tailor_evicted_blocks_total counter
tailor_evicted_blocks_total 0
`, f.counts.computed, f.counts.reused, f.counts.decoded, f.counts.admitted, f.counts.hits, f.counts.prefillCPU)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req, err := openai.ParseCompletion(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tokens := req.Prompt.Tokens[0]
	cached := 0
	for _, earlier := range f.seen {
		n := 0
		for n < len(tokens)-1 && n < len(earlier) && earlier[n] == tokens[n] {
			n++
		}
		cached = max(cached, n)
	}
	f.seen = append(f.seen, tokens)
	f.counts.admitted++
	f.counts.computed += float64(len(tokens) - cached)
	f.counts.reused += float64(cached)
	f.counts.decoded++
	f.counts.prefillCPU += 0.5
	if cached > 0 {
		f.counts.hits++
	}
	if f.fail != "" {
		fmt.Fprintf(w, "data: %s\n\n", f.fail)
		return
	}
	for _, chunk := range []any{
		openai.Chunk{Object: openai.ObjectCompletion, Choices: []openai.Choice{{Text: "x"}}, IncludeUsage: true},
		openai.Chunk{Object: openai.ObjectCompletion, Usage: openai.NewUsage(len(tokens), 1, cached), IncludeUsage: true},
	} {
		data, err := json.Marshal(chunk)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// fakeCluster has a router that obeys the replica header and else takes the first token
// modulo the number of replicas.
func fakeCluster(t *testing.T, change func(*fakeReplica)) Start {
	return func(_ context.Context, _ string, n int) (*Cluster, error) {
		c := &Cluster{}
		handlers := map[string]*fakeReplica{}
		var closers []func()
		for i := range n {
			f := &fakeReplica{id: fmt.Sprintf("r%d", i)}
			if change != nil {
				change(f)
			}
			handlers[f.id] = f
			s := httptest.NewServer(f)
			closers = append(closers, s.Close)
			c.Replicas = append(c.Replicas, Replica{ID: f.id, URL: s.URL})
		}
		router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get("x-tailor-replica")
			if id == "" {
				body, _ := io.ReadAll(r.Body)
				req, err := openai.ParseCompletion(body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				id = fmt.Sprintf("r%d", int(req.Prompt.Tokens[0][0])%n)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			handlers[id].ServeHTTP(w, r)
		}))
		c.RouterURL = router.URL
		closers = append(closers, router.Close)
		c.Close = func() error {
			for _, f := range closers {
				f()
			}
			return nil
		}
		return c, nil
	}
}

func TestRunReportsWhatTheReplicasCounted(t *testing.T) {
	w, err := Lesson(5)
	if err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), Options{
		Workload: w, Policies: []string{Recorded, "prefix_hash"}, Model: "m", Concurrency: 1,
	}, fakeCluster(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Published{w.Published["random"], w.Published["prefix_hash"]} {
		r := results[i]
		if r.Computed != want.Computed || r.Hits != want.Hits || r.Published == nil || *r.Published != want {
			t.Errorf("%s: computed %d, hits %d, published %v; want %v", r.Policy, r.Computed, r.Hits, r.Published, want)
		}
		if r.PrefillCPU != 150 {
			t.Errorf("%s: prefill CPU %v s, want 300 x 0.5", r.Policy, r.PrefillCPU)
		}
	}
	if p := results[1]; p.LoadMean != 300.0/16 || p.LoadMax < 50 {
		t.Errorf("prefix_hash: load %d/%v; five prefixes on sixteen replicas must pile up", p.LoadMax, p.LoadMean)
	}
	var table strings.Builder
	if err := WriteTable(&table, w, results); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "52743") || strings.Contains(table.String(), "DIFFERENT") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestRunRefusesCountsThatDoNotAddUp(t *testing.T) {
	w, err := Lesson(5)
	if err != nil {
		t.Fatal(err)
	}
	served := false
	start := fakeCluster(t, nil)
	_, err = Run(t.Context(), Options{
		Workload: w, Policies: []string{"prefix_hash"}, Model: "m", Concurrency: 1,
	}, func(ctx context.Context, policy string, n int) (*Cluster, error) {
		c, err := start(ctx, policy, n)
		if err != nil {
			return nil, err
		}
		// A router that sends a request twice: the engines then count more than was sent.
		inner := c.RouterURL
		twice := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			resp, err := http.Post(inner+r.URL.Path, "application/json", bytes.NewReader(body))
			if err == nil && !served {
				served = true
				resp.Body.Close()
				resp, err = http.Post(inner+r.URL.Path, "application/json", bytes.NewReader(body))
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(w, resp.Body)
		}))
		closeInner := c.Close
		c.RouterURL = twice.URL
		c.Close = func() error { twice.Close(); return closeInner() }
		return c, nil
	})
	if err == nil || !strings.Contains(err.Error(), "counted 301 requests") {
		t.Errorf("err = %v, want a refusal that names 301 requests", err)
	}
}

func TestRunStopsAtAnErrorInTheStream(t *testing.T) {
	w, err := Lesson(5)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), Options{Workload: w, Policies: []string{"prefix_hash"}, Model: "m", Concurrency: 4},
		fakeCluster(t, func(f *fakeReplica) {
			f.fail = `{"error":{"message":"the replica is gone","type":"server_error","param":null,"code":null}}`
		}))
	if err == nil || !strings.Contains(err.Error(), "the replica is gone") {
		t.Errorf("err = %v, want the stream's own error", err)
	}
}

func TestPercentileIsNearestRank(t *testing.T) {
	v := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]float64{0: 1, 0.05: 1, 0.5: 5, 0.51: 6, 0.95: 10, 1: 10} {
		if got := percentile(v, q); got != want {
			t.Errorf("percentile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("percentile of nothing = %v", got)
	}
}
