package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestNewRefusesBadReplicas(t *testing.T) {
	for _, replicas := range [][]Replica{
		{{ID: "", URL: "http://h:1"}},
		{{ID: "two words", URL: "http://h:1"}},
		{{ID: "line\nbreak", URL: "http://h:1"}},
		{{ID: "a", URL: ""}},
		{{ID: "a", URL: "h:1"}},
		{{ID: "a", URL: "ftp://h"}},
		{{ID: "a", URL: "http://h:1?x=1"}},
		{{ID: "a", URL: "http://h:1"}, {ID: "a", URL: "http://h:2"}},
	} {
		if _, err := New(Config{Replicas: replicas}); !errors.Is(err, ErrReplica) {
			t.Errorf("%+v: %v", replicas, err)
		}
	}
	if _, err := New(Config{MaxBody: -1}); err == nil {
		t.Error("a negative limit is taken")
	}
	rt, err := New(Config{Replicas: []Replica{{ID: "b", URL: "http://h:1"}, {ID: "a", URL: "http://h:2/base/"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Remove("c"); !errors.Is(err, ErrUnknownReplica) {
		t.Errorf("removing an unknown replica: %v", err)
	}
}

func TestDrain(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	arrived, release := make(chan struct{}), make(chan struct{})
	rt.fakes[0].set(func(f *fakeReplica) {
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			close(arrived)
			<-release
			_, _ = io.WriteString(w, "{}")
		}
	})
	done := make(chan answer)
	go func() { done <- rt.post(`{"model":"m","prompt":"x"}`) }()
	<-arrived

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Drain(gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("drained with a request inside: %v", err)
	}
	a := rt.post(`{"model":"m","prompt":"x"}`)
	if a.apiError(t); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("while draining: status %d", a.status)
	}
	if a := rt.do("GET", "/health", ""); a.status != 503 || !strings.Contains(a.body, `"draining":true`) {
		t.Errorf("while draining: /health %d %s", a.status, a.body)
	}
	close(release)
	if a := <-done; a.status != 200 {
		t.Errorf("the request inside was answered %d", a.status)
	}
	for range 2 {
		if err := rt.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestLedgerEndpoint(t *testing.T) {
	rt := newTestRouter(t, 2, func(c *Config) { c.LedgerRows = 5 })
	for i := range 8 {
		rt.clock.advance(time.Second)
		rt.post(tokenBody(1, 64, i, 10, fmt.Sprintf(`,"stream":%v,"cache_salt":"secret"`, i%2 == 0)), "X-Request-Id", fmt.Sprint("q", i))
	}
	ask := func(query string) (out struct {
		Written, Capacity int
		Rows              []Row
	}) {
		a := rt.do("GET", "/v1/ledger"+query, "")
		if a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		if strings.Contains(a.body, "secret") {
			t.Error("the ledger tells the salt")
		}
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for query, want := range map[string]int{"": 5, "?limit=2": 2, "?limit=0": 0, "?limit=100": 5} {
		out := ask(query)
		if out.Written != 8 || out.Capacity != 5 || len(out.Rows) != want {
			t.Errorf("%q: %d rows of %d, capacity %d", query, len(out.Rows), out.Written, out.Capacity)
		}
		for i, row := range out.Rows {
			n := 7 - i
			if row.Seq != uint64(n) || row.RequestID != fmt.Sprint("q", n) || row.Stream != (n%2 == 0) || !row.Salted ||
				row.Model != "m" || row.PromptTokens != 74 || row.PromptBlocks != 4 || row.Path != "/v1/completions" ||
				row.PredictedCached != 64 || len(row.Candidates) != 2 || row.Status != 200 || row.Outcome != OutcomeOK {
				t.Errorf("row %d: %+v", n, row)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	rt := newTestRouter(t, 2, withPolicy("round_robin"))
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(502, "") })
	rt.post(tokenBody(1, 64, 0, 10, "")) // r00 fails, r01 serves
	rt.post(tokenBody(1, 64, 1, 10, "")) // r01, which has the prefix
	a := rt.do("GET", "/metrics", "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	if err != nil {
		t.Fatalf("%v in\n%s", err, a.body)
	}
	value := func(name string, labels ...string) float64 {
		t.Helper()
	metrics:
		for _, m := range families[name].GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue metrics
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		t.Errorf("no %s %v", name, labels)
		return -1
	}
	for _, tt := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{2, "tailor_router_requests_total", []string{"replica", "r01", "policy", "round_robin", "outcome", "ok"}},
		{1, "tailor_router_retries_total", []string{"replica", "r00"}},
		{148, "tailor_router_prompt_tokens_total", []string{"replica", "r01"}},
		{64, "tailor_router_predicted_cached_tokens_total", []string{"replica", "r01"}},
		{3, "tailor_router_decision_seconds", nil},
		{0, "tailor_router_in_flight_requests", []string{"replica", "r01"}},
		{0, "tailor_router_in_flight_tokens", []string{"replica", "r01"}},
		{4, "tailor_router_index_blocks", []string{"replica", "r01"}},
		{0, "tailor_router_index_blocks", []string{"replica", "r00"}},
		{1, "tailor_router_replica_state", []string{"replica", "r00", "state", "ready"}},
		{0, "tailor_router_replica_state", []string{"replica", "r00", "state", "down"}},
	} {
		if got := value(tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s %v: %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
}

// Requests of all kinds at once, while replicas fail, come and go: every request ends as
// one of the outcomes allowed, has its row, and leaves nothing booked.
func TestStress(t *testing.T) {
	const seed, clients = 5, 8
	t.Logf("seed %d", seed)
	each := 150
	if testing.Short() {
		each = 40
	}
	rt := newTestRouter(t, 4, func(c *Config) { c.IndexBlocks = 40; c.LedgerRows = 1 << 16 })
	for i, f := range rt.fakes {
		rng, mu := rand.New(rand.NewPCG(seed, uint64(i))), &sync.Mutex{}
		f.set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				kind := rng.IntN(12)
				mu.Unlock()
				switch kind {
				case 0:
					status(503, "")(w, r)
				case 1:
					status(502, "")(w, r)
				case 2:
					stream(false, event, event[:20])(w, r)
				case 3:
					panic(http.ErrAbortHandler)
				case 4:
					w.Header().Set("Content-Length", "100")
					_, _ = io.WriteString(w, "{")
				case 5, 6, 7:
					stream(true, event, event, "data: [DONE]\n\n")(w, r)
				default:
					_, _ = io.WriteString(w, wholeAnswer)
				}
			}
		})
	}
	var wg, checks sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(seed, 100+uint64(c)))
		wg.Go(func() {
			for i := range each {
				body := tokenBody(rng.IntN(6), 16*rng.IntN(12), i, 1+rng.IntN(20), "")
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(10) == 0 {
					go cancel()
				}
				if resp, err := rt.request(ctx, "POST", "/v1/completions", body); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
				switch rng.IntN(20) {
				case 0:
					_ = rt.Remove("r03")
				case 1:
					_ = rt.Add(Replica{ID: "r03", URL: rt.fakes[3].server.URL})
				case 2, 3, 4, 5:
					rt.checkAll(t.Context(), &checks)
				case 6:
					rt.do("GET", "/metrics", "")
				}
			}
		})
	}
	wg.Wait()
	checks.Wait()
	if err := rt.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	outcomes := map[Outcome]int{}
	rows, written := rt.ledger.last(1 << 16)
	for _, row := range rows {
		outcomes[row.Outcome]++
	}
	t.Logf("%d rows: %v", written, outcomes)
	// A client that cancels at once may never reach the router.
	if written > clients*uint64(each) || written < clients*uint64(each)*8/10 {
		t.Errorf("%d rows for %d requests", written, clients*each)
	}
	for o := range outcomes {
		if o != OutcomeOK && o != OutcomeUpstream && o != OutcomeNoReplica && o != OutcomeCancelled {
			t.Errorf("outcome %q", o)
		}
	}
	rt.idle()
	for _, r := range rt.registry.replicas {
		for _, b := range r.index.blocks {
			if b.pending != 0 {
				t.Fatalf("%s: a block is in flight for nobody", r.id)
			}
		}
		if n := len(r.index.blocks); n > 40 {
			t.Errorf("%s: %d blocks indexed, capacity 40", r.id, n)
		}
	}
}
