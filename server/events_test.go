package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tailor/kvcache"
	"tailor/server/blocklog"
)

// scriptedCache is a prefix cache without a model: blocks of 2 tokens, 8 of them.
type scriptedCache struct {
	mu  sync.Mutex
	kv  *kvcache.Manager
	log *blocklog.Log
}

// BlockLog is called by all requests, for the epoch.
func (c *scriptedCache) BlockLog() *blocklog.Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log == nil {
		kv, err := kvcache.New(kvcache.Config{Blocks: 8, BlockSize: 2, Layers: 1, Heads: 1, HeadDim: 1})
		if err != nil {
			panic(err)
		}
		c.kv, c.log = kv, blocklog.New(kv)
	}
	return c.log
}

func (c *scriptedCache) BlockSnapshot(context.Context) (blocklog.Snapshot, error) {
	log := c.BlockLog()
	c.mu.Lock()
	defer c.mu.Unlock()
	return log.Snapshot(c.kv), nil
}

// compute has tokens computed, and so cached.
func (c *scriptedCache) compute(t testing.TB, salt string, tokens ...int32) {
	t.Helper()
	c.BlockLog()
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.kv.Allocate(salt, tokens)
	if err != nil {
		t.Fatal(err)
	}
	c.kv.Commit(s, s.Len()-s.Computed())
	c.kv.Free(s)
}

func (c *scriptedCache) clear(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.kv.Reset(); err != nil {
		t.Fatal(err)
	}
}

// pipe is an answer that is read while it is written. Everything waits in it, so that a
// bubble sees who is idle.
type pipe struct {
	*io.PipeWriter
	header    http.Header
	status    int
	deadlines []time.Time
	flushes   int
}

func (p *pipe) Header() http.Header    { return p.header }
func (p *pipe) WriteHeader(status int) { p.status = status }
func (p *pipe) FlushError() error      { p.flushes++; return nil }
func (p *pipe) SetWriteDeadline(at time.Time) error {
	p.deadlines = append(p.deadlines, at)
	return nil
}
func (p *pipe) Write(data []byte) (int, error) { return p.PipeWriter.Write(data) }

// stream asks a handler and returns what it writes, line by line. done is closed when the
// handler has returned.
func streamOf(t testing.TB, h http.Handler, target string) (p *pipe, lines *bufio.Scanner, leave func(), done chan struct{}) {
	t.Helper()
	r, w := io.Pipe()
	p = &pipe{PipeWriter: w, header: http.Header{}}
	ctx, cancel := context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = w.Close() }()
		h.ServeHTTP(p, httptest.NewRequestWithContext(ctx, "GET", target, nil))
	}()
	leave = func() { cancel(); _ = r.CloseWithError(errors.New("gone")) }
	return p, bufio.NewScanner(r), leave, done
}

