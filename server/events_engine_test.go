package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A tracker knows of a replica's cache what GET /v1/cache/snapshot and /v1/cache/events
// say, and nothing else.
type tracker struct {
	rig    *rig
	Epoch  string
	Seq    uint64
	blocks map[int]tracked

	events, resyncs, verified int
}

type tracked struct {
	salt   string
	parent int
	path   []int32
}

type wireBlocks []struct {
	ID     int
	Parent int
	Tokens []int32
}

// snapshot begins anew.
func (f *tracker) snapshot() error {
	a := f.rig.do("GET", "/v1/cache/snapshot", "")
	var s struct {
		Epoch     string
		Seq       uint64
		BlockSize int `json:"block_size"`
		Model     string
		Digest    string
		Salts     []struct {
			Salt   string
			Blocks wireBlocks
		}
	}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.status != http.StatusOK || s.BlockSize != 16 || s.Model != testModel {
		return fmt.Errorf("snapshot: status %d, %w: %.200s", a.status, err, a.body)
	}
	f.Epoch, f.Seq, f.blocks = s.Epoch, s.Seq, map[int]tracked{}
	for _, salt := range s.Salts {
		for _, b := range salt.Blocks {
			if err := f.store(salt.Salt, b.ID, b.Parent, b.Tokens); err != nil {
				return err
			}
		}
	}
	return f.verify(s.Digest)
}

func (f *tracker) store(salt string, id, parent int, tokens []int32) error {
	above, known := f.blocks[parent]
	if _, there := f.blocks[id]; there || parent >= 0 && (!known || above.salt != salt) || len(tokens) != 16 {
		return fmt.Errorf("block %d of %d tokens under %d: %+v", id, len(tokens), parent, above)
	}
	f.blocks[id] = tracked{salt, parent, slices.Concat(above.path, tokens)}
	return nil
}

func (f *tracker) verify(digest string) error {
	sum := uint64(0)
	for _, b := range f.blocks {
		data := append(binary.AppendUvarint(nil, uint64(len(b.salt))), b.salt...)
		for _, token := range b.path {
			data = binary.LittleEndian.AppendUint32(data, uint32(token))
		}
		sum += xxhash.Sum64(data)
	}
	if got := fmt.Sprintf("%016x", sum); got != digest {
		return fmt.Errorf("after event %d the %d blocks have digest %s, the replica says %s", f.Seq, len(f.blocks), got, digest)
	}
	f.verified++
	return nil
}

// follow reads a stream until enough says so, it ends, or something is wrong. slowly is
// called with each line. Where the replica asks for it, it begins anew.
func (f *tracker) follow(ctx context.Context, slowly func(), enough func(heartbeat bool) bool) error {
	for {
		if f.blocks == nil {
			if err := f.snapshot(); err != nil {
				return err
			}
		}
		res := f.rig.open(ctx, fmt.Sprintf("/v1/cache/events?epoch=%s&from=%d", f.Epoch, f.Seq))
		done, err := f.read(res.Body, slowly, enough)
		_ = res.Body.Close()
		if done || err != nil || ctx.Err() != nil {
			return err
		}
	}
}

func (f *tracker) read(body io.Reader, slowly func(), enough func(heartbeat bool) bool) (done bool, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		slowly()
		var e struct {
			Epoch, Type, Salt, Digest string
			Seq                       uint64
			Parent                    int
			Blocks                    wireBlocks
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return false, err
		}
		if e.Type == "resync" {
			f.resyncs++
			f.blocks = nil
			return false, nil
		}
		f.events++
		if e.Type != "heartbeat" {
			f.Seq++
		}
		if e.Seq != f.Seq || e.Epoch != f.Epoch {
			return false, fmt.Errorf("event %d of %s, want %d of %s", e.Seq, e.Epoch, f.Seq, f.Epoch)
		}
		switch e.Type {
		case "stored":
			for _, b := range e.Blocks {
				if err := f.store(e.Salt, b.ID, e.Parent, b.Tokens); err != nil {
					return false, err
				}
				e.Parent = b.ID
			}
		case "removed":
			for _, b := range e.Blocks {
				if _, there := f.blocks[b.ID]; !there {
					return false, fmt.Errorf("block %d is removed and was not there", b.ID)
				}
				delete(f.blocks, b.ID)
			}
		case "cleared":
			clear(f.blocks)
		case "heartbeat":
			if err := f.verify(e.Digest); err != nil {
				return false, err
			}
		default:
			return false, fmt.Errorf("type %q", e.Type)
		}
		if enough(e.Type == "heartbeat") {
			return true, nil
		}
	}
	return false, nil // however it ended: the position is still good
}

