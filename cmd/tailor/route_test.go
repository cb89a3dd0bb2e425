package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRouteMisuse(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := "--replica=http://127.0.0.1:1"
	for _, args := range [][]string{
		{}, {one, "--block-size=0"}, {one, "--kv-blocks=0"}, {one, "--prefix-depth=-1"}, {one, "--retries=-1"},
		{one, "--hedge=-1s"}, {one, "--health-timeout=0s"}, {one, "--policy=sticky"}, {one, "--shadow=random,sticky"},
		{"--replicas-dns=nonsense"}, {"--replicas-dns=_http.name"}, {"--replica=nonsense"},
		{one, "--admin-token-file=" + empty}, {one, "--replica-key-file=/nowhere"}, {one, "--api-key-file=" + empty},
		{one, "--allow-origin=a.example"}, {one, "--tls-cert=/nowhere"},
	} {
		if code := run(append([]string{"route", "--listen=127.0.0.1:0"}, args...)); code != 2 {
			t.Errorf("route %v: exit status %d, want 2", args, code)
		}
	}
}

// The routers of a file of replicas follow the file, those with an admin token the API, and
// the ledger's file has a row for each request.
func TestRouteFollowsItsFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := write("replicas", "# none yet\n")
	ledger := filepath.Join(dir, "ledger")
	url := startProcess(t, "route", "--listen=127.0.0.1:0", "--replicas-file="+list, "--ledger="+ledger,
		"--admin-token-file="+write("token", "secret\n"), "--shadow=random").url(t)
	write("replicas", "a=http://127.0.0.1:1\n")
	eventually(t, "the file's replica is known", func() bool { return replicaState(t, url, "a") == "down" })
	write("replicas", "b=http://127.0.0.1:1\n")
	eventually(t, "the file's other replica is known", func() bool {
		return replicaState(t, url, "a") == "" && replicaState(t, url, "b") == "down"
	})
	for token, want := range map[string]int{"wrong": 401, "secret": 201} {
		req, err := http.NewRequest(http.MethodPost, url+"/v1/replicas", strings.NewReader(`{"id":"c","url":"http://127.0.0.1:1"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %s: status %d, want %d", token, resp.StatusCode, want)
		}
	}
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	eventually(t, "the row is in the file", func() bool {
		text, _ := os.ReadFile(ledger)
		return strings.Count(string(text), "\n") == 1 && strings.Contains(string(text), `"outcome":"no_replica"`)
	})
}
