package router

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// eventReplica is a replica that computes nothing but keeps a cache and tells of it: the
// protocol of block events over a naive cache.
type eventReplica struct {
	id     string
	server *httptest.Server

	mu       sync.Mutex
	cache    *naiveCache
	epoch    string
	seq      uint64
	ring     []string // the last events, the oldest first; the last one is number seq
	model    string
	capacity int           // of ring
	news     chan struct{} // closed, and replaced, with each event and cut
	cuts     int           // streams that began before the last cut end
	restarts int
	silent   bool   // serves no events at all: 404
	lie      uint64 // added to the digest of heartbeats
	streams  int
}

func newEventReplica(t testing.TB, id string) *eventReplica {
	e := &eventReplica{id: id, cache: newNaiveCache(16), epoch: id + "-0", model: "m", capacity: 64, news: make(chan struct{})}
	e.server = httptest.NewUnstartedServer(e)
	e.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	e.server.Start()
	t.Cleanup(func() {
		e.server.CloseClientConnections()
		e.server.Close()
	})
	return e
}

// change does something to the replica and wakes its streams.
func (e *eventReplica) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
	close(e.news)
	e.news = make(chan struct{})
}

// emit numbers an event and keeps it; the lock is held.
func (e *eventReplica) emit(ev wireEvent) {
	e.seq++
	line := fmt.Sprintf(`{"epoch":%q,"seq":%d,"type":%q`, e.epoch, e.seq, ev.Type)
	if ev.Type == eventStored {
		line += fmt.Sprintf(`,"salt":%q,"parent":%d`, ev.Salt, ev.Parent)
	}
	if len(ev.Blocks) > 0 {
		var blocks []string
		for _, b := range ev.Blocks {
			text := fmt.Sprintf(`{"id":%d`, b.ID)
			if b.Tokens != nil {
				text += `,"tokens":` + jsonInts(b.Tokens)
			}
			blocks = append(blocks, text+"}")
		}
		line += `,"blocks":[` + strings.Join(blocks, ",") + "]"
	}
	e.ring = append(e.ring, line+"}")
	if len(e.ring) > e.capacity {
		e.ring = e.ring[len(e.ring)-e.capacity:]
	}
}

// restart is a new process: nothing is held, and all is numbered anew.
func (e *eventReplica) restart() {
	e.change(func() {
		e.restarts++
		e.epoch, e.seq, e.ring, e.cache = fmt.Sprintf("%s-%d", e.id, e.restarts), 0, nil, newNaiveCache(16)
		e.cuts++
	})
}

// cut breaks all streams of events off.
func (e *eventReplica) cut() { e.change(func() { e.cuts++ }) }

func (e *eventReplica) evict(n int, rng *rand.Rand) {
	e.change(func() {
		if ev := e.cache.evict(n, rng); len(ev.Blocks) > 0 {
			e.emit(ev)
		}
	})
}

func (e *eventReplica) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	epoch, silent := e.epoch, e.silent
	e.mu.Unlock()
	w.Header().Set(headerEpoch, epoch)
	switch {
	case r.URL.Path == "/health":
	case r.URL.Path == "/v1/completions":
		e.complete(w, r)
	case silent:
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == "/v1/cache/snapshot":
		e.mu.Lock()
		text := e.cache.snapshot(e.epoch, e.model, e.seq)
		e.mu.Unlock()
		_, _ = io.WriteString(w, text)
	case r.URL.Path == "/v1/cache/events":
		e.stream(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (e *eventReplica) complete(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q struct {
		Prompt []int32 `json:"prompt"`
		Salt   string  `json:"cache_salt"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	matched := 0
	e.change(func() {
		matched = min(16*e.cache.matched(q.Salt, q.Prompt), len(q.Prompt)-1)
		if ev, news := e.cache.store(q.Salt, q.Prompt); news {
			e.emit(ev)
		}
	})
	w.Header().Set(headerCache, fmt.Sprintf("matched=%d, missed=%d, reason=cold", matched, len(q.Prompt)-matched))
	_, _ = io.WriteString(w, wholeAnswer)
}

// stream sends events as they come, and heartbeats in between.
func (e *eventReplica) stream(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.ParseUint(r.URL.Query().Get("from"), 10, 64)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	control := http.NewResponseController(w)
	beat := time.NewTicker(10 * time.Millisecond)
	defer beat.Stop()
	e.mu.Lock()
	e.streams++
	cuts := e.cuts
	e.mu.Unlock()
	for first := true; ; first = false {
		e.mu.Lock()
		out, news := "", e.news
		oldest := e.seq - uint64(len(e.ring)) // the number before the oldest kept
		switch {
		case e.cuts != cuts:
			e.mu.Unlock()
			panic(http.ErrAbortHandler)
		case r.URL.Query().Get("epoch") != e.epoch || from < oldest || from > e.seq:
			out = fmt.Sprintf(`{"epoch":%q,"seq":%d,"type":"resync"}`+"\n", e.epoch, e.seq)
		default:
			for _, line := range e.ring[from-oldest:] {
				out += line + "\n"
			}
			if from = e.seq; out == "" && !first {
				out = fmt.Sprintf(`{"epoch":%q,"seq":%d,"type":"heartbeat","digest":"%016x"}`+"\n", e.epoch, e.seq, e.cache.digest()+e.lie)
			}
		}
		e.mu.Unlock()
		if _, err := io.WriteString(w, out); err != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-news:
		case <-beat.C:
		}
	}
}
