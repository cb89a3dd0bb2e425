//go:build chaos

package router

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// chaosResult is how a request ended, as its client saw it.
type chaosResult struct {
	sent    time.Time
	first   time.Duration // until the first event; 0: there was none
	took    time.Duration
	replica string
	events  int
	kind    string // of the error; empty: none
	err     string
	tokens  []int32
	text    string
	want    string // the right answer
}

// drive sends requests at a steady rate to the routers in turn, whether or not earlier ones
// have been answered. Of real replicas it asks for less: prompts of 60 to 250 tokens.
func drive(routers []string, rate, seconds int, real bool) []chaosResult {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	rng := rand.New(rand.NewPCG(1, 2))
	prefixes, most := make([][]int32, 60), 400
	suffixes := 1 << 30
	if real {
		prefixes, most, suffixes = prefixes[:40], 166, 150
	}
	for i := range prefixes {
		prefixes[i] = make([]int32, 56+rng.IntN(most))
		for k := range prefixes[i] {
			prefixes[i][k] = rng.Int32N(4095)
		}
	}
	zipf := rand.NewZipf(rng, 1.2, 3, uint64(len(prefixes)-1))
	var mu sync.Mutex
	var results []chaosResult
	var flying sync.WaitGroup
	start := time.Now()
	for n := range rate * seconds {
		// Not by a ticker, which leaves ticks out where it is not waited for.
		time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		which := zipf.Uint64()
		own := rand.New(rand.NewPCG(which, uint64(rng.IntN(suffixes))))
		tokens := slices.Clone(prefixes[which])
		for range 4 + own.IntN(24) {
			tokens = append(tokens, own.Int32N(4095))
		}
		flying.Go(func() {
			r := chaosRequest(client, routers[n%len(routers)], tokens)
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		})
	}
	flying.Wait()
	return results
}

func chaosRequest(client *http.Client, url string, tokens []int32) chaosResult {
	body := []byte(`{"model":"tailor-4m","stream":true,"max_tokens":5,"temperature":0,"prompt":` + jsonInts(tokens) + `}`)
	r := chaosResult{tokens: tokens, sent: time.Now()}
	resp, err := client.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err == nil {
		defer resp.Body.Close()
		r.replica = resp.Header.Get(headerReplica)
		err = r.read(resp)
	} else {
		r.kind = "connection"
	}
	if r.took = time.Since(r.sent); err != nil {
		r.err = err.Error()
	}
	return r
}

func (r *chaosResult) read(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		r.kind = fmt.Sprint("status ", resp.StatusCode)
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var chunk struct {
			Error   json.RawMessage
			Choices []struct{ Text string }
		}
		switch {
		case !ok:
		case data == "[DONE]":
			return nil
		case json.Unmarshal([]byte(data), &chunk) != nil || chunk.Error != nil:
			r.kind = "error event"
			return fmt.Errorf("after %d events: %s", r.events, data)
		default:
			if r.events++; r.events == 1 {
				r.first = time.Since(r.sent)
			}
			for _, c := range chunk.Choices {
				r.text += c.Text
			}
		}
	}
	r.kind = "broken stream"
	return fmt.Errorf("broke off after %d events: %v", r.events, lines.Err())
}

// ask has a replica that nothing happens to answer every prompt, once.
func ask(t *testing.T, results []chaosResult, url string) {
	right := map[string]*chaosResult{}
	for _, r := range results {
		right[jsonInts(r.tokens)] = &chaosResult{tokens: r.tokens}
	}
	work := make(chan *chaosResult)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for r := range work {
				*r = chaosRequest(http.DefaultClient, url, r.tokens)
			}
		})
	}
	for _, r := range right {
		work <- r
	}
	close(work)
	asking.Wait()
	for i, r := range results {
		answer := right[jsonInts(r.tokens)]
		if answer.err != "" {
			t.Fatalf("the reference failed: %s", answer.err)
		}
		results[i].want = answer.text
	}
	t.Logf("%d different prompts were answered by the reference", len(right))
}

