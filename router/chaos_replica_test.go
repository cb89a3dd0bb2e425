//go:build chaos

package router

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// chaosAnswer is what any replica answers to a prompt, word by word: a wrong answer shows.
func chaosAnswer(tokens []int32) []string {
	sum := xxhash.Sum64String(pathKey("", tokens))
	words := make([]string, 5)
	for i := range words {
		words[i] = fmt.Sprintf("%04x", uint16(sum>>(12*i)))
	}
	return words
}

// TestChaosReplica is a replica's process, when the chaos test starts it as one. SIGTERM
// drains it.
func TestChaosReplica(t *testing.T) {
	address := os.Getenv("TAILOR_CHAOS_REPLICA")
	if address == "" {
		t.Skip("is a process of TestChaos")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &chaosReplica{eventReplica: eventReplica{
		id: fmt.Sprint("pid", os.Getpid()), cache: newNaiveCache(16), epoch: fmt.Sprint("epoch-", os.Getpid()),
		model: "tailor-4m", capacity: 512, news: make(chan struct{}),
	}}
	server := &http.Server{Handler: r, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		r.change(func() { r.draining = true })
		r.inside.Wait() // those on their way here are answered too, for a while
		time.Sleep(time.Second)
		r.inside.Wait()
		os.Exit(0)
	}()
	_ = server.Serve(listener)
}

// chaosReplica takes its time, streams, and has a bounded cache.
type chaosReplica struct {
	eventReplica
	inside   sync.WaitGroup
	draining bool
	oldest   int64
}

const chaosBlocks = 3000

func (r *chaosReplica) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	draining := r.draining
	if q.URL.Path == "/v1/completions" {
		r.inside.Add(1)
		defer r.inside.Done()
	}
	r.mu.Unlock()
	if draining && (q.URL.Path == "/health" || q.URL.Path == "/v1/completions") {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"the replica is draining"}}`)
		return
	}
	if q.URL.Path != "/v1/completions" {
		r.eventReplica.ServeHTTP(w, q)
		return
	}
	var body struct {
		Prompt []int32 `json:"prompt"`
	}
	if json.NewDecoder(q.Body).Decode(&body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	matched := 0
	r.change(func() {
		matched = min(16*r.cache.matched("", body.Prompt), len(body.Prompt)-1)
		if ev, news := r.cache.store("", body.Prompt); news {
			r.emit(ev)
		}
		r.trim()
	})
	time.Sleep(time.Duration(len(body.Prompt)-matched) * 20 * time.Microsecond)
	w.Header().Set(headerEpoch, r.epoch)
	w.Header().Set(headerCache, fmt.Sprintf("matched=%d, missed=%d, reason=cold", matched, len(body.Prompt)-matched))
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range chaosAnswer(body.Prompt) {
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":%q}]}\n\n", word)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// trim evicts the oldest leaves; the lock is held.
func (r *chaosReplica) trim() {
	ev := wireEvent{Type: eventRemoved}
	for tried := 0; len(r.cache.ids) > chaosBlocks && tried < 2*chaosBlocks; tried++ {
		if r.oldest >= r.cache.next {
			r.oldest = 0
		}
		id := r.oldest
		r.oldest++
		b := r.cache.ids[id]
		if b == nil || b.children > 0 {
			continue
		}
		if b.parent >= 0 {
			r.cache.ids[b.parent].children--
		}
		delete(r.cache.paths, pathKey(b.salt, b.tokens))
		delete(r.cache.ids, id)
		ev.Blocks = append(ev.Blocks, wireBlock{ID: id})
	}
	if len(ev.Blocks) > 0 {
		r.emit(ev)
	}
}
