package router

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
)

func TestLossByHand(t *testing.T) {
	for _, tt := range []struct {
		name   string
		r      reach
		reason string
		want   Lost
	}{
		{"all new", reach{prompt: 100}, "cold", Lost{Cold: 100}},
		{"as predicted", reach{prompt: 100, delivered: 64, predicted: 64, best: 64, seen: 64, anySalt: 64}, "cold", Lost{Cold: 36}},
		{"better than predicted", reach{prompt: 100, delivered: 70, predicted: 64, best: 64, seen: 64, anySalt: 64}, "", Lost{Cold: 30}},
		{"affinity lost to load", reach{prompt: 100, delivered: 16, predicted: 16, best: 80, seen: 80, anySalt: 80}, "", Lost{Elsewhere: 64, Cold: 20}},
		{"nobody has it any more", reach{prompt: 100, seen: 80, anySalt: 80}, "evicted", Lost{Evicted: 80, Cold: 20}},
		{"evicted on the way", reach{prompt: 100, delivered: 32, predicted: 80, best: 80, seen: 80, anySalt: 80}, "evicted", Lost{EvictedSince: 48, Cold: 20}},
		{"not done yet", reach{prompt: 100, delivered: 32, predicted: 80, best: 80, seen: 80, anySalt: 80}, "in_flight", Lost{InFlight: 48, Cold: 20}},
		{"never was there", reach{prompt: 100, predicted: 80, best: 96, seen: 96, anySalt: 96}, "cold", Lost{Stale: 80, Elsewhere: 16, Cold: 4}},
		{"another's salt", reach{prompt: 100, seen: 16, anySalt: 96}, "cold", Lost{Evicted: 16, Salt: 80, Cold: 4}},
		{"everything at once", reach{prompt: 100, delivered: 10, predicted: 20, best: 30, seen: 50, anySalt: 90}, "", Lost{Stale: 10, Elsewhere: 10, Evicted: 20, Salt: 40, Cold: 10}},
		{"estimates past the end", reach{prompt: 10, delivered: 4, predicted: 16, best: 32, seen: 64, anySalt: 64}, "", Lost{Stale: 6}},
	} {
		if got := tt.r.split(tt.reason); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// Whatever is claimed, every token that was computed has one cause.
func TestLossAddsUp(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		n := 1 + rng.IntN(50)
		r := reach{n, rng.IntN(n + 1), rng.IntN(60), rng.IntN(60), rng.IntN(60), rng.IntN(60)}
		l := r.split([]string{"", "evicted", "in_flight", "cold"}[rng.IntN(4)])
		if l.Sum() != n-r.delivered || min(l.Cold, l.Elsewhere, l.Evicted, l.EvictedSince, l.InFlight, l.Salt, l.Stale) < 0 {
			t.Fatalf("%+v: %+v", r, l)
		}
	}
}

func TestCacheHeader(t *testing.T) {
	for text, want := range map[string]delivered{
		"matched=480, missed=20, reason=evicted, evicted_ago=12.3": {CachedFromReplica, 480, 500, "evicted"},
		"matched=480; missed=21; reason=cold":                      {CachedFromReplica, 480, 501, "cold"},
		"matched=0, missed=7, reason=in_flight+cold":               {CachedFromReplica, 0, 7, "in_flight"},
		"matched=7": {CachedFromReplica, 7, 0, ""},
	} {
		if d, ok := readCacheHeader(http.Header{headerCache: {text}}); !ok || d != want {
			t.Errorf("%q: %+v, %v; want %+v", text, d, ok, want)
		}
	}
	for _, text := range []string{"", "matched", "matched=x, missed=2", "missed=3", "matched=-1", ";;,="} {
		if d, ok := readCacheHeader(http.Header{headerCache: {text}}); ok {
			t.Errorf("%q: %+v", text, d)
		}
	}
}

// Replicas that are not ours tell what was cached in their usage: in the whole answer, or
// in the last chunk of a stream.
func TestForeignUsageFeedsTheLedger(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":70,"completion_tokens":3,"total_tokens":73,"prompt_tokens_details":{"cached_tokens":%d}}`
	rt := newTestRouter(t, 1, nil)
	for i, stream := range []bool{false, true} {
		cached := 48 + 16*i
		rt.fakes[0].set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				if !stream {
					fmt.Fprintf(w, `{"choices":[],`+usage+`}`, cached)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}],\"usage\":null}\n\n")
				_ = http.NewResponseController(w).Flush()
				fmt.Fprintf(w, "data: {\"choices\":[],"+usage+"}\n\ndata: [DONE]\n\n", cached)
			}
		})
		rt.post(tokenBody(1, 64, i, 10, fmt.Sprintf(`,"stream":%v`, stream)))
		rows, _ := rt.ledger.last(1)
		row := rows[0]
		if row.CachedFrom != CachedFromUsage || row.CachedTokens != cached || row.PromptTokens != 70 || row.ComputedTokens != 70-cached {
			t.Errorf("stream %v: %+v", stream, row)
		}
		if row.Lost.Sum() != row.ComputedTokens || row.Drift != row.PredictedCached-cached {
			t.Errorf("stream %v: lost %+v, drift %d", stream, row.Lost, row.Drift)
		}
	}
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(200, "{}") })
	rt.post(tokenBody(1, 64, 2, 10, ""))
	if rows, _ := rt.ledger.last(1); rows[0].CachedFrom != CachedFromPredicted || rows[0].CachedTokens != rows[0].PredictedCached {
		t.Errorf("nothing told: %+v", rows[0])
	}
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(400, "") })
	rt.post(tokenBody(1, 64, 3, 10, ""))
	if rows, _ := rt.ledger.last(1); rows[0].CachedFrom != "" || rows[0].CachedTokens+rows[0].ComputedTokens+rows[0].Lost.Sum() != 0 {
		t.Errorf("refused: %+v", rows[0])
	}
}