// judge finds what must not happen: a wrong answer, or part of one; and a request lost that
// had not had its first byte of a replica that broke off.
func judge(t *testing.T, results []chaosResult, start time.Time, events []chaosEvent) {
	lost, broken, wrong := 0, 0, 0
	for _, r := range results {
		if r.err == "" && r.text != r.want || r.err != "" && !strings.HasPrefix(r.want, r.text) {
			if wrong++; wrong <= 10 {
				t.Errorf("wrong answer from %s: %q, want %q", r.replica, r.text, r.want)
			}
		}
		ended := r.sent.Add(r.took)
		switch {
		case r.err == "":
		case r.events > 0 && slices.ContainsFunc(events, func(e chaosEvent) bool {
			return slices.Contains(e.ids, r.replica) && ended.After(e.at.Add(-2*time.Second)) && ended.Before(e.at.Add(15*time.Second))
		}):
			broken++ // it had its first byte of a replica that broke off
		default:
			if lost++; lost <= 10 {
				t.Errorf("%s: lost on %q after %d events: %s", ended.Sub(start), r.replica, r.events, r.err)
			}
		}
	}
	t.Logf("%d requests: %d answers compared, %d wrong; %d broke off after their first byte on a replica that did, %d lost",
		len(results), len(results)-lost-broken, wrong, broken, lost)
}

// reportRequests prints the rate reached, errors by kind, and for the time after each event
// how long answers took.
func reportRequests(t *testing.T, results []chaosResult, start time.Time, took time.Duration, events []chaosEvent) {
	kinds := map[string]int{}
	last := start
	for _, r := range results {
		if r.kind != "" {
			kinds[r.kind]++
		}
		if r.sent.After(last) {
			last = r.sent
		}
	}
	t.Logf("%d requests sent in %.1f s: %.1f/s; all answered after %.1f s", len(results), last.Sub(start).Seconds(),
		float64(len(results)-1)/last.Sub(start).Seconds(), took.Seconds())
	t.Logf("errors by kind: %v", slices.Sorted(maps.Keys(kinds)))
	for kind, n := range kinds {
		t.Logf("  %5d %s", n, kind)
	}
	events = append([]chaosEvent{{at: start, what: "calm"}}, events...)
	at := func(d []time.Duration, q float64) time.Duration {
		if len(d) == 0 {
			return 0
		}
		slices.Sort(d)
		return d[int(q*float64(len(d)-1))].Round(100 * time.Microsecond)
	}
	line := func(what string, from, to time.Time) {
		var first, whole []time.Duration
		for _, r := range results {
			if r.err == "" && !r.sent.Before(from) && r.sent.Before(to) {
				first, whole = append(first, r.first), append(whole, r.took)
			}
		}
		t.Logf("%-22s %5d answers; first event p50 %8v p99 %8v; whole p50 %8v p99 %8v max %8v", what, len(first),
			at(first, 0.5), at(first, 0.99), at(whole, 0.5), at(whole, 0.99), at(whole, 1))
	}
	far := start.Add(24 * time.Hour)
	for i, e := range events {
		to := far
		if i+1 < len(events) {
			to = events[i+1].at
		}
		line(e.what, e.at, to)
	}
	line("all", start, far)
}

// driftWindow is what the ledgers say of the time after an event.
type driftWindow struct {
	rows, prompt, reused, computed int
	lost                           Lost
	over, under                    int           // drift, both ways
	late, lateRows, latePrompt     int           // of it, in tokens, more than 5 s after the event
	last                           time.Duration // after the event, when a prediction was last off for another reason than requests in flight
}

