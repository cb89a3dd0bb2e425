package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var soak = flag.Duration("soak", 0, "how long TestSoakProcess loads a replica; 0 skips it")

// TestSoakProcess loads a replica of 64 blocks, in a process of its own, with twice the
// clients that fit, a part of whom leave. From time to time all stop: then no block may be
// held, no goroutine left, and in the end the process must not have grown. Every answer must
// be the one that the same process gave alone with an empty cache.
func TestSoakProcess(t *testing.T) {
	if *soak == 0 {
		t.Skip("takes as long as -soak says, for example -soak 3m")
	}
	const blocks, clients, idleEvery = 64, 16, 3 * time.Second
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := soaked{
		url: startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kv-blocks", strconv.Itoa(blocks), "--threads", "1", "--max-waiting", "12",
			"--max-batched-tokens", "64", "--schedule", "longest_prefix", "--check", "--log-level", "error").url(t),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}},
	}
	s.askAlone(t, rand.New(rand.NewPCG(seed, 0)))
	s.client.CloseIdleConnections()
	goroutines := s.metrics(t)["go_goroutines"]

	var resident []float64 // bytes, once a round, at work
	for began, round := time.Now(), 0; time.Since(began) < *soak && !t.Failed(); round++ {
		until := time.Now().Add(idleEvery)
		var all sync.WaitGroup
		for client := range clients {
			rnd := rand.New(rand.NewPCG(seed, uint64(1+round*clients+client)))
			all.Go(func() {
				for time.Now().Before(until) && !t.Failed() {
					s.ask(t, rnd)
				}
			})
		}
		<-time.After(idleEvery / 2)
		resident = append(resident, s.metrics(t)["process_resident_memory_bytes"])
		all.Wait()
		s.client.CloseIdleConnections()
		eventually(t, "a replica with nothing left to do", func() bool {
			m := s.metrics(t)
			return m["vllm:num_requests_running"]+m["vllm:num_requests_waiting"] == 0 &&
				m[`tailor_kv_blocks{state="free"}`]+m[`tailor_kv_blocks{state="held"}`] == blocks &&
				m[`tailor_kv_blocks{state="held"}`] == m[`tailor_kv_blocks{state="evictable"}`] &&
				m["go_goroutines"] <= goroutines
		})
	}
	m := s.metrics(t)
	t.Logf("%d answers compared, %d clients left, %d refused; %v preemptions, %v blocks evicted, %v of %v admitted requests hit",
		s.compared.Load(), s.left.Load(), s.refused.Load(), m["vllm:num_preemptions_total"], m["tailor_evicted_blocks_total"],
		m["tailor_request_hits_total"], m["tailor_requests_admitted_total"])
	for name, n := range map[string]float64{
		"answers": float64(s.compared.Load()), "clients that left": float64(s.left.Load()), "refusals": float64(s.refused.Load()),
		"preemptions": m["vllm:num_preemptions_total"], "evictions": m["tailor_evicted_blocks_total"], "hits": m["tailor_request_hits_total"],
	} {
		if n == 0 {
			t.Errorf("no %s: the load was too small", name)
		}
	}
	mustStayFlat(t, resident)
}

// mustStayFlat compares the last tenth with the third one; of ten minutes, that is the last
// minute with the third, and 3 % is what it may be more. A shorter run is still warming up
// in its third tenth, and may gain up to 10 %.
func mustStayFlat(t *testing.T, samples []float64) {
	tenth := len(samples) / 10
	if tenth == 0 {
		t.Logf("%d samples of memory are not enough to compare", len(samples))
		return
	}
	var medians []float64 // MiB
	for i := range 10 {
		medians = append(medians, slices.Sorted(slices.Values(samples[i*tenth : (i+1)*tenth]))[tenth/2]/(1<<20))
	}
	growth, allowed := medians[9]/medians[2]-1, 0.10-0.07*min(soak.Minutes()/10, 1)
	t.Logf("resident, in MiB, by tenths of the time: %.1f; from the third to the last %+.2f %%", medians, 100*growth)
	if growth > allowed {
		t.Errorf("memory has grown by %.2f %%, %.2f %% are allowed", 100*growth, 100*allowed)
	}
}

// soaked is the replica under load.
type soaked struct {
	url     string
	client  *http.Client
	bodies  [][]byte
	answers []string // [of bodies], alone

	compared, left, refused atomic.Uint64
}

// askAlone makes up requests and asks each of an empty cache.
func (s *soaked) askAlone(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	random := func(n int) []int {
		tokens := make([]int, n)
		for i := range tokens {
			tokens[i] = rnd.IntN(4000)
		}
		return tokens
	}
	stems := [][]int{random(150), random(90)}
	for range 60 {
		stem := stems[rnd.IntN(len(stems))]
		body, err := json.Marshal(map[string]any{
			"model": "tailor-4m", "prompt": slices.Concat(stem[:1+rnd.IntN(len(stem))], random(rnd.IntN(30))),
			"max_tokens": rnd.IntN(60), "n": 1 + rnd.IntN(2), "temperature": float64(rnd.IntN(3)) / 2, "seed": rnd.IntN(1000),
			"cache_salt": fmt.Sprint(rnd.IntN(2)), "priority": rnd.IntN(2),
		})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := s.client.Post(s.url+"/reset_prefix_cache", "", nil); err != nil || res.Body.Close() != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("reset: %v, %v", res, err)
		}
		status, answer, err := s.post(context.Background(), body)
		if err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %s, %v", status, answer, err)
		}
		s.bodies, s.answers = append(s.bodies, body), append(s.answers, answer)
	}
}

// ask sends one of the requests, and leaves at some moment or compares the answer.
func (s *soaked) ask(t *testing.T, rnd *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leaves := rnd.IntN(3) == 0
	if leaves {
		defer time.AfterFunc(time.Duration(rnd.IntN(150))*time.Millisecond, cancel).Stop()
	}
	n := rnd.IntN(len(s.bodies))
	status, answer, err := s.post(ctx, s.bodies[n])
	switch {
	case err != nil && leaves:
		s.left.Add(1)
	case err != nil:
		t.Error(err)
	case status == http.StatusTooManyRequests:
		s.refused.Add(1)
		<-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond)
	case status != http.StatusOK || answer != s.answers[n]:
		t.Errorf("request %d: status %d\n%s\nalone\n%s", n, status, answer, s.answers[n])
	default:
		s.compared.Add(1)
	}
}

// post returns what must be the same whenever the request is sent: the choices.
func (s *soaked) post(ctx context.Context, body []byte) (status int, choices string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return res.StatusCode, string(text), err
	}
	var answer struct {
		Choices json.RawMessage `json:"choices"`
	}
	err = json.Unmarshal(text, &answer)
	return res.StatusCode, string(answer.Choices), err
}

// metrics are the process's own counts by name. Of the labels only state is kept: there is
// one replica.
func (s *soaked) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	values := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		bare, labels, _ := strings.Cut(line[:at], "{")
		if _, state, found := strings.Cut(labels, `state="`); found {
			bare += `{state="` + state[:strings.Index(state, `"`)] + `"}`
		}
		values[bare] = value
	}
	return values
}
