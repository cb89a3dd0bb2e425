//go:build chaos

package router

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const chaosToken = "let-me"

// TestChaosRouter is a router's process, when the chaos test starts it as one.
func TestChaosRouter(t *testing.T) {
	address := os.Getenv("TAILOR_CHAOS_ROUTER")
	if address == "" {
		t.Skip("is a process of TestChaos")
	}
	file, err := os.Create(os.Getenv("TAILOR_CHAOS_LEDGER"))
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		LedgerFile: file, AdminToken: chaosToken, Retries: 4, FollowBlocks: 1 << 20,
		Health: Health{Interval: 250 * time.Millisecond, Timeout: time.Second},
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	for text := range strings.FieldsSeq(os.Getenv("TAILOR_CHAOS_REPLICAS")) {
		r, err := ParseReplica(text)
		if err != nil {
			t.Fatal(err)
		}
		config.Replicas = append(config.Replicas, r)
	}
	rt, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	go rt.Run(t.Context())
	t.Log(http.ListenAndServe(address, rt))
}

// child starts this test binary as one of the processes.
func child(t *testing.T, test, log string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), env...)
	return spawn(t, log, cmd)
}

func spawn(t *testing.T, log string, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// chaosResult is how a request ended, as its client saw it.
type chaosResult struct {
	at      time.Time
	replica string
	events  int
	err     string
	tokens  []int32
	text    string
}

// chaosEvent is something that was done to a replica.
type chaosEvent struct {
	at   time.Time
	what string
	ids  []string // replicas that may break off answers they have begun
}

// TestChaos runs 5 replicas and 2 routers as separate processes under 200 requests a
// second of mixed prefixes, and kills, drains, adds, freezes, cuts and restarts replicas.
//
//	go test -tags chaos ./router -run 'TestChaos$' -v -timeout 20m
//
// TAILOR_CHAOS_SECONDS (180) and TAILOR_CHAOS_RATE (200) make it shorter or gentler. The
// replicas are caches without a model. With TAILOR_CHAOS_BINARY, the path of a tailor, they
// are real ones, and so are the routers; answers are then compared with those of a replica
// that nothing happens to. Connections of real replicas are not cut.
func TestChaos(t *testing.T) {
	seconds, rate := setting("TAILOR_CHAOS_SECONDS", 180), setting("TAILOR_CHAOS_RATE", 200)
	dir := t.TempDir()
	addresses, processes := map[string]string{}, map[string]*exec.Cmd{}
	binary := os.Getenv("TAILOR_CHAOS_BINARY")
	launch := func(id string) {
		log := filepath.Join(dir, id+".log")
		if binary != "" {
			processes[id] = spawn(t, log, exec.Command(binary, "serve", "--listen", addresses[id], "--id", id, "--threads", "1", "--kv-blocks", "1024"))
			return
		}
		processes[id] = child(t, "TestChaosReplica", log, "TAILOR_CHAOS_REPLICA="+addresses[id])
	}
	var named []string
	for i := range 6 {
		id := fmt.Sprint("r", i)
		addresses[id] = freeAddress(t)
		if i < 5 {
			launch(id)
			named = append(named, id+"=http://"+addresses[id])
		}
	}
	var routers, ledgers []string
	for i := range 2 {
		address := freeAddress(t)
		routers = append(routers, "http://"+address)
		ledgers = append(ledgers, filepath.Join(dir, fmt.Sprint("ledger", i)))
		if binary != "" {
			token := filepath.Join(dir, "token")
			if err := os.WriteFile(token, []byte(chaosToken), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"route", "--listen", address, "--ledger", ledgers[i], "--admin-token-file", token, "--retries", "4", "--health-timeout", "2s"}
			for _, r := range named {
				args = append(args, "--replica", r)
			}
			spawn(t, filepath.Join(dir, fmt.Sprint("router", i, ".log")), exec.Command(binary, args...))
			continue
		}
		child(t, "TestChaosRouter", filepath.Join(dir, fmt.Sprint("router", i, ".log")), "TAILOR_CHAOS_ROUTER="+address,
			"TAILOR_CHAOS_LEDGER="+ledgers[i], "TAILOR_CHAOS_REPLICAS="+strings.Join(named, " "))
	}
	for _, url := range routers {
		soon(t, "replicas ready and followed", func() bool { return exactReplicas(url) == 5 })
	}

	var events []chaosEvent
	note := func(what string, ids ...string) {
		events = append(events, chaosEvent{time.Now(), what, ids})
		t.Logf("%s", what)
	}
	script := []struct {
		at float64 // of the whole time
		do func()
	}{
		{0.10, func() { note("kill -9 r0", "r0"); _ = processes["r0"].Process.Kill(); _ = processes["r0"].Wait() }},
		{0.25, func() { note("SIGTERM r1"); _ = processes["r1"].Process.Signal(syscall.SIGTERM) }},
		{0.40, func() {
			note("add r5")
			launch("r5")
			for _, url := range routers {
				admin(t, url, fmt.Sprintf(`{"id":"r5","url":"http://%s"}`, addresses["r5"]))
			}
		}},
		{0.50, func() { note("freeze r2", "r2"); _ = processes["r2"].Process.Signal(syscall.SIGSTOP) }},
		{0.60, func() { note("thaw r2", "r2"); _ = processes["r2"].Process.Signal(syscall.SIGCONT) }},
		{0.75, func() {
			if binary != "" {
				return
			}
			note("cut r3's connections", "r3")
			_ = processes["r3"].Process.Signal(syscall.SIGUSR1)
		}},
		{0.85, func() { note("r0 restarts, empty"); launch("r0") }},
	}
	ctx, stop := context.WithCancel(t.Context())
	var acting sync.WaitGroup
	start := time.Now()
	acting.Go(func() {
		for _, s := range script {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(start.Add(time.Duration(s.at * float64(seconds) * float64(time.Second))))):
				s.do()
			}
		}
	})
	results := drive(routers, rate, seconds)
	stop()
	acting.Wait()
	if binary == "" {
		for _, r := range results {
			if want := strings.Join(chaosAnswer(r.tokens), ""); r.err == "" && r.text != want {
				t.Errorf("wrong answer from %s: %q, want %q", r.replica, r.text, want)
			}
		}
	} else {
		addresses["reference"] = freeAddress(t)
		launch("reference")
		url, checked := "http://"+addresses["reference"], 0
		soon(t, "the reference is ready", func() bool { resp, err := http.Get(url + "/health"); return err == nil && resp.Body.Close() == nil })
		for i := 0; i < len(results); i += max(1, len(results)/200) {
			r := results[i]
			if want := chaosRequest(http.DefaultClient, url, r.tokens); r.err == "" && r.text != want.text {
				t.Errorf("wrong answer from %s: %q, want %q", r.replica, r.text, want.text)
			}
			checked++
		}
		t.Logf("%d answers compared with the reference's", checked)
	}

	lost, broken := 0, 0
	for _, r := range results {
		switch {
		case r.err == "":
		case r.events > 0 && slices.ContainsFunc(events, func(e chaosEvent) bool {
			return slices.Contains(e.ids, r.replica) && r.at.After(e.at.Add(-2*time.Second)) && r.at.Before(e.at.Add(15*time.Second))
		}):
			broken++ // it had its first byte of a replica that broke off
		default:
			if lost++; lost <= 10 {
				t.Errorf("%s: lost on %q after %d events: %s", r.at.Sub(start), r.replica, r.events, r.err)
			}
		}
	}
	t.Logf("%d requests, %d broke off after their first byte on a replica that did, %d lost", len(results), broken, lost)
	report(t, ledgers, start, events, len(results))
}