// reportLedgers checks the sums of every row and of all, and prints, for the time after
// each event, how far predictions were off and what was computed again because of it.
func reportLedgers(t *testing.T, ledgers []string, start time.Time, events []chaosEvent, requests int) {
	events = append([]chaosEvent{{at: start, what: "calm"}}, events...)
	windows := make([]driftWindow, len(events))
	rows := 0
	var all driftWindow
	for _, path := range ledgers {
		for _, row := range readLedger(t, path) {
			rows++
			if row.CachedFrom != "" && (row.PromptTokens != row.CachedTokens+row.ComputedTokens || row.Lost.Sum() != row.ComputedTokens) {
				t.Errorf("the sums of a row are wrong: %+v", row)
			}
			i := len(events) - 1
			for i > 0 && row.Time.Before(events[i].at) {
				i--
			}
			windows[i].take(row, row.Time.Sub(events[i].at))
			all.take(row, 0)
		}
	}
	if rows != requests {
		t.Errorf("%d rows in the ledgers, %d requests were sent", rows, requests)
	}
	if all.prompt != all.reused+all.computed || all.computed != all.lost.Sum() {
		t.Errorf("over the run: %d prompt tokens, %d reused and %d computed; %+v lost", all.prompt, all.reused, all.computed, all.lost)
	}
	t.Logf("%d rows: %d prompt tokens = %d reused + %d computed; computed = %+v", rows, all.prompt, all.reused, all.computed, all.lost)
	for i, w := range windows {
		t.Logf("%-22s %5d requests, %7d prompt tokens, %6d computed again; predicted too much %5d, too little %5d; after 5 s: %d tokens of %d requests; last off for good after %.1f s",
			events[i].what, w.rows, w.prompt, w.lost.Sum()-w.lost.Cold, w.over, w.under, w.late, w.lateRows, w.last.Seconds())
		// Not none at all: a block that was stored or evicted while the request was on its way
		// is told of too late for it.
		if w.late*500 > w.latePrompt {
			t.Errorf("%s: 5 s later predictions are still off by %d of %d prompt tokens", events[i].what, w.late, w.latePrompt)
		}
	}
}

func (w *driftWindow) take(row Row, after time.Duration) {
	if row.CachedFrom == "" {
		return
	}
	w.rows++
	w.prompt += row.PromptTokens
	w.reused += row.CachedTokens
	w.computed += row.ComputedTokens
	l := row.Lost
	w.lost = Lost{w.lost.Cold + l.Cold, w.lost.Elsewhere + l.Elsewhere, w.lost.Evicted + l.Evicted, w.lost.EvictedSince + l.EvictedSince,
		w.lost.InFlight + l.InFlight, w.lost.Salt + l.Salt, w.lost.Stale + l.Stale}
	w.over += max(0, row.Drift)
	w.under += max(0, -row.Drift)
	// What was on its way, and is still, is no fault of what is known of the replica.
	off := max(row.Drift, -row.Drift) - l.InFlight
	if off >= 16 {
		w.last = max(w.last, after)
	}
	if after > 5*time.Second {
		w.lateRows++
		w.latePrompt += row.PromptTokens
		w.late += max(0, off)
	}
}

func readLedger(t *testing.T, path string) (rows []Row) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// ledgerLines counts the rows that have been written.
func ledgerLines(paths []string) (n int) {
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		n += bytes.Count(text, []byte("\n"))
	}
	return n
}

// inFlight is how many requests a router has on its replicas.
func inFlight(url string) int {
	resp, err := http.Get(url + "/v1/replicas")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	var body struct{ Replicas []ReplicaStatus }
	if json.NewDecoder(resp.Body).Decode(&body) != nil {
		return -1
	}
	n := 0
	for _, r := range body.Replicas {
		n += r.InFlight
	}
	return n
}

// link is a way to a replica that can be cut.
type link struct {
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
	armed bool // to be cut in the midst of the next answer
}

func newLink(t *testing.T, to string) *link {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { listener.Close(); l.cut() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			l.mu.Lock()
			l.conns[near], l.conns[far] = true, true
			l.mu.Unlock()
			pass := func(into, from net.Conn) {
				_, _ = io.Copy(into, io.TeeReader(from, l))
				near.Close()
				far.Close()
				l.mu.Lock()
				delete(l.conns, from)
				l.mu.Unlock()
			}
			go pass(far, near)
			go pass(near, far)
		}
	}()
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// cutMidStream breaks all connections once a part of a streamed answer has passed.
func (l *link) cutMidStream() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = true
}

// Write looks at what passes, before it is passed on.
func (l *link) Write(p []byte) (int, error) {
	l.mu.Lock()
	armed := l.armed && bytes.Contains(p, []byte("data: {")) && !bytes.Contains(p, []byte("[DONE]"))
	l.armed = l.armed && !armed
	l.mu.Unlock()
	if armed {
		time.AfterFunc(time.Millisecond, l.cut) // this part still arrives
	}
	return len(p), nil
}

// cut breaks all connections there are.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}
