package router

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tailor/router/policy"
)

func TestForwardsTheSameBytes(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	bodies := []string{
		" \r\n\t{ \"model\" :\"m\",\n\n\"prompt\":\"caf\\u00e9 \\/ <|endoftext|>\" , \"unknown\": [ 1.0e+2 ,{}],\"prompt\" : \"twice\" }\n \t",
		`{"prompt":[1,2,3],"model":"m","logprobs":null}`,
		`{"model":"m","prompt":"` + strings.Repeat("é\\n", 5000) + `"}`,
	}
	for _, body := range bodies {
		if a := rt.do(http.MethodPost, "/v1/completions?a=1&b=%2F+x", body); a.status != 200 || a.body != wholeAnswer {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	for i, r := range rt.fakes[0].got() {
		if r.body != bodies[i] {
			t.Errorf("body %d: sent %q, arrived %q", i, bodies[i], r.body)
		}
		if r.method != "POST" || r.uri != "/v1/completions?a=1&b=%2F+x" {
			t.Errorf("%s %s arrived", r.method, r.uri)
		}
	}
}

func TestHeaders(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	rt.fakes[0].set(func(f *fakeReplica) {
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-Other", "kept")
			h.Set("Connection", "X-Gone")
			h.Set("X-Gone", "1")
			h.Set("X-Tailor-Replica", "what it calls itself")
			_, _ = io.WriteString(w, "{}")
		}
	})
	a := rt.post(`{"model":"m","prompt":"x"}`,
		"Authorization", "Bearer k", "X-Request-Id", "mine", "Connection", "X-Hop", "X-Hop", "1", "Te", "trailers",
		"Accept-Encoding", "gzip", "Proxy-Authorization", "secret", "X-Tailor-Replica", "r00", "User-Agent", "tester")
	got := rt.fakes[0].got()[0].header
	for name, want := range map[string]string{
		"Authorization": "Bearer k", "X-Request-Id": "mine", "User-Agent": "tester",
		"X-Hop": "", "Te": "", "Accept-Encoding": "", "Proxy-Authorization": "", "X-Tailor-Replica": "", "X-Idempotency-Key": "",
	} {
		if got.Get(name) != want {
			t.Errorf("the replica got %s %q, want %q", name, got.Get(name), want)
		}
	}
	for name, want := range map[string]string{
		"X-Other": "kept", "X-Gone": "", "X-Tailor-Replica": "r00", "X-Request-Id": "mine", "Content-Length": "2",
	} {
		if a.header.Get(name) != want {
			t.Errorf("the client got %s %q, want %q", name, a.header.Get(name), want)
		}
	}

	a = rt.post(`{"model":"m","prompt":"x"}`)
	made := a.header.Get("X-Request-Id")
	if made == "" || rt.fakes[0].got()[1].header.Get("X-Request-Id") != made {
		t.Errorf("made-up request ID %q, the replica got %q", made, rt.fakes[0].got()[1].header.Get("X-Request-Id"))
	}
	rows := rt.rows(2)
	if rows[0].RequestID != "mine" || rows[1].RequestID != made {
		t.Errorf("the ledger has request IDs %q and %q", rows[0].RequestID, rows[1].RequestID)
	}
}

func TestRefusedConnectionIsRetried(t *testing.T) {
	rt := newTestRouter(t, 3, withPolicy("round_robin"))
	gone := rt.fakes[0] // request 0 goes to the first of three
	gone.server.Close()
	a := rt.post(tokenBody(1, 64, 0, 10, ""))
	if a.status != 200 || a.header.Get("X-Tailor-Replica") == gone.id {
		t.Fatalf("status %d by %q", a.status, a.header.Get("X-Tailor-Replica"))
	}
	row := rt.rows(1)[0]
	if row.Retries != 1 || len(row.Failures) != 1 || row.Failures[0].Replica != gone.id || row.Failures[0].Status != 0 ||
		!strings.Contains(row.Failures[0].Error, "refused") || row.Outcome != OutcomeOK || row.Replica == gone.id {
		t.Errorf("ledger row %+v", row)
	}
	if s := rt.state(gone.id); s != StateDown {
		t.Errorf("after a refused connection the replica is %s", s)
	}
	for range 6 {
		rt.post(tokenBody(1, 64, 0, 10, ""))
	}
	for _, row := range rt.rows(7)[1:] {
		if row.Retries != 0 || row.Replica == gone.id {
			t.Errorf("a replica that is down was tried again: %+v", row)
		}
	}
	rt.idle()
}

func TestGatewayStatusesAreRetried(t *testing.T) {
	for _, tt := range []struct {
		code    int
		message string
		state   State
	}{
		{502, "no", StateReady}, {503, "no", StateUnready}, {503, "draining", StateDraining},
	} {
		code := tt.code
		rt := newTestRouter(t, 2, withPolicy("round_robin"))
		rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(code, `{"error":{"message":"`+tt.message+`"}}`) })
		if a := rt.post(tokenBody(1, 64, 0, 10, `,"stream":true`)); a.status != 200 || a.body != wholeAnswer {
			t.Fatalf("%d: status %d: %s", code, a.status, a.body)
		}
		row := rt.rows(1)[0]
		if row.Retries != 1 || row.Failures[0].Status != code || row.Failures[0].Error != tt.message {
			t.Errorf("%d: ledger row %+v", code, row)
		}
		if s := rt.state("r00"); s != tt.state {
			t.Errorf("%d: the replica is %s, want %s", code, s, tt.state)
		}
	}
}

