package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"tailor/internal/bench/workload"
)

func TestProbe(t *testing.T) {
	replica, foreign := &fakeReplica{id: "r0"}, &fakeReplica{foreign: true}
	one, other := httptest.NewServer(replica), httptest.NewServer(foreign)
	defer one.Close()
	defer other.Close()
	routing := func(urls ...string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/models":
				fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
			case "/v1/replicas":
				var list []string
				for i, u := range urls {
					list = append(list, fmt.Sprintf(`{"id":"r%d","url":%q,"state":"ready"}`, i, u))
				}
				fmt.Fprintf(w, `{"policy":"prefix_affinity","replicas":[%s,{"id":"x","url":"http://nowhere","state":"down"}]}`, strings.Join(list, ","))
			default:
				http.NotFound(w, r)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	for _, c := range []struct {
		name, url, kind, label   string
		behind, counted, kvBlock int
	}{
		{"replica", one.URL, KindReplica, KindReplica, 1, 1, 512},
		{"foreign", other.URL, KindForeign, KindForeign, 0, 0, 0},
		{"router", routing(one.URL, one.URL).URL, KindRouter, "prefix_affinity", 2, 2, 512},
		{"router of foreign ones", routing(one.URL, other.URL).URL, KindRouter, "prefix_affinity", 2, 0, 0},
	} {
		got, err := Probe(t.Context(), c.url, "")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.Kind != c.kind || got.Label() != c.label || got.Behind != c.behind || len(got.Replicas) != c.counted || got.KVBlocks != c.kvBlock || got.Model != "m" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()
	if _, err := Probe(t.Context(), none.URL, ""); !errors.Is(err, ErrTarget) {
		t.Errorf("no server: %v", err)
	}
}

// TestTargets measures what runs already, with what each kind tells.
func TestTargets(t *testing.T) {
	shared := []int32{1, 2, 3, 4}
	w := func() *workload.Workload { return prompts(shared, shared, shared) }
	replay := func(t *testing.T, f *fakeReplica, reset bool) *Report {
		s := httptest.NewServer(f)
		defer s.Close()
		target, err := Probe(t.Context(), s.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		opt := options(w(), target.Behind, target.Label())
		opt.KVBlocks = []int{target.KVBlocks}
		opt.About = Report{Target: s.URL, Cold: reset, BlockTokens: target.BlockTokens}
		r, err := Replay(t.Context(), opt, target.Start(reset))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("replica", func(t *testing.T) {
		f := &fakeReplica{id: "r0", seen: [][]int32{shared}} // it has served before
		f.counts.computed = 1000
		r := replay(t, f, false)
		run := &r.Groups[0].Runs[0]
		if run.Computed != 3 || run.Reused != 9 || f.resets != 0 || run.Known("lost") || !run.Known("prefill_cpu_seconds") || len(run.Problems) != 0 {
			t.Errorf("warm: %+v, %d resets", run, f.resets)
		}
		r = replay(t, f, true)
		if run := &r.Groups[0].Runs[0]; run.Computed != 6 || run.Reused != 6 || f.resets != 1 {
			t.Errorf("cold: %+v, %d resets", run, f.resets)
		}
	})
	t.Run("foreign", func(t *testing.T) {
		r := replay(t, &fakeReplica{foreign: true}, false)
		run := &r.Groups[0].Runs[0]
		if run.Computed != 6 || run.Reused != 6 || run.Hits != 2 || r.Groups[0].Policy != KindForeign {
			t.Errorf("%+v", run)
		}
		unknown := []string{"blocks_evicted", "decode_cpu_seconds", "load", "load_max_requests", "load_mean_requests", "lost", "prefill_cpu_seconds"}
		if !slices.Equal(run.Unknown, unknown) {
			t.Errorf("unknown %v", run.Unknown)
		}
		// Prompts of token ids need no tokenizer.
		if r.Reach.Unit != Tokens || r.Reach.Infinite != 6 || run.Cost != nil {
			t.Errorf("reach %+v", r.Reach)
		}
	})
	t.Run("foreign without usage", func(t *testing.T) {
		r := replay(t, &fakeReplica{foreign: true, noUsage: true}, false)
		run := &r.Groups[0].Runs[0]
		for _, name := range []string{"prompt_tokens", "tokens_computed", "tokens_decoded", "token_hit_rate"} {
			if run.Known(name) {
				t.Errorf("%s: nobody counted it", name)
			}
		}
		if r.Verdict.Pays != PaysUnclear || !strings.Contains(r.Verdict.Text[0], "cached_tokens") {
			t.Errorf("verdict %+v", r.Verdict)
		}
	})
	t.Run("foreign without reset", func(t *testing.T) {
		s := httptest.NewServer(&fakeReplica{foreign: true})
		defer s.Close()
		target, err := Probe(t.Context(), s.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Replay(t.Context(), options(w(), 0, "x"), target.Start(true)); !errors.Is(err, ErrTarget) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("texts in bytes", func(t *testing.T) {
		s := httptest.NewServer(&fakeReplica{foreign: true})
		defer s.Close()
		target, err := Probe(t.Context(), s.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		texts := &workload.Workload{Requests: []workload.Request{{Text: "hello", MaxTokens: 1, After: -1}, {Text: "help", MaxTokens: 1, After: -1}}}
		r, err := Replay(t.Context(), options(texts, 0, "x"), target.Start(false))
		if err != nil {
			t.Fatal(err)
		}
		if r.Reach.Unit != Bytes || r.Reach.Infinite != 3 || len(r.Reach.Bounds) != 0 {
			t.Errorf("reach %+v", r.Reach)
		}
	})
}
