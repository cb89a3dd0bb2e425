package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tailor/internal/openai"
)

// runAsTailor makes the test binary behave as the program, so that tests can start real
// processes of it without building it first.
const runAsTailor = "TAILOR_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsTailor) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// process is a running tailor.
type process struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	ready  chan struct{} // closed when the ready line has been printed, or output ended
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startProcess runs tailor with args and returns once it has printed the line that tells a
// person how to use it, which is its last.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), output: &lockedBuffer{}, ready: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), runAsTailor+"=1")
	p.cmd.Stderr = p.output
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("tailor %s:\n%s", strings.Join(args, " "), p.output)
		}
	})
	go func() {
		once := sync.OnceFunc(func() { close(p.ready) })
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			fmt.Fprintln(p.output, lines.Text())
			if strings.Contains(lines.Text(), "curl -s ") {
				once()
			}
		}
		once()
	}()
	select {
	case <-p.ready:
	case <-time.After(time.Minute):
		t.Fatalf("tailor %s: not ready after a minute:\n%s", strings.Join(args, " "), p.output)
	}
	return p
}

// url finds the first address that the process printed.
func (p *process) url(t *testing.T) string {
	t.Helper()
	for _, word := range strings.Fields(p.output.String()) {
		if strings.HasPrefix(word, "http://") {
			return strings.TrimSuffix(word, ",")
		}
	}
	t.Fatalf("no address in:\n%s", p.output)
	return ""
}

// kill ends the process as kill -9 does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

func complete(ctx context.Context, url, replica string, r openai.CompletionRequest) (*http.Response, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if replica != "" {
		req.Header.Set("x-tailor-replica", replica)
	}
	return http.DefaultClient.Do(req)
}

// eventually asks until the answer is yes; the deadline only bounds a failing test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

