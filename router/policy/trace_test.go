package policy

import (
	"container/list"
	"testing"
)

// traceRow is a request of Mooncake's conversation trace: the ids of its blocks of 512
// tokens, equal ids meaning equal prefixes.
type traceRow struct {
	Tokens int    `json:"input_length"`
	Blocks []Hash `json:"hash_ids"`
}

// lru is a replica's cache of a bounded number of blocks, the least recently used one
// going first.
type lru struct {
	room  int
	order list.List
	at    map[Hash]*list.Element
}

func (c *lru) prefix(blocks []Hash) int {
	for i, b := range blocks {
		if c.at[b] == nil {
			return i
		}
	}
	return len(blocks)
}

func (c *lru) add(blocks []Hash) {
	if c.at == nil {
		c.at = map[Hash]*list.Element{}
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		if e := c.at[blocks[i]]; e != nil {
			c.order.MoveToFront(e)
		} else {
			c.at[blocks[i]] = c.order.PushFront(blocks[i])
		}
	}
	for c.order.Len() > c.room {
		delete(c.at, c.order.Remove(c.order.Back()).(Hash))
	}
}

// replay sends a trace through a policy, one request at a time, to n replicas with room
// for that many blocks, and returns the share of blocks found in the replicas' caches
// and the largest share of the requests that one replica got.
func replay(t testing.TB, p Policy, rows []traceRow, n, room int) (hits, busiest float64) {
	caches := make([]lru, n)
	counts := make([]int, n)
	replicas := fleet(n)
	found, total := 0, 0
	for s, row := range rows {
		r := Request{Blocks: row.Blocks, BlockTokens: 512, Tokens: row.Tokens, Seq: uint64(s)}
		for i := range caches {
			caches[i].room = room
			replicas[i].Cached = min(512*caches[i].prefix(row.Blocks), row.Tokens-1)
		}
		d := choose(t, p, r, replicas)
		i := find(d.Candidates, d.Replica) // all are ready
		found += caches[i].prefix(row.Blocks)
		total += len(row.Blocks)
		counts[i]++
		caches[i].add(row.Blocks)
	}
	for _, c := range counts {
		busiest = max(busiest, float64(c)/float64(len(rows)))
	}
	return float64(found) / float64(total), busiest
}

// Four replicas, with room for 2,000 or 10,000 blocks each. Round robin and the hash of 4
// blocks have been counted independently on this trace: .079 and .174 with the small
// caches, .159 and .341 with the large ones. One cache with the room of all four finds
// .178 and .351: no placement can do better by more than chance.
func TestConversationTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("replays 12,031 requests many times")
	}
	rows := jsonLines[traceRow](t, sharedFile(t, "traces/mooncake/conversation_trace.jsonl"))
	within := func(what string, got, least, most float64) {
		t.Helper()
		t.Logf("%s: %.3f", what, got)
		if got < least || got > most {
			t.Errorf("%s: %.3f, want %.3f to %.3f", what, got, least, most)
		}
	}
	for _, tt := range []struct {
		room                   int
		roundRobin, hash, pool float64
	}{
		{2_000, .079, .174, .178},
		{10_000, .159, .341, .351},
	} {
		hits, _ := replay(t, NewRoundRobin(), rows, 4, tt.room)
		within("round robin", hits, tt.roundRobin-.002, tt.roundRobin+.002)
		hits, _ = replay(t, NewPrefixHash(4), rows, 4, tt.room)
		within("hash of 4 blocks", hits, tt.hash-.01, tt.hash+.01) // another hash, another placement
		hits, _ = replay(t, NewRoundRobin(), rows, 1, 4*tt.room)
		within("one pooled cache", hits, tt.pool-.002, tt.pool+.002)
		hits, busiest := replay(t, NewPrefixAffinity(DefaultOptions()), rows, 4, tt.room)
		within("prefix affinity", hits, .98*tt.pool, tt.pool+.005)
		within("prefix affinity, busiest replica", busiest, .25, .40)
	}
	// All requests share their first block. Following that alone is to use one replica.
	o := DefaultOptions()
	o.MinShare = 0
	_, busiest := replay(t, NewPrefixAffinity(o), rows[:1000], 4, 10_000)
	within("without a minimum share, busiest replica", busiest, 1, 1)
}