// Trackers beside random traffic on a small cache: one that keeps up, one whose
// connections break all the time, one that reads slowly. In the end all have, block by
// block, what a snapshot shows.
func TestTrackersOfTheRealEngine(t *testing.T) {
	const seed = 16
	r, e := realRig(t, 96)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	trackers := map[string]*tracker{"steady": {rig: r}, "cut off": {rig: r}, "slow": {rig: r}}
	stopped := make(chan struct{}) // traffic has
	var running sync.WaitGroup
	for name, f := range trackers {
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(len(name))))
			left := 0
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			slowly := func() {
				if name == "slow" {
					select {
					case <-tick.C:
					case <-stopped:
					}
				}
			}
			for over := false; !over; {
				err := f.follow(ctx, slowly, func(heartbeat bool) bool {
					select {
					case <-stopped:
						over = heartbeat // it has seen all, then
						return over
					default:
					}
					if left--; left < 0 && name == "cut off" {
						left = rnd.IntN(20)
						return true
					}
					return false
				})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}

	var traffic sync.WaitGroup
	rounds := 40
	if testing.Short() {
		rounds = 20
	}
	for client := range 3 {
		traffic.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(client)))
			for range rounds {
				tokens := make([]string, 1+rnd.IntN(200))
				for i := range tokens {
					tokens[i] = fmt.Sprint(1 + i/40*rnd.IntN(2)) // prompts that part now and then
				}
				fields := fmt.Sprintf(`"prompt":[%s],"max_tokens":%d,"n":%d,"temperature":1`, strings.Join(tokens, ","), 1+rnd.IntN(20), 1+rnd.IntN(2))
				if rnd.IntN(3) == 0 {
					fields += fmt.Sprintf(`,"cache_salt":"salt %d"`, rnd.IntN(2))
				}
				switch rnd.IntN(12) {
				case 0:
					_ = r.do("POST", "/reset_prefix_cache", "") // mostly there is somebody who holds it
				case 1: // leaves in the middle
					short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
					req, _ := http.NewRequestWithContext(short, "POST", r.http.URL+"/v1/completions", strings.NewReader(request(fields)))
					if res, err := r.http.Client().Do(req); err == nil {
						_ = res.Body.Close()
					}
					cancel()
				default:
					r.complete(fields)
				}
			}
		})
	}
	traffic.Wait()
	if a := r.do("POST", "/reset_prefix_cache", ""); a.status != 200 {
		t.Errorf("reset: %+v", a)
	}
	r.complete(`"prompt":"the cat sat on the mat and looked at the dog that lay under the table","max_tokens":40`)
	stats := mustBeIdle(t, e)
	close(stopped)
	running.Wait()

	last := &tracker{rig: r}
	if err := last.snapshot(); err != nil {
		t.Fatal(err)
	}
	for name, f := range trackers {
		t.Logf("%s: %d events, %d resyncs, %d digests compared", name, f.events, f.resyncs, f.verified)
		same := len(f.blocks) == len(last.blocks)
		for id, b := range last.blocks {
			same = same && f.blocks[id].salt == b.salt && f.blocks[id].parent == b.parent && slices.Equal(f.blocks[id].path, b.path)
		}
		if !same || f.Epoch != last.Epoch || f.Seq != last.Seq {
			t.Errorf("%s: after event %d of %s: %d blocks; the snapshot, after event %d of %s: %d", name, f.Seq, f.Epoch, len(f.blocks), last.Seq, last.Epoch, len(last.blocks))
		}
		if f.resyncs == 0 || f.events == 0 {
			t.Errorf("%s: %d events, %d resyncs", name, f.events, f.resyncs)
		}
	}
	if stats.KV.Evicted == 0 || len(last.blocks) == 0 || last.Epoch == "" {
		t.Errorf("%d evictions, %d blocks in the end", stats.KV.Evicted, len(last.blocks))
	}
	t.Logf("%d requests, %d evictions", stats.Requests, stats.KV.Evicted)
}
