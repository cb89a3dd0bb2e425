package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const apiKey = "e2e-key"

var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tailor-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "tailor")
	build := exec.Command("go", "build", "-o", binary, "./cmd/tailor")
	build.Dir = ".."
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building tailor:", err)
		return 1
	}
	return m.Run()
}

// program is a running tailor.
type program struct {
	url string // the first address that it prints
	pid int
}

// start is startProgram where only the address matters.
func start(t *testing.T, args ...string) string {
	t.Helper()
	return startProgram(t, args...).url
}

// startProgram runs tailor until the test ends.
func startProgram(t *testing.T, args ...string) program {
	t.Helper()
	cmd := exec.Command(binary, append(args, "--listen", "127.0.0.1:0", "--api-key", "e2e:"+apiKey, "--check")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log lockedText
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("tailor ended with %v", err)
		}
		if t.Failed() {
			t.Logf("tailor's log:\n%s", log.String())
		}
	})
	address := make(chan string, 1)
	go func() {
		url := ""
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			for word := range strings.FieldsSeq(lines.Text()) {
				if url == "" && strings.HasPrefix(word, "http://") {
					url = word
				}
			}
			if strings.Contains(lines.Text(), "curl -s ") { // all that comes before it runs
				address <- url
			}
		}
		close(address)
	}()
	select {
	case url := <-address:
		if url == "" {
			t.Fatal("tailor printed no address")
		}
		return program{url, cmd.Process.Pid}
	case <-time.After(time.Minute):
		t.Fatal("tailor is not ready after a minute")
		return program{}
	}
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// targets are what the checklist runs against.
func targets(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"replica": start(t, "serve", "--kv-blocks", "256"),
		"router":  start(t, "up", "--replicas", "2", "--kv-blocks", "256"),
	}
}

// ask sends a plain request with the key.
func ask(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	return http.DefaultClient.Do(req)
}
