package kvcache

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestView(t *testing.T) {
	m, now := timed(t, 10)
	serve(t, m, "secret-1", count(0, 8), 0)
	*now = now.Add(time.Minute)
	serve(t, m, "secret-2", count(0, 4), 0)
	*now = now.Add(time.Minute)
	s := start(t, m, "secret-1", count(0, 6), 5)
	*now = now.Add(time.Minute)

	text, err := json.MarshalIndent(m.View(2), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "time": "2001-09-09T01:49:40Z",
 "block_size": 4,
 "eviction": "lru",
 "totals": {
  "total": 10,
  "free": 6,
  "held": 4,
  "cached": 3,
  "evictable": 2,
  "evicted": 0,
  "tokens": 12,
  "nodes": 3,
  "salts": 2,
  "sequences": 1
 },
 "nodes": [
  {
   "salt": 0,
   "parent": -1,
   "depth": 0,
   "start": 0,
   "tokens": 4,
   "first": [
    0,
    1,
    2,
    3
   ],
   "blocks": 1,
   "locks": 1,
   "hits": 1,
   "children": 1,
   "used": "2001-09-09T01:49:40Z"
  },
  {
   "salt": 1,
   "parent": -1,
   "depth": 0,
   "start": 0,
   "tokens": 4,
   "first": [
    0,
    1,
    2,
    3
   ],
   "blocks": 1,
   "locks": 0,
   "hits": 0,
   "children": 0,
   "used": "2001-09-09T01:47:40Z"
  }
 ],
 "truncated": true
}`
	if string(text) != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
	v := m.View(10)
	if v.Truncated || len(v.Nodes) != 3 || v.Nodes[2].Parent != 0 || !v.Nodes[2].Used.Equal(now.Add(-3*time.Minute)) {
		t.Errorf("%+v, want all 3 nodes, the tail of the first last, unused for 3 minutes", v)
	}
	if text, err = json.Marshal(v); err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("a salt shows in %s, %v", text, err)
	}
	m.Free(s)
	if text, err := json.Marshal(newCache(t, 1).View(5)); err != nil || !strings.Contains(string(text), `"nodes":[],"truncated":false`) {
		t.Errorf("an empty cache: %s, %v", text, err)
	}
}
