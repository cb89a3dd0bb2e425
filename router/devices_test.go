package router

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// What replicas say arrives unchanged, number for number; those that do not tell do not
// hold up the others.
func TestDevicesOfAllReplicas(t *testing.T) {
	rt := newTestRouter(t, 5, func(c *Config) { c.ReplicaKey = "between-us" })
	const says = `{"state":"found","gpus":[{"index":0,"memory":{"total_bytes":85899345920,"free_bytes":18446744073709551615}}]}`
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(200, says) })
	rt.fakes[1].set(func(f *fakeReplica) { f.answer = status(404, `{}`) })
	rt.fakes[2].set(func(f *fakeReplica) { f.answer = status(200, `<html>`) })
	rt.fakes[3].set(func(f *fakeReplica) { f.answer = status(500, ``) })
	rt.fakes[4].server.Close()

	got := rt.do(http.MethodGet, "/v1/devices", "")
	var list struct {
		Replicas []struct {
			ID, URL, Reason string
			Devices         json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.status != 200 || len(list.Replicas) != 5 {
		t.Fatalf("status %d, %v: %s", got.status, err, got.body)
	}
	for i, want := range []string{"", "does not tell", "no JSON", "status 500", "refused"} {
		r := list.Replicas[i]
		if r.ID != rt.fakes[i].id || r.URL != rt.fakes[i].server.URL || (r.Reason == "") != (want == "") || !strings.Contains(r.Reason, want) {
			t.Errorf("replica %d: %+v, want the reason %q", i, r, want)
		}
		if got := string(r.Devices); want == "" && got != says || want != "" && got != "null" {
			t.Errorf("replica %d: %s", i, got)
		}
	}
	asked := rt.fakes[0].got()
	if len(asked) != 1 || asked[0].uri != "/v1/devices" || asked[0].header.Get("Authorization") != "Bearer between-us" {
		t.Errorf("asked %+v", asked)
	}
	// A router that is its own replica does not ask itself for ever.
	if again := rt.do(http.MethodGet, "/v1/devices", "", headerVia, asked[0].header.Get(headerVia)); again.status != http.StatusLoopDetected {
		t.Errorf("status %d: %s", again.status, again.body)
	}
}
