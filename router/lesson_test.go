package router

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
)

// The lesson's 300 requests, sent through the router to 16 replicas: once to the servers
// that its random routing took, once by the hash of the prefix, once by affinity. A hit
// is a request whose server has had its prefix before; the replicas count, with a set.
// The lesson's figures are 224 for random and 295, all but the first of each of 5
// prefixes, for sticky routing.
func TestLesson(t *testing.T) {
	data, err := os.ReadFile("../../shared/data/workloads/lesson-5.jsonl")
	if err != nil {
		t.Skipf("no shared data beside the checkout: %v", err)
	}
	type request struct {
		Prefix       int `json:"prefix_id"`
		PrefixTokens int `json:"prefix_tokens"`
		SuffixTokens int `json:"suffix_tokens"`
		RandomServer int `json:"random_server"`
	}
	var requests []request
	for line := range strings.Lines(string(data)) {
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	if len(requests) != 300 {
		t.Fatalf("%d requests", len(requests))
	}
	for _, tt := range []struct {
		policy string
		pinned bool
		hits   int
	}{
		{"random", true, 224},
		{"prefix_hash", false, 295},
		{"prefix_affinity", false, 295},
	} {
		rt := newTestRouter(t, 16, withPolicy(tt.policy))
		for i, r := range requests {
			body := tokenBody(r.Prefix, r.PrefixTokens, i, r.SuffixTokens, "")
			var headers []string
			if tt.pinned {
				headers = []string{"X-Tailor-Replica", rt.fakes[r.RandomServer].id}
			}
			if a := rt.post(body, headers...); a.status != 200 {
				t.Fatalf("request %d: status %d: %s", i, a.status, a.body)
			}
		}
		// What the replicas saw: the first 500 token ids tell the prefix.
		hits := 0
		for _, f := range rt.fakes {
			had := map[string]bool{}
			for _, got := range f.got() {
				prefix := strings.Join(strings.SplitN(got.body, ",", 502)[1:501], ",")
				if had[prefix] {
					hits++
				}
				had[prefix] = true
			}
		}
		if hits != tt.hits {
			t.Errorf("%s: %d hits, want %d", tt.policy, hits, tt.hits)
		}
		// What the router predicted: 31 whole blocks of 16 in 500 tokens, for each hit.
		predicted := 0
		for _, row := range rt.rows(300) {
			predicted += row.PredictedCached
		}
		if want := tt.hits * 496; predicted < want || predicted > want+300*16 {
			t.Errorf("%s: %d cached tokens predicted, want about %d", tt.policy, predicted, want)
		}
	}
}

func BenchmarkDecision(b *testing.B) {
	rt := newTestRouter(b, 16, nil)
	p := reader()
	body := []byte(tokenBody(1, 500, 0, 40, ""))
	q, err := p.completion(nil, body)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.completion(nil, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("choose", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			booking, _, err := rt.registry.choose(wish{prompt: &q, policy: rt.config.Policy})
			if err != nil {
				b.Fatal(err)
			}
			rt.registry.count(&q)
			booking.end(true)
		}
	})
}

// BenchmarkRequest is a whole answer through the router, and the same without it.
func BenchmarkRequest(b *testing.B) {
	rt := newTestRouter(b, 1, nil)
	body := tokenBody(1, 500, 0, 40, "")
	run := func(b *testing.B) {
		for b.Loop() {
			if a := rt.post(body); a.status != 200 {
				b.Fatal(a.status)
			}
		}
	}
	b.Run("routed", run)
	var once sync.Once
	b.Run("direct", func(b *testing.B) {
		once.Do(func() { rt.server.URL = rt.fakes[0].server.URL })
		run(b)
	})
}