// What goes over the wire, to the byte.
func TestEventsOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scriptedEngine{}
		s := New(Config{Engine: e, Tokenizer: tokens(t), ModelName: "m", Replica: "r", Log: slog.New(slog.DiscardHandler)})
		e.compute(t, "", 1, 2, 3, 4)
		p, lines, leave, done := streamOf(t, s.Handler(), "/v1/cache/events")
		began := time.Now()
		epoch := e.BlockLog().Epoch()
		next := func(after time.Duration, want string) {
			t.Helper()
			if !lines.Scan() {
				t.Fatalf("the stream ended: %v", lines.Err())
			}
			got := strings.ReplaceAll(lines.Text(), epoch, "E")
			if matched, _ := matchDigest(got, want); !matched {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if took := time.Since(began); took != after {
				t.Errorf("%s after %v, want %v", got, took, after)
			}
		}
		next(0, `{"epoch":"E","seq":1,"type":"stored","salt":"","parent":-1,"blocks":[{"id":0,"tokens":[1,2]},{"id":1,"tokens":[3,4]}]}`)
		next(0, `{"epoch":"E","seq":1,"type":"heartbeat","digest":"*"}`)
		if p.status != 200 || p.header.Get("Content-Type") != "application/x-ndjson" || p.header.Get("X-Tailor-Epoch") != epoch {
			t.Errorf("status %d, header %v", p.status, p.header)
		}
		next(time.Second, `{"epoch":"E","seq":1,"type":"heartbeat","digest":"*"}`)
		next(2*time.Second, `{"epoch":"E","seq":1,"type":"heartbeat","digest":"*"}`)
		time.Sleep(500 * time.Millisecond) // the bubble's time
		e.compute(t, "", 1, 2, 3, 4, 5, 6, 7)
		next(2500*time.Millisecond, `{"epoch":"E","seq":2,"type":"stored","salt":"","parent":1,"blocks":[{"id":2,"tokens":[5,6]}]}`)
		next(3*time.Second, `{"epoch":"E","seq":2,"type":"heartbeat","digest":"*"}`)
		e.compute(t, "a\"<\u2028", 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9)
		next(3*time.Second, `{"epoch":"E","seq":3,"type":"removed","blocks":[{"id":2}]}`)
		next(3*time.Second, `{"epoch":"E","seq":4,"type":"stored","salt":"a\"\u003c\u2028","parent":-1,"blocks":[`+
			`{"id":2,"tokens":[9,9]},{"id":3,"tokens":[9,9]},{"id":4,"tokens":[9,9]},{"id":5,"tokens":[9,9]},{"id":6,"tokens":[9,9]},{"id":7,"tokens":[9,9]}]}`)
		e.clear(t)
		next(3*time.Second, `{"epoch":"E","seq":5,"type":"cleared"}`)
		old := epoch
		epoch = e.BlockLog().Epoch()
		next(3*time.Second, `{"epoch":"E","seq":0,"type":"resync"}`)
		if lines.Scan() || lines.Err() != nil {
			t.Errorf("after a resync: %q, %v", lines.Text(), lines.Err())
		}
		<-done
		leave()
		for i, at := range p.deadlines {
			if at.Before(began.Add(s.WriteTimeout)) || at.After(time.Now().Add(s.WriteTimeout)) {
				t.Errorf("deadline %d is %v, it began %v", i, at, began)
			}
		}
		// At 0 s the events and the heartbeat, at 3 s the heartbeat and three times news,
		// or once or twice, as it came.
		if p.flushes < 8 || len(p.deadlines) < p.flushes {
			t.Errorf("%d deadlines, %d flushes", len(p.deadlines), p.flushes)
		}

		_, lines, leave, done = streamOf(t, s.Handler(), "/v1/cache/events?epoch="+old+"&from=1")
		next(3*time.Second, `{"epoch":"`+old+`","seq":2,"type":"stored","salt":"","parent":1,"blocks":[{"id":2,"tokens":[5,6]}]}`)
		leave() // in the middle of a batch
		<-done
	})
}

// matchDigest compares lines; a * in want is any digest.
func matchDigest(got, want string) (bool, string) {
	before, after, wild := strings.Cut(want, "*")
	if !wild {
		return got == want, ""
	}
	digest := strings.TrimSuffix(strings.TrimPrefix(got, before), after)
	return got == before+digest+after && len(digest) == 16 && strings.Trim(digest, "0123456789abcdef") == "", digest
}

func TestWhereStreamsBegin(t *testing.T) {
	e := &scriptedEngine{}
	r := newRig(t, e)
	e.compute(t, "", 1, 2)
	e.compute(t, "", 1, 2, 3, 4)
	epoch := e.BlockLog().Epoch()
	for query, want := range map[string]string{
		"":                               "stored1 stored2 heartbeat2",
		"?from=0":                        "stored1 stored2 heartbeat2",
		"?from=1":                        "stored2 heartbeat2",
		"?epoch=" + epoch:                "stored1 stored2 heartbeat2",
		"?epoch=" + epoch + "&from=1":    "stored2 heartbeat2",
		"?epoch=" + epoch + "&from=2":    "heartbeat2",
		"?epoch=" + epoch + "&from=3":    "resync2",
		"?epoch=other&from=1":            "resync2",
		"?epoch=" + epoch[:len(epoch)-1]: "resync2",
		"?from=18446744073709551615":     "resync2",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		res := r.open(ctx, "/v1/cache/events"+query)
		var got []string
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var line struct {
				Type string
				Seq  uint64
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(line.Type, line.Seq))
			if line.Type == "heartbeat" {
				cancel()
			}
		}
		cancel()
		_ = res.Body.Close()
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %s, want %s", query, text, want)
		}
	}
	for _, from := range []string{"x", "-1", "1.5", "18446744073709551616", "+1"} {
		r.do("GET", "/v1/cache/events?from="+from, "").mustRefuse(t, 400, "from")
	}
	r.do("POST", "/v1/cache/events", "").mustRefuse(t, 405, "")
	if a := r.do("HEAD", "/v1/cache/events", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %+v", a)
	}
}

