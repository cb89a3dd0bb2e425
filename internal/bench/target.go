package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tailor/internal/openai"
)

// The kinds of target.
const (
	KindRouter  = "tailor router"
	KindReplica = "tailor replica"
	KindForeign = "OpenAI server"
)

// ErrTarget says that a target is not what it would have to be.
var ErrTarget = errors.New("bench: unusable target")

// Target is a server that runs already. What is not known of it is empty or 0.
type Target struct {
	URL, Kind string
	Policy    string // the router's own
	Model     string
	// Replicas are those whose counters can be read.
	Replicas []Replica
	// Behind is how many replicas there are.
	Behind int
	// KVBlocks is each replica's pool, where all are alike.
	KVBlocks, BlockTokens, Threads int
	Context, Vocab                 int

	client *client
}

// serverInfo is a Tailor replica's GET /get_server_info.
type serverInfo struct {
	Epoch       string         `json:"epoch"`
	Replica     string         `json:"replica"`
	MaxModelLen int            `json:"max_model_len"`
	VocabSize   int            `json:"vocab_size"`
	BlockSize   int            `json:"block_size"`
	KVBlocks    map[string]int `json:"kv_blocks"`
	Settings    struct {
		Threads int `json:"threads"`
	} `json:"settings"`
}

// Probe finds out what runs at url, in read-only requests.
func Probe(ctx context.Context, url, key string) (*Target, error) {
	t := &Target{URL: url, Kind: KindForeign, client: newClient(url, key, 2)}
	var models struct {
		Data []struct {
			ID          string `json:"id"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := t.client.call(ctx, http.MethodGet, url+"/v1/models", nil, &models); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTarget, err)
	}
	if len(models.Data) > 0 {
		t.Model, t.Context = models.Data[0].ID, models.Data[0].MaxModelLen
	}
	var list struct {
		Policy   string `json:"policy"`
		Replicas []struct {
			ID    string `json:"id"`
			URL   string `json:"url"`
			State string `json:"state"`
		} `json:"replicas"`
	}
	if err := t.client.call(ctx, http.MethodGet, url+"/v1/replicas", nil, &list); err == nil && list.Policy != "" {
		t.Kind, t.Policy = KindRouter, list.Policy
		for _, r := range list.Replicas {
			if r.State == "ready" {
				t.Replicas = append(t.Replicas, Replica{ID: r.ID, URL: r.URL})
			}
		}
		t.Behind = len(t.Replicas)
		if t.Behind == 0 {
			return nil, fmt.Errorf("%w: the router at %s has no replica that is ready", ErrTarget, url)
		}
	} else if info, err := t.info(ctx, url); err == nil {
		t.Kind, t.Behind, t.Replicas = KindReplica, 1, []Replica{{ID: info.Replica, URL: url}}
	}
	return t, t.inspect(ctx)
}

func (t *Target) info(ctx context.Context, url string) (serverInfo, error) {
	var info serverInfo
	if err := t.client.call(ctx, http.MethodGet, url+"/get_server_info", nil, &info); err != nil {
		return info, err
	}
	if info.Epoch == "" || info.BlockSize == 0 {
		return info, fmt.Errorf("%w: %s is no Tailor replica", ErrTarget, url)
	}
	return info, nil
}

// inspect learns the replicas' sizes. A set in which one has no counters counts as one
// that has none: figures of a part of it would mislead.
func (t *Target) inspect(ctx context.Context) error {
	for i, r := range t.Replicas {
		info, err := t.info(ctx, r.URL)
		if err == nil {
			_, err = readCounters(ctx, t.client, r.URL)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			t.Replicas, t.KVBlocks, t.BlockTokens, t.Threads = nil, 0, 0, 0
			return nil
		}
		total := info.KVBlocks["total"]
		if i == 0 {
			t.KVBlocks, t.BlockTokens, t.Threads = total, info.BlockSize, info.Settings.Threads
			t.Context, t.Vocab = info.MaxModelLen, info.VocabSize
		}
		if t.KVBlocks != total || t.BlockTokens != info.BlockSize {
			t.KVBlocks = 0
		}
	}
	return nil
}

// Label names the target's one group: its policy, or what it is.
func (t *Target) Label() string {
	if t.Policy != "" {
		return t.Policy
	}
	return t.Kind
}

// Start returns how runs on the target begin: as it is, or with reset after its replicas
// have dropped their caches.
func (t *Target) Start(reset bool) Start {
	return func(ctx context.Context, _ string, _, _ int) (*Cluster, error) {
		if reset {
			if err := t.reset(ctx); err != nil {
				return nil, err
			}
		}
		return &Cluster{
			URL: t.URL, Router: t.Kind == KindRouter, Replicas: t.Replicas,
			Close: func() error { t.client.close(); return nil },
		}, nil
	}
}

// reset drops the caches; a foreign server may have the same endpoint.
func (t *Target) reset(ctx context.Context) error {
	urls := []string{t.URL}
	if t.Kind == KindRouter {
		if urls = nil; len(t.Replicas) == 0 {
			return fmt.Errorf("%w: the router's replicas are not Tailor's, so their caches cannot be reset through it", ErrTarget)
		}
		for _, r := range t.Replicas {
			urls = append(urls, r.URL)
		}
	}
	for _, url := range urls {
		var refused *statusError
		err := t.client.call(ctx, http.MethodPost, url+"/reset_prefix_cache", nil, nil)
		if errors.As(err, &refused) && refused.status == http.StatusNotFound {
			err = t.client.call(ctx, http.MethodPost, url+"/flush_cache", nil, nil)
		}
		if err != nil {
			return fmt.Errorf("%w: its cache cannot be reset: %w", ErrTarget, err)
		}
	}
	return nil
}

// maxCall bounds the answers of calls beside the requests.
const maxCall = 16 << 20

// call makes a request that is no completion, and reads its JSON into out unless nil.
func (c *client) call(ctx context.Context, method, url string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer drainBody(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %w", method, url, &statusError{resp.StatusCode, openai.ReadError(resp.StatusCode, resp.Body).Message})
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxCall)).Decode(out); err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	return nil
}