// What is not a failure of the replica as such is the client's to see.
func TestOtherStatusesArePassedOn(t *testing.T) {
	rt := newTestRouter(t, 2, withPolicy("round_robin"))
	for code, outcome := range map[int]Outcome{400: OutcomeRejected, 404: OutcomeRejected, 500: OutcomeUpstream} {
		for _, f := range rt.fakes {
			f.set(func(f *fakeReplica) {
				f.requests = nil
				f.answer = func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Retry-After", "7")
					status(code, "its own words")(w, r)
				}
			})
		}
		a := rt.post(tokenBody(1, 64, 0, 10, ""))
		if a.status != code || a.body != "its own words" || a.header.Get("Retry-After") != "7" {
			t.Errorf("%d: got %d %q", code, a.status, a.body)
		}
		if n := len(rt.fakes[0].got()) + len(rt.fakes[1].got()); n != 1 {
			t.Errorf("%d: sent %d times", code, n)
		}
		rows, _ := rt.ledger.last(1)
		if rows[0].Outcome != outcome || rows[0].Status != code {
			t.Errorf("%d: ledger says %s, status %d", code, rows[0].Outcome, rows[0].Status)
		}
	}
	for _, s := range rt.registry.status() {
		if s.IndexBlocks != 0 {
			t.Errorf("%s is thought to hold %d blocks of requests it refused", s.ID, s.IndexBlocks)
		}
	}
}

func TestRetriesAreBounded(t *testing.T) {
	rt := newTestRouter(t, 6, func(c *Config) { c.Retries = 2 })
	for _, f := range rt.fakes {
		f.set(func(f *fakeReplica) { f.answer = status(502, "bad "+f.id) })
	}
	a := rt.post(tokenBody(1, 64, 0, 10, ""))
	row := rt.rows(1)[0]
	if len(row.Failures) != 3 || row.Retries != 2 || row.Outcome != OutcomeUpstream || row.Status != 502 {
		t.Errorf("ledger row %+v", row)
	}
	tried := map[string]bool{}
	for _, f := range row.Failures {
		tried[f.Replica] = true
	}
	if len(tried) != 3 {
		t.Errorf("a replica was tried twice: %+v", row.Failures)
	}
	// The last one's own words.
	if last := row.Failures[2].Replica; a.status != 502 || a.body != "bad "+last || a.header.Get("X-Tailor-Replica") != last {
		t.Errorf("status %d: %q by %q", a.status, a.body, a.header.Get("X-Tailor-Replica"))
	}
	rt.idle()
}

