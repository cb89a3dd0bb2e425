package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tailor/router/policy"
)

// serving answers GET /v1/models with a list of these.
func serving(names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var entries []string
		for _, n := range names {
			entries = append(entries, fmt.Sprintf(`{"id":%q,"object":"model","max_model_len":7}`, n))
		}
		_, _ = io.WriteString(w, `{"object":"list","data":[`+strings.Join(entries, ",")+`]}`)
	}
}

// servingFleet is a router over replicas of which each lists some models; nil: none at all.
func servingFleet(t *testing.T, change func(*Config), lists ...[]string) *testRouter {
	t.Helper()
	return newTestRouter(t, 0, func(c *Config) {
		for i, names := range lists {
			f := newFakeReplica(t, fmt.Sprintf("r%02d", i))
			if names != nil {
				f.models = serving(names...)
			}
			c.Replicas = append(c.Replicas, Replica{ID: f.id, URL: f.server.URL})
		}
		if change != nil {
			change(c)
		}
	})
}

func TestRequestsGoWhereTheirModelIs(t *testing.T) {
	rt := servingFleet(t, nil, []string{"a", "b"}, []string{"b"}, []string{"b", "c/d"})
	for model, want := range map[string][]string{"a": {"r00"}, "b": {"r00", "r01", "r02"}, "c/d": {"r02"}} {
		served := map[string]bool{}
		for i := range 12 {
			a := rt.do(http.MethodPost, []string{"/v1/completions", "/v1/chat/completions"}[i%2], strings.Replace(
				[]string{`{"model":"M","prompt":"x"}`, `{"model":"M","messages":[{"role":"user","content":"x"}]}`}[i%2], "M", model, 1))
			if a.status != 200 {
				t.Fatalf("%s: status %d: %s", model, a.status, a.body)
			}
			served[a.header.Get("X-Tailor-Replica")] = true
		}
		for id := range served {
			if !slices.Contains(want, id) {
				t.Errorf("model %s was asked of %s", model, id)
			}
		}
		if len(served) != len(want) && model != "b" {
			t.Errorf("model %s was served by %v", model, served)
		}
	}
	for _, row := range rt.rows(36) {
		for _, c := range row.Candidates {
			if row.Model == "a" && c.ID != "r00" || row.Model == "c/d" && c.ID != "r02" {
				t.Errorf("a request for %s had %s for a candidate", row.Model, c.ID)
			}
		}
	}
	a := rt.post(`{"model":"e","prompt":"x"}`)
	message, kind, param, code := a.apiError(t)
	if a.status != 404 || kind != "invalid_request_error" || param != "model" || code != "model_not_found" ||
		message != `model: "e" is not served here; "a", "b", "c/d" are` {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	if row := rt.rows(37)[36]; row.Outcome != OutcomeInvalid || row.Replica != "" || row.PromptTokens != 0+1 {
		t.Errorf("row %+v", row)
	}
	// The only one that serves it is away: that is another matter.
	rt.registry.saw(rt.registry.replicas[0], sighting{kind: seenUnready, err: "resting"})
	if a := rt.post(`{"model":"a","prompt":"x"}`); a.status != 503 || !strings.Contains(a.body, `model \"a\"`) {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	// A pin does not change what a replica serves.
	a = rt.post(`{"model":"b","prompt":"x"}`, headerReplica, "r01")
	if a.status != 200 {
		t.Errorf("pinned: status %d", a.status)
	}
	if a = rt.post(`{"model":"c/d","prompt":"x"}`, headerReplica, "r01"); a.status != 404 || !strings.Contains(a.body, `\"b\" is`) {
		t.Errorf("pinned to who has it not: status %d: %s", a.status, a.body)
	}
	rt.idle()
}

func TestListOfModels(t *testing.T) {
	ids := func(a answer) (out []string) {
		t.Helper()
		var list struct {
			Object string
			Data   []struct {
				ID  string `json:"id"`
				Max int    `json:"max_model_len"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 || list.Object != "list" {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		for _, m := range list.Data {
			if m.Max != 7 {
				t.Errorf("%s has lost what else its replica said of it", m.ID)
			}
			out = append(out, m.ID)
		}
		return out
	}
	rt := servingFleet(t, nil, []string{"b", "a"}, nil, []string{"c/d", "b"})
	if got := ids(rt.do("GET", "/v1/models", "")); !slices.Equal(got, []string{"a", "b", "c/d"}) {
		t.Errorf("models %v", got)
	}
	if a := rt.do("HEAD", "/v1/models", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
	if a := rt.do("GET", "/v1/models/c/d", ""); a.status != 200 || !strings.Contains(a.body, `"c/d"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	// One does not say what it serves, and may be asked.
	if a := rt.do("GET", "/v1/models/e", ""); a.status != 200 || a.body != wholeAnswer {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := rt.post(`{"model":"e","prompt":"x"}`); a.status != 200 || a.header.Get("X-Tailor-Replica") != "r01" {
		t.Errorf("a model that nobody lists: status %d by %s", a.status, a.header.Get("X-Tailor-Replica"))
	}
	if err := rt.Remove("r01"); err != nil {
		t.Fatal(err)
	}
	a := rt.do("GET", "/v1/models/e", "")
	if _, _, param, code := a.apiError(t); a.status != 404 || param != "model" || code != "model_not_found" {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A model goes with the last replica that serves it.
	rt.registry.saw(rt.registry.replicas[1], sighting{kind: seenUnready})
	if got := ids(rt.do("GET", "/v1/models", "")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("models %v", got)
	}
	// What is known thanks to the router's own key is not told to everybody.
	rt = servingFleet(t, func(c *Config) { c.ReplicaKey = "k" }, []string{"a"})
	if a := rt.do("GET", "/v1/models/a", ""); a.status != 200 || a.body != wholeAnswer {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Models are asked for before a replica is ready, again when it comes back or is another
// process, and now and then.
func TestWhenModelsAreAsked(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	f := rt.fakes[0]
	var asked atomic.Int64
	answer := func(then http.HandlerFunc) {
		f.set(func(f *fakeReplica) {
			f.models = func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if r.Header.Get(headerVia) == "" {
					t.Error("the question does not say who asks")
				}
				then(w, r)
			}
		})
	}
	answer(serving("a"))
	f.set(func(f *fakeReplica) {
		f.healthy = func(w http.ResponseWriter, r *http.Request) { w.Header().Set(headerEpoch, "one") }
	})
	rounds := func(n, want int, what string) {
		t.Helper()
		before := int(asked.Load())
		for range n {
			rt.round()
		}
		if got := int(asked.Load()) - before; got != want {
			t.Errorf("%s: asked %d times in %d checks, want %d", what, got, n, want)
		}
	}
	models := func() []string { return rt.replica("r00").Models }
	if models() != nil {
		t.Errorf("a replica that does not say serves %v", models())
	}
	rounds(5, 1, "another epoch")
	rounds(5, 0, "the same")
	if !slices.Equal(models(), []string{"a"}) {
		t.Errorf("it serves %v", models())
	}
	answer(serving("b"))
	rt.clock.advance(time.Minute)
	rounds(5, 1, "a minute later")
	if !slices.Equal(models(), []string{"b"}) {
		t.Errorf("it serves %v", models())
	}
	rt.registry.saw(rt.registry.replicas[0], sighting{kind: seenUnready})
	rounds(5, 1, "it was away")
	answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	rt.clock.advance(time.Minute)
	before := asked.Load()
	for range 3 {
		rt.round()
	}
	if asked.Load() < before+3 { // net/http asks twice on a connection that it has kept
		t.Errorf("asked %d times in 3 checks while the answer breaks off", asked.Load()-before)
	}
	if !slices.Equal(models(), []string{"b"}) {
		t.Errorf("after failures it serves %v", models())
	}
	answer(status(500, "no"))
	rounds(3, 1, "it fails")
	if models() != nil {
		t.Errorf("who says nothing serves %v", models())
	}
}

func TestAnyModel(t *testing.T) {
	rt := servingFleet(t, func(c *Config) { c.AnyModel = true }, []string{"a"})
	if a := rt.post(`{"model":"whatever","prompt":"x"}`); a.status != 200 {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}

// Shadows choose among those that the request may go to.
func TestShadowsHeedModels(t *testing.T) {
	p, err := policy.New("round_robin", policy.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	rt := servingFleet(t, func(c *Config) { c.Shadows = []policy.Policy{p} }, []string{"a"}, []string{"b"}, []string{"b"})
	for range 6 {
		rt.post(`{"model":"a","prompt":"x"}`)
	}
	for len(rt.shadows.queue) > 0 {
		rt.shadows.take(<-rt.shadows.queue)
	}
	if n := counted64(rt.metrics.shadowAgreed.WithLabelValues("round_robin")); n != 6 {
		t.Errorf("the shadow agreed %v times, want 6: there is one replica to choose", n)
	}
}

func FuzzModels(f *testing.F) {
	f.Add([]byte(`{"object":"list","data":[{"id":"a"},{"id":"b","x":[1]},{"id":"a"}]}`))
	f.Add([]byte(`{"data":[]}`))
	f.Add([]byte(`{"data":[{"id":""}]}`))
	f.Add([]byte(`[{"id":"a"}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		models, err := parseModels(body)
		if err != nil {
			if models != nil || !errors.Is(err, errModels) {
				t.Fatalf("%v with %v", models, err)
			}
			return
		}
		r := &replica{models: models}
		for i, m := range models {
			if m.id == "" || !json.Valid(m.entry) || i > 0 && models[i-1].id >= m.id || !r.offers(m.id) {
				t.Fatalf("model %d of %q is %q", i, body, m.id)
			}
		}
		if len(models) == 0 || r.offers(models[len(models)-1].id+"x") {
			t.Fatalf("%d models of %q", len(models), body)
		}
	})
}
