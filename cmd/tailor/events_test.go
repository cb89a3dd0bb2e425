package main

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"tailor/internal/openai"
)

// getJSON reads an answer of status 200.
func getJSON[T any](t *testing.T, url string) (v T) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return v
}

// metric reads one that a replica has once.
func metric(t *testing.T, url, name string) float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && strings.HasPrefix(fields[0], name+"{") {
			value, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("%s has no metric %s", url, name)
	return 0
}

// A router that follows its replicas predicts to the block what they deliver, although they
// evict all the time, are sent requests that it does not see, and are reset.
func TestRouterKnowsWhatReplicasHold(t *testing.T) {
	type replica struct {
		ID, URL, Knowledge, Epoch string
		IndexBlocks               int    `json:"index_blocks"`
		EventSeq                  uint64 `json:"event_seq"`
		Resyncs                   int
	}
	type snapshot struct {
		Epoch string
		Seq   uint64
		Salts []struct{ Blocks []struct{ ID int } }
	}
	type rows struct {
		Written int
		Rows    []struct {
			Predicted  int    `json:"predicted_cached_tokens"`
			CachedFrom string `json:"cached_from"`
			Cached     int    `json:"cached_tokens"`
			Drift      int    `json:"drift_tokens"`
			Replica    string
		}
	}
	const seed = 11
	router := startProcess(t, "up", "--listen", "127.0.0.1:0", "--replicas", "2", "--kv-blocks", "40", "--check").url(t)
	replicas := func() []replica {
		return getJSON[struct{ Replicas []replica }](t, router+"/v1/replicas").Replicas
	}
	inStep := func() bool {
		for _, r := range replicas() {
			s := getJSON[snapshot](t, r.URL+"/v1/cache/snapshot")
			blocks := 0
			for _, salt := range s.Salts {
				blocks += len(salt.Blocks)
			}
			// The router counts those on their way too.
			if r.Knowledge != "exact" || r.Epoch != s.Epoch || r.EventSeq != s.Seq || r.IndexBlocks != blocks {
				return false
			}
		}
		return true
	}
	rnd := rand.New(rand.NewPCG(seed, seed))
	greedy, few := 0.0, 4
	ask := func(url, salt string) {
		t.Helper()
		tokens := make([]int32, 1+rnd.IntN(300))
		family := rnd.Int32N(8)
		for i := range tokens {
			tokens[i] = 1 + family*int32(i/100+1)
		}
		tokens[len(tokens)-1] = rnd.Int32N(4000)
		q := openai.CompletionRequest{Model: "tailor-4m", Prompt: openai.Prompt{Tokens: [][]int32{tokens}}, MaxTokens: &few, Temperature: &greedy}
		if salt != "" {
			q.CacheSalt = &salt
		}
		resp, err := complete(t.Context(), url, "", q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", resp.Status, body, err)
		}
	}
	requests, cached := 60, 0
	if testing.Short() {
		requests = 20
	}
	for i := range requests {
		eventually(t, "the router in step", inStep)
		all := replicas()
		switch i % 10 {
		case 4:
			ask(all[rnd.IntN(2)].URL, "") // past the router
			eventually(t, "the router in step with what went past it", inStep)
		case 9:
			resp, err := http.Post(all[i/10%2].URL+"/reset_prefix_cache", "", nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("reset: %v, %v", resp, err)
			}
			resp.Body.Close()
			eventually(t, "the router in step after a reset", inStep)
		}
		salt := ""
		if rnd.IntN(4) == 0 {
			salt = "abc"
		}
		ask(router, salt)
		var last rows // the answer is out before its row is in
		eventually(t, "the request's row", func() bool {
			last = getJSON[rows](t, router+"/v1/ledger?limit=1")
			return last.Written == i+1
		})
		row := last.Rows[0]
		if row.Drift != 0 || row.CachedFrom != "replica" {
			t.Errorf("request %d to %s: %d tokens predicted, %d delivered (%s)", i, row.Replica, row.Predicted, row.Cached, row.CachedFrom)
		}
		cached += row.Cached
	}
	eventually(t, "the router in step", inStep)
	evicted := 0.0
	for _, r := range replicas() {
		evicted += metric(t, r.URL, "tailor_evicted_blocks_total")
		t.Logf("%s: %d blocks, event %d, %d resyncs", r.ID, r.IndexBlocks, r.EventSeq, r.Resyncs)
	}
	if cached == 0 || evicted == 0 {
		t.Errorf("%d tokens were cached, %v blocks evicted", cached, evicted)
	}
}