// The same prompt under another salt is not new: it was lost to the salt.
func TestSaltsAreACause(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	post := func(salt string) Lost {
		body := tokenBody(1, 160, 0, 10, "")
		if salt != "" {
			body = tokenBody(1, 160, 0, 10, fmt.Sprintf(`,"cache_salt":%q`, salt))
		}
		rt.post(body)
		rows, _ := rt.ledger.last(1)
		return rows[0].Lost
	}
	for i, tt := range []struct {
		salt string
		want Lost
	}{
		{"a", Lost{Cold: 170}}, {"a", Lost{Cold: 10}}, {"b", Lost{Salt: 160, Cold: 10}},
		{"", Lost{Salt: 160, Cold: 10}}, {"", Lost{Cold: 10}}, {"c", Lost{Salt: 160, Cold: 10}},
	} {
		if got := post(tt.salt); got != tt.want {
			t.Errorf("request %d, salt %q: %+v, want %+v", i, tt.salt, got, tt.want)
		}
	}
}

func TestHistoryForgetsTheOldest(t *testing.T) {
	h := newHistory(10)
	for i := range int32(100) {
		c := chain(0, i, 1, 2)
		if n := h.match(c); n != 0 {
			t.Fatalf("chain %d: %d blocks known", i, n)
		}
		h.add(c)
		if n := h.match(c); n != 3 {
			t.Fatalf("chain %d: %d blocks after it was added", i, n)
		}
		if len(h.young)+len(h.old) > 2*(h.limit+3) {
			t.Fatalf("%d blocks kept", len(h.young)+len(h.old))
		}
	}
	if h.match(chain(0, 99, 1, 2)) != 3 || h.match(chain(0, 0, 1, 2)) != 0 {
		t.Error("forgets the wrong ones")
	}
}

// Every row is in the file, once and in order: those written while the router runs, and
// those of requests that end after it.
func TestLedgerFile(t *testing.T) {
	var file lockedFile
	l := newLedger(4, &file, nil)
	add := func(n int) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range n {
					l.add(Row{RequestID: "x"})
				}
			})
		}
		all.Wait()
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	add(5)
	go func() { defer close(done); l.run(ctx) }()
	add(50)
	stop()
	add(50)
	<-done
	add(5)
	lines, next := bufio.NewScanner(&file.b), uint64(0)
	for lines.Scan() {
		var row Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if row.Seq != next {
			t.Fatalf("row %d where %d should be", row.Seq, next)
		}
		next++
	}
	if next != 440 {
		t.Errorf("%d rows in the file, want 440", next)
	}
}

type lockedFile struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (f *lockedFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.b.Write(p)
}