func TestNoReplicaLeft(t *testing.T) {
	rt := newTestRouter(t, 2, nil)
	for _, f := range rt.fakes {
		f.server.Close()
	}
	a := rt.post(`{"model":"m","prompt":"x"}`)
	if _, kind, _, code := a.apiError(t); a.status != 502 || kind != "server_error" || code != "upstream_error" {
		t.Errorf("all refused: status %d: %s", a.status, a.body)
	}
	a = rt.post(`{"model":"m","prompt":"x"}`)
	if _, _, _, code := a.apiError(t); a.status != 503 || code != "service_unavailable" || a.header.Get("Retry-After") != "2" {
		t.Errorf("all down: status %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	rows := rt.rows(2)
	if rows[0].Outcome != OutcomeUpstream || rows[1].Outcome != OutcomeNoReplica || rows[1].Replica != "" {
		t.Errorf("ledger: %s, %s", rows[0].Outcome, rows[1].Outcome)
	}
}

func TestPin(t *testing.T) {
	rt := newTestRouter(t, 3, nil)
	for i, id := range []string{"r02", "r00", "r02", "r01"} {
		a := rt.post(tokenBody(1, 64, i, 10, ""), "X-Tailor-Replica", id)
		if a.status != 200 || a.header.Get("X-Tailor-Replica") != id {
			t.Errorf("pinned to %s: status %d by %q", id, a.status, a.header.Get("X-Tailor-Replica"))
		}
	}
	a := rt.post(tokenBody(1, 64, 9, 10, ""), "X-Tailor-Replica", "r77")
	if message, kind, _, _ := a.apiError(t); a.status != 400 || kind != "invalid_request_error" || !strings.Contains(message, "r77") {
		t.Errorf("unknown: status %d: %s", a.status, a.body)
	}
	rt.fakes[1].server.Close()
	a = rt.post(tokenBody(1, 64, 9, 10, ""), "X-Tailor-Replica", "r01") // finds out
	if a.status != 502 {
		t.Errorf("a placement must not be changed: status %d", a.status)
	}
	a = rt.post(tokenBody(1, 64, 9, 10, ""), "X-Tailor-Replica", "r01")
	if a.apiError(t); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("down: status %d: %s", a.status, a.body)
	}
	rows := rt.rows(7)
	for _, row := range rows {
		if row.Policy != "pinned" {
			t.Errorf("policy %q", row.Policy)
		}
	}
	if rows[0].PredictedCached != 0 || rows[2].PredictedCached != 64 {
		t.Errorf("predicted %d, then %d cached tokens; want 0, 64", rows[0].PredictedCached, rows[2].PredictedCached)
	}
	if got := []Outcome{rows[4].Outcome, rows[5].Outcome, rows[6].Outcome}; !slices.Equal(got, []Outcome{OutcomeInvalid, OutcomeUpstream, OutcomeNoReplica}) {
		t.Errorf("outcomes %v", got)
	}
}

func TestErrorShapes(t *testing.T) {
	rt := newTestRouter(t, 1, func(c *Config) { c.MaxBody = 100 })
	tests := []struct {
		method, path, body string
		status             int
		param              string
	}{
		{"POST", "/v1/completions", `{"model":"m","prompt":"` + strings.Repeat("x", 200) + `"}`, 413, ""},
		{"POST", "/v1/completions", `{"model":"m",`, 400, ""},
		{"POST", "/v1/completions", ``, 400, ""},
		{"POST", "/v1/completions", `[]`, 400, ""},
		{"POST", "/v1/completions", `{"model":"m","prompt":{}}`, 400, "prompt"},
		{"POST", "/v1/completions", `{"model":7,"prompt":"x"}`, 400, "model"},
		{"POST", "/v1/chat/completions", `nothing`, 400, ""},
		{"GET", "/nowhere", ``, 404, ""},
		{"DELETE", "/health", ``, 405, ""},
		{"GET", "/v1/ledger?limit=many", ``, 400, "limit"},
		{"GET", "/v1/ledger?limit=-1", ``, 400, "limit"},
	}
	for _, tt := range tests {
		a := rt.do(tt.method, tt.path, tt.body)
		if a.status != tt.status {
			t.Errorf("%s %s %.40s: status %d, want %d", tt.method, tt.path, tt.body, a.status, tt.status)
		}
		message, kind, param, _ := a.apiError(t)
		if message == "" || kind != "invalid_request_error" || param != tt.param {
			t.Errorf("%s %s %.40s: %s", tt.method, tt.path, tt.body, a.body)
		}
	}
	for _, row := range rt.rows(7) {
		if row.Outcome != OutcomeInvalid || row.Replica != "" {
			t.Errorf("ledger row %+v", row)
		}
	}
	if n := len(rt.fakes[0].got()); n != 0 {
		t.Errorf("%d bad requests reached the replica", n)
	}
	rt.idle()
}

func TestOtherPathsGoToAnyReadyReplica(t *testing.T) {
	rt := newTestRouter(t, 3, nil)
	rt.fakes[1].server.Close()
	served := map[string]bool{}
	for range 30 {
		a := rt.do(http.MethodGet, "/v1/voices", "")
		if a.status != 200 || a.body != wholeAnswer {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		served[a.header.Get("X-Tailor-Replica")] = true
	}
	if len(served) != 2 || served["r01"] {
		t.Errorf("served by %v", served)
	}
	rt.rows(0) // only completions are in the ledger
	// A request whose meaning is not known is not repeated.
	for _, f := range []*fakeReplica{rt.fakes[0], rt.fakes[2]} {
		f.set(func(f *fakeReplica) { f.requests = nil; f.answer = status(502, "") })
	}
	if a := rt.do(http.MethodPost, "/v1/something", "{}"); a.status != 502 {
		t.Errorf("status %d", a.status)
	}
	if n := len(rt.fakes[0].got()) + len(rt.fakes[2].got()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// The second request of a burst follows the first, whose prefix nobody has computed yet.
func TestBurstFollowsTheFirst(t *testing.T) {
	rt := newTestRouter(t, 4, nil)
	arrived, release := make(chan string), make(chan struct{})
	for _, f := range rt.fakes {
		f.set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) { arrived <- f.id; <-release }
		})
	}
	done := make(chan answer)
	send := func(prefix, suffix int) string {
		go func() { done <- rt.post(tokenBody(prefix, 160, suffix, 10, "")) }()
		return <-arrived
	}
	first := send(1, 0)
	if second := send(1, 1); second != first {
		t.Errorf("the second request went to %s, the first to %s", second, first)
	}
	if other := send(2, 2); other == first {
		t.Errorf("another prefix went to the busy %s", other)
	}
	close(release)
	for range 3 {
		<-done
	}
	reasons := map[policy.Reason]int{}
	for _, row := range rt.rows(3) {
		reasons[row.Reason]++
	}
	if reasons[policy.ReasonCold] != 2 || reasons[policy.ReasonLongestPrefix] != 1 {
		t.Errorf("reasons %v", reasons)
	}
	rt.idle()
}

// A request that failed has not put its prefix into any cache.
func TestFailedRequestLeavesNoPrefix(t *testing.T) {
	rt := newTestRouter(t, 2, withPolicy("round_robin"))
	rt.fakes[0].set(func(f *fakeReplica) { f.answer = status(502, "") })
	rt.post(tokenBody(1, 160, 0, 10, ""))
	rt.rows(1)
	if a, b := rt.replica("r00").IndexBlocks, rt.replica("r01").IndexBlocks; a != 0 || b != 10 {
		t.Errorf("after a retry %d and %d blocks are indexed, want 0 and 10", a, b)
	}
}

func TestClientGoneCancelsUpstream(t *testing.T) {
	for _, when := range []string{"before the head", "in the stream"} {
		rt := newTestRouter(t, 1, nil)
		arrived, cancelled := make(chan struct{}), make(chan struct{})
		rt.fakes[0].set(func(f *fakeReplica) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				if when == "in the stream" {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {}\n\n")
					_ = http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(cancelled)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			resp, err := rt.request(ctx, http.MethodPost, "/v1/completions", tokenBody(1, 64, 0, 10, `,"stream":true`))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-arrived
		if rt.replica("r00").InFlight != 1 {
			t.Fatalf("%s: nothing is booked", when)
		}
		cancel()
		<-cancelled
		<-ended
		row := rt.rows(1)[0]
		if row.Outcome != OutcomeCancelled || row.Retries != 0 {
			t.Errorf("%s: ledger row %+v", when, row)
		}
		if r := rt.registry.replicas[0]; r.state != StateReady || r.broken != 0 {
			t.Errorf("%s: the replica was blamed: %+v", when, r)
		}
		rt.idle()
	}
}

func TestChatIsRoutedByItsMessages(t *testing.T) {
	rt := newTestRouter(t, 8, nil)
	system := strings.Repeat("You are a patient tailor. ", 20)
	turns := fmt.Sprintf(`{"role":"system","content":%q}`, system)
	home := ""
	for turn := range 4 {
		turns += fmt.Sprintf(`,{"role":"user","content":"turn %d: %s"}`, turn, strings.Repeat("cloth ", 10))
		a := rt.do(http.MethodPost, "/v1/chat/completions", `{"model":"m","messages":[`+turns+`]}`)
		if a.status != 200 {
			t.Fatalf("status %d", a.status)
		}
		if turn == 0 {
			home = a.header.Get("X-Tailor-Replica")
		} else if got := a.header.Get("X-Tailor-Replica"); got != home {
			t.Errorf("turn %d went to %s, the conversation began on %s", turn, got, home)
		}
	}
	for i, row := range rt.rows(4) {
		if (row.PredictedCached > 100) != (i > 0) {
			t.Errorf("turn %d: %d cached tokens predicted", i, row.PredictedCached)
		}
	}
}

// The last token of a prompt is always computed, so it is never predicted to be cached.
func TestPredictionLeavesTheLastToken(t *testing.T) {
	rt := newTestRouter(t, 1, nil)
	for range 2 {
		rt.post(tokenBody(1, 64, 0, 0, ""))
		rt.post(`{"model":"m","prompt":[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2]]}`)
	}
	rows := rt.rows(4)
	for i, want := range []int{0, 0, 63, 30} {
		if rows[i].PredictedCached != want {
			t.Errorf("request %d: %d of %d tokens predicted, want %d", i, rows[i].PredictedCached, rows[i].PromptTokens, want)
		}
	}
}