// replicaState is what the router's health says of a replica; "" if it does not know it.
func replicaState(t *testing.T, router, id string) string {
	t.Helper()
	resp, err := http.Get(router + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var health struct {
		Replicas []struct{ ID, State string } `json:"replicas"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
		t.Fatal(err)
	}
	for _, r := range health.Replicas {
		if r.ID == id {
			return r.State
		}
	}
	return ""
}

// TestKilledReplicaCostsOnlyWhatItWasStreaming runs three replicas and a router as separate
// processes and kills one under load, as kill -9 does.
func TestKilledReplicaCostsOnlyWhatItWasStreaming(t *testing.T) {
	var replicas []*process
	args := []string{"route", "--listen", "127.0.0.1:0", "--policy", "round_robin"}
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		p := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--id", id, "--kv-blocks", "512", "--check")
		replicas = append(replicas, p)
		args = append(args, "--replica", id+"="+p.url(t))
	}
	router := startProcess(t, args...).url(t)
	for _, id := range ids {
		eventually(t, "replica "+id+" ready", func() bool { return replicaState(t, router, id) == "ready" })
	}
	deadURL := replicas[1].url(t)

	greedy, yes, long, short := 0.0, true, 900, 8
	streamed := openai.CompletionRequest{
		Model: "tailor-4m", Prompt: openai.TextPrompt("User: Hello."), MaxTokens: &long,
		Temperature: &greedy, Stream: &yes, IgnoreEOS: &yes,
	}
	plain := openai.CompletionRequest{
		Model: "tailor-4m", Prompt: openai.TextPrompt("User: I need a hotel.\nAssistant:"), MaxTokens: &short, Temperature: &greedy,
	}

	// Two long streams on the replica that will die, one on another.
	var dying []stream
	for range 2 {
		dying = append(dying, openStream(t, router, "b", streamed))
	}
	living := openStream(t, router, "a", streamed)

	// Other requests go on all the while, and none of them may fail.
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	failures := make(chan error, 4)
	served := make(chan string, 4096)
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				resp, err := complete(ctx, router, "", plain)
				if err == nil {
					var body []byte
					body, err = io.ReadAll(resp.Body)
					resp.Body.Close()
					if err == nil && resp.StatusCode != http.StatusOK {
						err = fmt.Errorf("%s: %s", resp.Status, body)
					}
				}
				if err != nil {
					if ctx.Err() == nil {
						failures <- err
					}
					return
				}
				select {
				case served <- resp.Header.Get("x-tailor-replica"):
				default:
				}
			}
		})
	}
	await := func(n int) map[string]int {
		seen := map[string]int{}
		for range n {
			select {
			case id := <-served:
				seen[id]++
			case err := <-failures:
				t.Fatalf("a request failed: %v", err)
			}
		}
		return seen
	}
	if seen := await(30); seen["b"] == 0 {
		t.Fatalf("before the kill, the load went to %v: want some on b", seen)
	}

	replicas[1].kill(t)

	for i, s := range dying {
		if err := readToEnd(s.body); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("stream %d of the killed replica ended with %v: want an error chunk", i, err)
		}
		s.resp.Body.Close()
	}
	eventually(t, "replica b out of the choice", func() bool { return replicaState(t, router, "b") == "down" })
	for len(served) > 0 {
		<-served // answered before the router knew
	}
	await(20)
	if seen := await(30); seen["b"] != 0 {
		t.Errorf("after the kill, the load went to %v", seen)
	}
	if err := readToEnd(living.body); err != nil {
		t.Errorf("a stream of another replica ended with %v", err)
	}
	living.resp.Body.Close()

	// It comes back at its old address.
	startProcess(t, "serve", "--listen", strings.TrimPrefix(deadURL, "http://"), "--id", "b", "--kv-blocks", "512", "--check")
	eventually(t, "replica b ready again", func() bool { return replicaState(t, router, "b") == "ready" })
	back := false
	for !back {
		back = await(1)["b"] > 0
	}
	cancel()
	load.Wait()
}

// stream is an answer that has begun.
type stream struct {
	body *openai.StreamReader
	resp *http.Response
}

func openStream(t *testing.T, router, replica string, r openai.CompletionRequest) stream {
	t.Helper()
	resp, err := complete(t.Context(), router, replica, r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("stream on %s: %s: %s", replica, resp.Status, body)
	}
	s := stream{body: openai.NewStreamReader(resp.Body), resp: resp}
	if _, err := s.body.Next(); err != nil {
		t.Fatalf("stream on %s: %v", replica, err)
	}
	return s
}

// readToEnd reads a stream until [DONE]; an error chunk is an error.
func readToEnd(s *openai.StreamReader) error {
	for {
		data, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var chunk struct {
			Error *openai.Error `json:"error"`
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return err
		}
		if chunk.Error != nil {
			return chunk.Error
		}
	}
}

// TestTerminateDrains lets a process finish what it streams after SIGTERM, and exit 0.
func TestTerminateDrains(t *testing.T) {
	p := startProcess(t, "up", "--listen", "127.0.0.1:0", "--replicas", "2", "--kv-blocks", "128", "--check")
	greedy, yes, long := 0.0, true, 500
	s := openStream(t, p.url(t), "", openai.CompletionRequest{
		Model: "tailor-4m", Prompt: openai.TextPrompt("User: Hello."), MaxTokens: &long,
		Temperature: &greedy, Stream: &yes, IgnoreEOS: &yes,
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := readToEnd(s.body); err != nil {
		t.Errorf("the stream under way ended with %v", err)
	}
	s.resp.Body.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func TestMisuseExitsWith2AndSaysWhat(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--block-size", "0"}, "--block-size 0: must be 1 to 256"},
		{[]string{"serve", "--block-size", "x"}, "--block-size"},
		{[]string{"up", "--replicas", "0"}, "--replicas 0"},
		{[]string{"up", "--policy", "best"}, `"best"`},
		{[]string{"route"}, "--replica"},
		{[]string{"route", "--replica", "nonsense"}, "nonsense"},
		{[]string{"bench", "--prefixes", "7"}, "--prefixes 7"},
		{[]string{"bench", "--policies", "best"}, `"best"`},
		{[]string{"verify", "--tokens", "0"}, "--tokens 0"},
		{[]string{"serve", "--log-level", "loud"}, `"loud"`},
		{[]string{"dance"}, `"dance"`},
		{[]string{"gpu", "--wide"}, "--wide"},
	} {
		cmd := exec.Command(os.Args[0], c.args...)
		cmd.Env = append(os.Environ(), runAsTailor+"=1")
		output, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(output), c.want) {
			t.Errorf("tailor %s: %v, output %q; want status 2 and a message with %q", strings.Join(c.args, " "), err, output, c.want)
		}
	}
	cmd := exec.Command(os.Args[0], "serve", "--model", "/no/such/folder")
	cmd.Env = append(os.Environ(), runAsTailor+"=1")
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(output), "/no/such/folder") {
		t.Errorf("serve of an absent folder: %v, %q", err, output)
	}
}
