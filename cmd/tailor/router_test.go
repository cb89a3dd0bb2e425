package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask posts a body and returns the answer, which must have that status.
func ask(t *testing.T, url, body string, want int, headers ...string) (answer string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("%s: %s, want %d: %s (%v)", url, resp.Status, want, text, err)
	}
	return string(text), resp.Header
}

// Conversations and texts reach the router as they reach the engines: what it predicts is
// delivered, to the block.
func TestRouterKnowsChatsAndTexts(t *testing.T) {
	type row struct {
		Path       string
		Prompt     int    `json:"prompt_tokens"`
		Predicted  int    `json:"predicted_cached_tokens"`
		CachedFrom string `json:"cached_from"`
		Cached     int    `json:"cached_tokens"`
		Drift      int    `json:"drift_tokens"`
	}
	router := startProcess(t, "up", "--listen", "127.0.0.1:0", "--replicas", "2", "--kv-blocks", "256").url(t)
	inStep := func() bool {
		for _, r := range getJSON[struct {
			Replicas []struct {
				URL      string
				EventSeq uint64 `json:"event_seq"`
			}
		}](t, router+"/v1/replicas").Replicas {
			if r.EventSeq != getJSON[struct{ Seq uint64 }](t, r.URL+"/v1/cache/snapshot").Seq {
				return false
			}
		}
		return true
	}
	sent, cached := 0, map[string]int{}
	check := func(path, body string) string {
		t.Helper()
		eventually(t, "the router in step", inStep)
		text, _ := ask(t, router+path, body, 200)
		sent++
		var rows struct {
			Written int
			Rows    []row
		}
		eventually(t, "the request's row", func() bool {
			rows = getJSON[struct {
				Written int
				Rows    []row
			}](t, router+"/v1/ledger?limit=1")
			return rows.Written == sent
		})
		if r := rows.Rows[0]; r.Drift != 0 || r.CachedFrom != "replica" || r.Predicted/16 != r.Cached/16 {
			t.Errorf("request %d, %s: predicted %d, delivered %d of %d tokens (%s)", sent, path, r.Predicted, r.Cached, r.Prompt, r.CachedFrom)
		}
		cached[path] += rows.Rows[0].Cached
		return text
	}
	turns := 5
	if testing.Short() {
		turns = 3
	}
	for person := range 2 {
		messages := []map[string]any{{"role": "system", "content": "You help people to book tables, hotels and flights, and you are patient with them. Be brief."}}
		for turn := range turns {
			said := fmt.Sprintf("I would like a table for %d on day %d, <|endoftext|> and that's all I'd need.", person+2, turn)
			content := any(said)
			if turn%2 == 1 { // in parts
				content = []map[string]any{{"type": "text", "text": said}, {"type": "text", "text": "Thank you."}}
			}
			messages = append(messages, map[string]any{"role": []string{"user", "developer"}[turn/2%2], "content": content})
			body, err := json.Marshal(map[string]any{"model": "tailor-4m", "messages": messages, "max_tokens": 12, "temperature": 0})
			if err != nil {
				t.Fatal(err)
			}
			var out struct {
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(check("/v1/chat/completions", string(body))), &out); err != nil {
				t.Fatal(err)
			}
			messages = append(messages, map[string]any{"role": "assistant", "content": out.Choices[0].Message.Content})
		}
	}
	shared := strings.Repeat("User: I would like to find a hotel in San Jose. Assistant: Which day suits you? ", 6)
	for turn := range 2 * turns {
		check("/v1/completions", fmt.Sprintf(`{"model":"tailor-4m","max_tokens":3,"prompt":%q}`, fmt.Sprint(shared, "User: On day ", turn, ", it's urgent.")))
	}
	check("/v1/completions", fmt.Sprintf(`{"model":"tailor-4m","max_tokens":3,"truncate_prompt_tokens":90,"prompt":%q}`, shared))
	check("/v1/completions", fmt.Sprintf(`{"model":"tailor-4m","max_tokens":3,"truncate_prompt_tokens":90,"prompt":%q}`, shared))
	for path, n := range cached {
		if n < 100 {
			t.Errorf("%s: %d tokens were cached: nothing was compared", path, n)
		}
	}
}

// A router lets in whom its replicas would let in, calls requests what they call them, and
// says in their words what they do not serve.
func TestRouteSpeaksAsItsReplicas(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("alice:ka\noperator:ko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(secret, []byte("ko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kv-blocks", "64", "--api-key-file", keys).url(t)
	router := startProcess(t, "route", "--listen", "127.0.0.1:0", "--replica", replica, "--api-key-file", keys,
		"--replica-key-file", secret, "--allow-origin", "https://a.example").url(t)
	eventually(t, "a ready replica", func() bool {
		resp, err := http.Head(router + "/health")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == 200
	})
	good := `{"model":"tailor-4m","prompt":"User: Hi.","max_tokens":2}`
	for _, url := range []string{replica, router} {
		ask(t, url+"/v1/completions", good, 401)
		ask(t, url+"/v1/completions", good, 401, "Authorization", "Bearer kx")
		for id, want := range map[string]string{"a/b c\\d\"e": "abcde", strings.Repeat("7", 300): strings.Repeat("7", 128), "x:y_z-1.2": "x:y_z-1.2"} {
			if _, h := ask(t, url+"/v1/completions", good, 200, "Authorization", "Bearer ka", "X-Request-Id", id); h.Get("X-Request-Id") != want {
				t.Errorf("%s calls request %q %q, want %q", url, id, h.Get("X-Request-Id"), want)
			}
		}
	}
	bad := `{"model":"gpt-9","prompt":"x"}`
	want, _ := ask(t, replica+"/v1/completions", bad, 404, "Authorization", "Bearer ka")
	if got, _ := ask(t, router+"/v1/completions", bad, 404, "Authorization", "Bearer ka"); got != want {
		t.Errorf("of another model the router says %s, the replica %s", got, want)
	}
	for path, statuses := range map[string]map[string]int{
		"/v1/ledger": {"": 401, "ka": 403, "ko": 200}, "/v1/models": {"": 401, "ka": 200}, "/metrics": {"": 200}, "/health": {"": 200},
	} {
		for key, status := range statuses {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, router+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if key != "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != status {
				t.Errorf("%s with key %q: %d, want %d", path, key, resp.StatusCode, status)
			}
		}
	}
}