// open asks and does not read.
func (r *rig) open(ctx context.Context, path string, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", r.http.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func TestSnapshotOnTheWire(t *testing.T) {
	e := &scriptedEngine{}
	r := newRig(t, e)
	epoch := e.BlockLog().Epoch()
	get := func() string {
		t.Helper()
		a := r.do("GET", "/v1/cache/snapshot", "")
		if a.status != 200 || a.header.Get("Content-Type") != "application/json" || !json.Valid([]byte(a.body)) {
			t.Errorf("%+v", a)
		}
		return strings.TrimSuffix(a.body, "\n")
	}
	if got, want := get(), `{"epoch":"`+epoch+`","seq":0,"block_size":2,"model":"tailor-4m","digest":"0000000000000000","salts":[]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	e.compute(t, "", 1, 2, 3, 4)
	e.compute(t, "", 1, 2, 5, 6)
	e.compute(t, "<>", 1, 2)
	want := `{"epoch":"` + epoch + `","seq":3,"block_size":2,"model":"tailor-4m","digest":"*","salts":[` +
		`{"salt":"","blocks":[{"id":0,"parent":-1,"tokens":[1,2]},{"id":1,"parent":0,"tokens":[3,4]},{"id":2,"parent":0,"tokens":[5,6]}]},` +
		`{"salt":"\u003c\u003e","blocks":[{"id":3,"parent":-1,"tokens":[1,2]}]}]}`
	if matched, _ := matchDigest(get(), want); !matched {
		t.Errorf("got  %s\nwant %s", get(), want)
	}
}

// Streams end when the server drains, and when it no longer does there can be new ones.
func TestDrainingEndsStreams(t *testing.T) {
	r := newRig(t, &scriptedEngine{})
	for range 2 {
		streams := make([]*http.Response, 3)
		for i := range streams {
			streams[i] = r.open(t.Context(), "/v1/cache/events")
		}
		r.SetDraining(true)
		for _, s := range streams {
			body, err := io.ReadAll(s.Body)
			_ = s.Body.Close()
			if err != nil || bytes.Contains(body, []byte("resync")) {
				t.Errorf("%q, %v", body, err)
			}
		}
		r.do("GET", "/v1/cache/events", "").mustRefuse(t, 503, "")
		if a := r.do("GET", "/v1/cache/snapshot", ""); a.status != 200 {
			t.Errorf("snapshot: %+v", a)
		}
		r.SetDraining(false)
	}
}

// A client that stops reading costs its own stream and nothing else.
func TestReaderThatStopsReading(t *testing.T) {
	e := &scriptedEngine{}
	r := newRig(t, e, func(c *Config) { c.WriteTimeout = 50 * time.Millisecond })
	res := r.open(t.Context(), "/v1/cache/events")
	defer res.Body.Close()
	// More than the connection has room for, then the deadline.
	lines := bufio.NewReader(res.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	salt := strings.Repeat("s", 1<<16)
	for i := range int32(500) {
		e.compute(t, salt, i, i)
	}
	deadline := time.After(10 * time.Second)
	for r.log.String() == "" || !strings.Contains(r.log.String(), "/v1/cache/events") {
		select {
		case <-deadline:
			t.Fatal("the stream is still open")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A client that is slower than the cache is told so, and holds nobody up meanwhile.
func TestReaderThatFallsBehind(t *testing.T) {
	e := &scriptedEngine{}
	s := New(Config{Engine: e, Tokenizer: tokens(t), ModelName: "m", Replica: "r", Log: slog.New(slog.DiscardHandler)})
	_, lines, leave, done := streamOf(t, s.Handler(), "/v1/cache/events")
	defer leave()
	lines.Scan() // it has begun
	for i := range int32(3000) {
		e.compute(t, "", i, i)
	}
	last := ""
	n := 0
	for ; lines.Scan(); n++ {
		last = lines.Text()
	}
	<-done
	if !strings.HasSuffix(last, `,"type":"resync"}`) || n > 1000 {
		t.Errorf("%d lines, the last one %s", n, last)
	}
}

// Who may read these reads everybody's prompts.
func TestEventsAreTheOperators(t *testing.T) {
	two := []Key{{"a", "sa"}, {"b", "sb"}, {Operator, "so"}}
	one := []Key{{"a", "sa"}, {"a", "other"}}
	for _, c := range []struct {
		keys    []Key
		isolate bool
		secret  string
		want    int
	}{
		{nil, false, "", 200},
		{one, false, "sa", 200},
		{one, false, "other", 200},
		{one, true, "sa", 403},
		{two, false, "sa", 403},
		{two, false, "sb", 403},
		{two, false, "so", 200},
		{two, true, "sa", 403},
		{two, true, "so", 200},
		{two, false, "nobody", 401},
	} {
		e := &scriptedEngine{}
		r := newRig(t, e, func(cfg *Config) { cfg.Keys, cfg.IsolateKeys = c.keys, c.isolate })
		for _, path := range []string{"/v1/cache/events", "/v1/cache/snapshot"} {
			ctx, cancel := context.WithCancel(t.Context())
			res := r.open(ctx, path, "Authorization", "Bearer "+c.secret)
			if res.StatusCode != c.want {
				t.Errorf("%s of %d keys, isolated %v, as %q: status %d, want %d", path, len(c.keys), c.isolate, c.secret, res.StatusCode, c.want)
			}
			cancel()
			_ = res.Body.Close()
		}
	}
}
