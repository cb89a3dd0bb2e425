package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkAddedLatency sends streamed requests of 500 prompt tokens to one replica, 200 a
// second: in turn directly, through net/http's own reverse proxy and through the router.
// It reports what each of these adds to the direct way, in microseconds, at the median and
// the 99th percentile, until the first event and until the end. The replica streams a token
// every two milliseconds, or all eight at once: then what the router does after the last
// token, the ledger's row, comes before the first one is sent on.
//
//	go test ./router -run '^$' -bench AddedLatency -benchtime 9000x
func BenchmarkAddedLatency(b *testing.B) {
	b.Run("token=2ms", func(b *testing.B) { benchAddedLatency(b, 2*time.Millisecond) })
	b.Run("token=0ms", func(b *testing.B) { benchAddedLatency(b, 0) })
}

func benchAddedLatency(b *testing.B, token time.Duration) {
	const perSecond, events = 200, 8
	quiet := slog.New(slog.DiscardHandler)
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set(headerCache, "matched=480, missed=20, reason=cold")
		for i := range events {
			if i > 0 && token > 0 {
				<-time.After(token)
			}
			_, _ = io.WriteString(w, `data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer replica.Close()
	base, err := url.Parse(replica.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := httputil.NewSingleHostReverseProxy(base)
	bare.FlushInterval = -1
	bare.Transport = newTransport().other
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// It reads the body while it is already answering, which net/http's server cuts short.
		_ = http.NewResponseController(w).EnableFullDuplex()
		bare.ServeHTTP(w, r)
	}))
	defer plain.Close()
	rt, err := New(Config{Replicas: []Replica{{"r0", replica.URL}}, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { rt.Run(ctx) })
	routed := httptest.NewServer(rt)
	defer func() { routed.Close(); stop(); running.Wait() }()
	if err := rt.AwaitReady(ctx); err != nil {
		b.Fatal(err)
	}

	ways := []struct {
		name, url   string
		first, last []time.Duration
	}{{name: "direct", url: replica.URL}, {name: "bare", url: plain.URL}, {name: "routed", url: routed.URL}}
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DialContext: new(net.Dialer).DialContext, DisableCompression: true,
	}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	send := func(way, n int) {
		body := tokenBody(n%20, 480, n, 20, `,"stream":true,"max_tokens":8`)
		start := time.Now()
		resp, err := client.Post(ways[way].url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		defer resp.Body.Close()
		one := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, one); err != nil {
			b.Error(err)
			return
		}
		first := time.Since(start)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Error(err)
		}
		last := time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		ways[way].first = append(ways[way].first, first)
		ways[way].last = append(ways[way].last, last)
	}
	for n := range 60 { // connections are dialled, buffers made
		send(n%len(ways), n)
	}
	for i := range ways {
		ways[i].first, ways[i].last = nil, nil
	}
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	var flying sync.WaitGroup
	b.ResetTimer()
	for n := range b.N {
		<-tick.C
		flying.Go(func() { send(n%len(ways), n) })
	}
	flying.Wait()
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	at := func(d []time.Duration, q float64) float64 {
		if len(d) == 0 {
			return 0
		}
		slices.Sort(d)
		return float64(d[int(q*float64(len(d)-1))].Nanoseconds()) / 1e3
	}
	for _, w := range ways {
		for _, q := range []float64{0.5, 0.99} {
			name := fmt.Sprintf("%s-p%g", w.name, 100*q)
			if w.name == "direct" {
				b.ReportMetric(at(w.first, q), name+"-first-us")
				b.ReportMetric(at(w.last, q), name+"-end-us")
				continue
			}
			b.ReportMetric(at(w.first, q)-at(ways[0].first, q), name+"-first-added-us")
			b.ReportMetric(at(w.last, q)-at(ways[0].last, q), name+"-end-added-us")
		}
	}
}

// BenchmarkProxyWork is what the router itself does for a streamed request: everything but
// the network.
func BenchmarkProxyWork(b *testing.B) {
	answer := strings.Repeat("data: {\"choices\":[{\"index\":0,\"text\":\" word\"}]}\n\n", 8) + "data: [DONE]\n\n"
	rt, err := New(Config{
		Replicas: []Replica{{"r0", "http://h:1"}}, Log: slog.New(slog.DiscardHandler),
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			return &http.Response{
				StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
				Body: io.NopCloser(strings.NewReader(answer)),
			}, nil
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	rt.registry.replicas[0].state = StateReady
	body := tokenBody(1, 480, 1, 20, `,"stream":true,"max_tokens":8`)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/completions", strings.NewReader(body))
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