func setting(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

func exactReplicas(url string) int {
	resp, err := http.Get(url + "/v1/replicas")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var body struct{ Replicas []ReplicaStatus }
	if json.NewDecoder(resp.Body).Decode(&body) != nil {
		return 0
	}
	n := 0
	for _, r := range body.Replicas {
		if r.State == StateReady && r.Knowledge == KnowledgeExact {
			n++
		}
	}
	return n
}

func admin(t *testing.T, url, body string) {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/replicas", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+chaosToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("adding a replica: status %d", resp.StatusCode)
	}
}

// drive sends requests at a steady rate to the routers in turn, whether or not earlier
// ones have been answered.
func drive(routers []string, rate, seconds int) []chaosResult {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	rng := rand.New(rand.NewPCG(1, 2))
	prefixes := make([][]int32, 60)
	for i := range prefixes {
		prefixes[i] = make([]int32, 64+rng.IntN(400))
		for k := range prefixes[i] {
			prefixes[i][k] = rng.Int32N(4096)
		}
	}
	zipf := rand.NewZipf(rng, 1.2, 3, uint64(len(prefixes)-1))
	var mu sync.Mutex
	var results []chaosResult
	var flying sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := range rate * seconds {
		<-tick.C
		tokens := slices.Clone(prefixes[zipf.Uint64()])
		for range 8 + rng.IntN(40) {
			tokens = append(tokens, rng.Int32N(4096))
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
	r := chaosResult{tokens: tokens}
	resp, err := client.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err == nil {
		defer resp.Body.Close()
		r.replica = resp.Header.Get(headerReplica)
		err = r.read(resp)
	}
	if r.at = time.Now(); err != nil {
		r.err = err.Error()
	}
	return r
}

func (r *chaosResult) read(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
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
			return fmt.Errorf("after %d events: %s", r.events, data)
		default:
			r.events++
			for _, c := range chunk.Choices {
				r.text += c.Text
			}
		}
	}
	return fmt.Errorf("broke off after %d events: %v", r.events, lines.Err())
}

// report checks the sums of every row and prints, for the time after each event, how far
// predictions were off and what was computed again because of it.
func report(t *testing.T, ledgers []string, start time.Time, events []chaosEvent, requests int) {
	type window struct {
		rows, over, under, prompt, again int
		lateOver, lateUnder, lateRows    int
	}
	events = append([]chaosEvent{{at: start, what: "calm"}}, events...)
	windows := make([]window, len(events))
	rows := 0
	for _, path := range ledgers {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var row Row
			if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
				t.Fatal(err)
			}
			rows++
			if row.CachedFrom != "" && (row.PromptTokens != row.CachedTokens+row.ComputedTokens || row.Lost.Sum() != row.ComputedTokens) {
				t.Errorf("the sums of a row are wrong: %s", lines.Text())
			}
			i := len(events) - 1
			for i > 0 && row.Time.Before(events[i].at) {
				i--
			}
			w := &windows[i]
			w.rows++
			w.prompt += row.PromptTokens
			w.over += max(0, row.Drift)
			w.under += max(0, -row.Drift)
			w.again += row.Lost.Sum() - row.Lost.Cold
			if row.Time.After(events[i].at.Add(5 * time.Second)) {
				w.lateRows++
				w.lateOver += max(0, row.Drift)
				w.lateUnder += max(0, -row.Drift)
			}
		}
		file.Close()
	}
	if rows != requests {
		t.Errorf("%d rows in the ledgers, %d requests were sent", rows, requests)
	}
	for i, w := range windows {
		t.Logf("%-22s %5d requests, %7d prompt tokens, %6d computed again; predicted too much %5d, too little %5d tokens; after 5 s: %d, %d of %d requests",
			events[i].what, w.rows, w.prompt, w.again, w.over, w.under, w.lateOver, w.lateUnder, w.lateRows)
	}
}
