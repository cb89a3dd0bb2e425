package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"tailor/internal/openai"
)

// fakeReplica answers like a replica whose cache never forgets and counts like one. Its
// tokens of a text are the bytes.
type fakeReplica struct {
	id     string
	mu     sync.Mutex
	seen   [][]int32
	counts counters
	served int
	// before, if set, may answer request n itself; true: it has.
	before  func(w http.ResponseWriter, r *http.Request, n int) bool
	noUsage bool
	noIDs   bool
	foreign bool // no counters, no tokenizer, nothing but the API
	resets  int
	bodies  []string
}

func (f *fakeReplica) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Tailor-Replica", f.id)
	if f.foreign {
		w.Header().Del("X-Tailor-Replica")
	}
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m"}]}`)
	case "/v1/completions", "/v1/chat/completions":
		f.complete(w, r)
	default:
		if f.foreign {
			http.NotFound(w, r)
			return
		}
		f.utility(w, r)
	}
}

func (f *fakeReplica) utility(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/metrics":
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
# TYPE tailor_decode_cpu_seconds_total counter
tailor_decode_cpu_seconds_total 0
# TYPE tailor_evicted_blocks_total counter
tailor_evicted_blocks_total 0
`, f.counts.computed, f.counts.reused, f.counts.decoded, f.counts.admitted, f.counts.hits, f.counts.prefillCPU)
	case "/get_server_info":
		fmt.Fprintf(w, `{"epoch":"e","replica":%q,"max_model_len":1024,"vocab_size":4096,"block_size":16,"kv_blocks":{"total":512},"settings":{"threads":1}}`, f.id)
	case "/reset_prefix_cache":
		f.resets++
		f.seen = nil
		fmt.Fprint(w, `{"success":true}`)
	case "/tokenize":
		var in struct {
			Prompt string `json:"prompt"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": byteUnits(in.Prompt)})
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeReplica) complete(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	n := f.served
	f.served++
	f.bodies = append(f.bodies, string(body))
	f.mu.Unlock()
	if f.before != nil && f.before(w, r, n) {
		return
	}
	var req struct {
		Prompt    openai.Prompt   `json:"prompt"`
		Messages  json.RawMessage `json:"messages"`
		MaxTokens int             `json:"max_tokens"`
		ReturnIDs bool            `json:"return_token_ids"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tokens := byteUnits(string(req.Messages))
	switch {
	case len(req.Prompt.Tokens) > 0:
		tokens = req.Prompt.Tokens[0]
	case len(req.Prompt.Texts) > 0:
		tokens = byteUnits(req.Prompt.Texts[0])
	}
	// The answer depends on the prompt alone: the letters after its last token.
	output := make([]int32, req.MaxTokens)
	for i := range output {
		output[i] = 'a' + (tokens[len(tokens)-1]+int32(i))%26
	}
	cached := f.take(tokens, output)
	send := func(v any) {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	for _, id := range output {
		choice := openai.Choice{Text: string(rune(id))}
		if req.ReturnIDs && !f.noIDs {
			choice.TokenIDs = []int32{id}
		}
		send(openai.Chunk{Object: openai.ObjectCompletion, Choices: []openai.Choice{choice}, IncludeUsage: true})
	}
	if !f.noUsage {
		send(openai.Chunk{Object: openai.ObjectCompletion, Choices: []openai.Choice{}, Usage: openai.NewUsage(len(tokens), len(output), cached), IncludeUsage: true})
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// take counts a request and keeps its prompt and answer.
func (f *fakeReplica) take(tokens, output []int32) (cached int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, earlier := range f.seen {
		n := 0
		for n < len(tokens)-1 && n < len(earlier) && earlier[n] == tokens[n] {
			n++
		}
		cached = max(cached, n)
	}
	// The last token of an answer is never run through the model, so it is in no cache.
	f.seen = append(f.seen, append(append([]int32{}, tokens...), output[:max(0, len(output)-1)]...))
	f.counts.admitted++
	f.counts.computed += float64(len(tokens) - cached)
	f.counts.reused += float64(cached)
	f.counts.decoded += float64(len(output))
	f.counts.prefillCPU += 1e-3 * float64(len(tokens)-cached)
	if cached > 0 {
		f.counts.hits++
	}
	return cached
}

// fakes start clusters of fake replicas behind a router that obeys the replica header and
// else takes the first token modulo the number of replicas ("hash"), or turns ("round_robin").
type fakes struct {
	t      *testing.T
	change func(*fakeReplica)
	// wrong is added to what the router says was lost.
	wrong int

	mu       sync.Mutex
	clusters []*fakeCluster
}

type fakeCluster struct {
	policy  string
	mu      sync.Mutex
	members []*fakeReplica // that may be chosen
	all     []*fakeReplica
	turn    int
	closed  bool
	close   []func()
}

func (f *fakes) start(_ context.Context, policy string, n, _ int) (*Cluster, error) {
	c := &fakeCluster{policy: policy}
	out := &Cluster{Router: true}
	for i := range n {
		out.Replicas = append(out.Replicas, c.add(f, fmt.Sprintf("r%d", i)))
	}
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.route(w, r, f.wrong) }))
	c.close = append(c.close, router.Close)
	out.URL = router.URL
	out.Add = func(context.Context) (Replica, error) { return c.add(f, fmt.Sprintf("joined%d", len(c.all))), nil }
	out.Remove = func(_ context.Context, id string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, m := range c.members {
			if m.id == id {
				c.members = append(append([]*fakeReplica{}, c.members[:i]...), c.members[i+1:]...)
				return nil
			}
		}
		return fmt.Errorf("no replica %s", id)
	}
	out.Close = func() error {
		for _, end := range c.close {
			end()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters = append(f.clusters, c)
	f.t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			f.t.Errorf("a cluster of %s was not closed", policy)
		}
	})
	return out, nil
}

func (c *fakeCluster) add(f *fakes, id string) Replica {
	r := &fakeReplica{id: id}
	if f.change != nil {
		f.change(r)
	}
	s := httptest.NewServer(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members, c.all = append(c.members, r), append(c.all, r)
	c.close = append(c.close, s.Close)
	return Replica{ID: id, URL: s.URL}
}

func (c *fakeCluster) route(w http.ResponseWriter, r *http.Request, wrong int) {
	if r.URL.Path == "/metrics" {
		computed := float64(wrong)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.all {
			m.mu.Lock()
			computed += m.counts.computed
			m.mu.Unlock()
		}
		if computed > float64(wrong) { // nothing was lost before anything was asked
			fmt.Fprintf(w, "# TYPE tailor_router_lost_tokens_total counter\ntailor_router_lost_tokens_total{cause=\"cold\"} %v\n", computed)
		}
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.choose(r.Header.Get("X-Tailor-Replica"), body).ServeHTTP(w, r)
}

func (c *fakeCluster) choose(pin string, body []byte) *fakeReplica {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.id == pin {
			return m
		}
	}
	var req struct {
		Prompt openai.Prompt `json:"prompt"`
	}
	_ = json.Unmarshal(body, &req)
	key := c.turn
	c.turn++
	if c.policy != "round_robin" && len(req.Prompt.Tokens) > 0 {
		key = int(req.Prompt.Tokens[0][0])
	}
	return c.members[key%len(c.members)]
}
