//go:build chaos

package router

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// chaosEvent is something that was done to a replica.
type chaosEvent struct {
	at   time.Time
	what string
	ids  []string // replicas that may break off answers they have begun
}

// chaosFleet is the processes of a run.
type chaosFleet struct {
	t         *testing.T
	dir       string
	binary    string // of a tailor; empty: caches without a model, and this package's router
	addresses map[string]string
	processes map[string]*exec.Cmd
	routers   []string // URLs
	ledgers   []string // files
	link      *link    // the first router's way to r3
}

func (f *chaosFleet) launch(id string) {
	log := filepath.Join(f.dir, id+".log")
	if f.binary != "" {
		f.processes[id] = spawn(f.t, log, exec.Command(f.binary, "serve", "--listen", f.addresses[id], "--id", id, "--threads", "1", "--kv-blocks", "1024", "--log-level", "warn"))
		return
	}
	f.processes[id] = child(f.t, "TestChaosReplica", log, "TAILOR_CHAOS_REPLICA="+f.addresses[id])
}

// startChaos starts 5 replicas, and 2 routers over them that are ready and follow them all.
func startChaos(t *testing.T) *chaosFleet {
	f := &chaosFleet{
		t: t, dir: t.TempDir(), binary: os.Getenv("TAILOR_CHAOS_BINARY"),
		addresses: map[string]string{}, processes: map[string]*exec.Cmd{},
	}
	for i := range 6 {
		id := fmt.Sprint("r", i)
		if f.addresses[id] = freeAddress(t); i < 5 {
			f.launch(id)
		}
	}
	f.link = newLink(t, f.addresses["r3"])
	for i := range 2 {
		address := freeAddress(t)
		f.routers = append(f.routers, "http://"+address)
		f.ledgers = append(f.ledgers, filepath.Join(f.dir, fmt.Sprint("ledger", i)))
		var named []string
		for k := range 5 {
			id := fmt.Sprint("r", k)
			at := f.addresses[id]
			if i == 0 && id == "r3" {
				at = f.link.address()
			}
			named = append(named, id+"=http://"+at)
		}
		log := filepath.Join(f.dir, fmt.Sprint("router", i, ".log"))
		if f.binary == "" {
			child(t, "TestChaosRouter", log, "TAILOR_CHAOS_ROUTER="+address, "TAILOR_CHAOS_LEDGER="+f.ledgers[i],
				"TAILOR_CHAOS_REPLICAS="+strings.Join(named, " "))
			continue
		}
		token := filepath.Join(f.dir, "token")
		if err := os.WriteFile(token, []byte(chaosToken), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"route", "--listen", address, "--ledger", f.ledgers[i], "--admin-token-file", token,
			"--retries", "4", "--health-interval", "250ms", "--health-timeout", "1s", "--log-level", "warn"}
		for _, r := range named {
			args = append(args, "--replica", r)
		}
		spawn(t, log, exec.Command(f.binary, args...))
	}
	for _, url := range f.routers {
		soon(t, "replicas ready and followed", func() bool { return exactReplicas(url) == 5 })
	}
	return f
}

// script is what happens, and when, as a part of the whole time.
func (f *chaosFleet) script(note func(what string, ids ...string)) []chaosStep {
	signal := func(id string, s syscall.Signal) { _ = f.processes[id].Process.Signal(s) }
	return []chaosStep{
		{0.10, func() { note("kill -9 r0", "r0"); _ = f.processes["r0"].Process.Kill(); _ = f.processes["r0"].Wait() }},
		{0.25, func() { note("SIGTERM r1"); signal("r1", syscall.SIGTERM) }},
		{0.40, func() {
			note("add r5")
			f.launch("r5")
			for _, url := range f.routers {
				admin(f.t, url, fmt.Sprintf(`{"id":"r5","url":"http://%s"}`, f.addresses["r5"]))
			}
		}},
		{0.50, func() { note("freeze r2", "r2"); signal("r2", syscall.SIGSTOP) }},
		{0.60, func() { note("thaw r2", "r2"); signal("r2", syscall.SIGCONT) }},
		{0.75, func() { note("cut router 0 from r3", "r3"); f.link.cutMidStream() }},
		{0.85, func() { note("r0 restarts, empty"); f.launch("r0") }},
	}
}

type chaosStep struct {
	at float64
	do func()
}

// TestChaos runs 5 replicas and 2 routers as separate processes under 200 requests a
// second of mixed prefixes, and kills, drains, adds, freezes, cuts and restarts replicas.
//
//	go test -tags chaos ./router -run 'TestChaos$' -v -timeout 20m
//
// TAILOR_CHAOS_SECONDS (180) and TAILOR_CHAOS_RATE (200) make it shorter or gentler. The
// replicas are caches without a model. With TAILOR_CHAOS_BINARY, the path of a tailor, they
// are real ones, and so are the routers; every answer is then compared with that of a
// replica that nothing happens to.
func TestChaos(t *testing.T) {
	seconds, rate := setting("TAILOR_CHAOS_SECONDS", 180), setting("TAILOR_CHAOS_RATE", 200)
	f := startChaos(t)
	var events []chaosEvent
	script := f.script(func(what string, ids ...string) {
		events = append(events, chaosEvent{time.Now(), what, ids})
		t.Logf("%s", what)
	})
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
	results := drive(f.routers, rate, seconds, f.binary != "")
	took := time.Since(start)
	stop()
	acting.Wait()
	for _, url := range f.routers {
		soon(t, "no request left on a replica", func() bool { return inFlight(url) == 0 })
	}
	soon(t, "a row for every request", func() bool { return ledgerLines(f.ledgers) >= len(results) })
	if f.binary == "" {
		for i, r := range results {
			results[i].want = strings.Join(chaosAnswer(r.tokens), "")
		}
	} else {
		f.addresses["reference"] = freeAddress(t)
		f.launch("reference")
		url := "http://" + f.addresses["reference"]
		soon(t, "the reference is ready", func() bool { resp, err := http.Get(url + "/health"); return err == nil && resp.Body.Close() == nil })
		ask(t, results, url)
	}
	judge(t, results, start, events)
	reportRequests(t, results, start, took, events)
	reportLedgers(t, f.ledgers, start, events, len(results))
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
