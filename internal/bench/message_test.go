package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"tailor/internal/bench/workload"
)

func TestConversationsGoOnFromTheModelsOwnAnswers(t *testing.T) {
	w := &workload.Workload{Name: "chat", Requests: []workload.Request{
		{Tokens: []int32{97, 98}, MaxTokens: 3, After: -1, Session: "a"},
		{Text: "hey", MaxTokens: 2, After: -1, Session: "b"},
		{Tokens: []int32{5}, MaxTokens: 1, After: 0, Continues: true, Session: "a"},
		{Text: " you", MaxTokens: 1, After: 1, Continues: true, Session: "b", Think: time.Millisecond},
	}}
	// 98 is 'b': its answer begins (98 % 26) letters after 'a'.
	f := &fakes{t: t}
	opt := options(w, 1, "hash")
	opt.About.BlockTokens = 0 // as of a server that keeps single tokens
	r, err := Replay(t.Context(), opt, f.start)
	if err != nil {
		t.Fatal(err)
	}
	bodies := f.clusters[0].all[0].bodies
	first := []int32{'a' + 98%26, 'a' + 99%26, 'a' + 100%26}
	if want := fmt.Sprintf(`"prompt":[97,98,%d,%d,%d,5]`, first[0], first[1], first[2]); !strings.Contains(bodies[2], want) {
		t.Errorf("the second turn's body is %s, want %s", bodies[2], want)
	}
	y := 'y' % 26
	if want := fmt.Sprintf(`"prompt":"hey%c%c you"`, 'a'+y, 'a'+y+1); !strings.Contains(bodies[3], want) {
		t.Errorf("the second turn's body is %s, want %s", bodies[3], want)
	}
	// What follows an answer finds the prompt and all of the answer but its last token: 4 and 4.
	if r.Reach.Infinite != 8 || r.Groups[0].Runs[0].Reused != 8 {
		t.Errorf("reach %+v, reused %d; want 8", r.Reach, r.Groups[0].Runs[0].Reused)
	}

	f = &fakes{t: t, change: func(r *fakeReplica) { r.noIDs = true }}
	r, err = Replay(t.Context(), opt, f.start)
	if err != nil {
		t.Fatal(err)
	}
	if run := r.Groups[0].Runs[0]; run.Failed != 1 || run.Errors[errNoIDs.Error()] != 1 {
		t.Errorf("without token ids: %d failed, %v", run.Failed, run.Errors)
	}
}

func TestWhatFollowsAFailureIsNotSent(t *testing.T) {
	w := numbered(3)
	w.Requests[1].After, w.Requests[1].Continues = 0, true
	w.Requests[2].After = 1 // but does not go on from it
	f := &fakes{t: t, change: func(r *fakeReplica) {
		r.before = func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 0 {
				http.Error(w, "no", 500)
			}
			return n == 0
		}
	}}
	r, err := Replay(t.Context(), options(w, 1, "hash"), f.start)
	if err != nil {
		t.Fatal(err)
	}
	run := &r.Groups[0].Runs[0]
	if run.Failed != 2 || run.Errors[errParent.Error()] != 1 || f.clusters[0].all[0].served != 2 {
		t.Errorf("failed %d, errors %v, %d sent", run.Failed, run.Errors, f.clusters[0].all[0].served)
	}
}

func TestAnswersThatDifferAreSaid(t *testing.T) {
	w := numbered(2)
	w.Requests[1].After, w.Requests[1].Continues = 0, true
	n := 0
	f := &fakes{t: t, change: func(r *fakeReplica) {
		n++
		id := 100 + n
		r.before = func(w http.ResponseWriter, _ *http.Request, i int) bool {
			if i > 0 {
				return false
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\",\"token_ids\":[%d]}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n", id)
			r.take([]int32{0, 7, 8, 9}, []int32{int32(id)})
			return true
		}
	}}
	r, err := Replay(t.Context(), options(w, 1, "hash", "round_robin"), f.start)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0], "not the same each time") {
		t.Errorf("problems %q", p)
	}
}

func TestRecordedBodiesAreSentAsTheyAre(t *testing.T) {
	w := &workload.Workload{Name: "log", Requests: []workload.Request{
		{Body: []byte(`{"model":"other","messages":[{"role":"user","content":"hi"}],"max_tokens":50,"top_p":0.5}`), Path: "/v1/chat/completions", MaxTokens: 3, After: -1},
		{Body: []byte(`{"prompt":"hello","max_tokens":2,"seed":4,"stream":false}`), MaxTokens: 0, After: -1},
		{Body: []byte(`[1]`), After: -1},
	}}
	f := &fakes{t: t}
	r, err := Replay(t.Context(), options(w, 1, "hash"), f.start)
	if err != nil {
		t.Fatal(err)
	}
	usage := `"stream":true,"stream_options":{"include_usage":true}`
	want := []string{
		`{"max_tokens":3,"messages":[{"role":"user","content":"hi"}],"model":"m","seed":0,` + usage + `,"top_p":0.5}`,
		`{"max_tokens":2,"model":"m","prompt":"hello","seed":4,` + usage + `}`,
	}
	if got := f.clusters[0].all[0].bodies; !slices.Equal(got, want) {
		t.Errorf("sent %q\nwant %q", got, want)
	}
	if run := &r.Groups[0].Runs[0]; run.Failed != 1 || run.Samples[0].Output != 3 || run.Samples[1].Output != 2 {
		t.Errorf("failed %d, samples %+v", run.Failed, run.Samples)
	}
}

func TestClientSendsKeyAndSession(t *testing.T) {
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	c := newClient(s.URL, "secret", 1)
	defer c.close()
	a, _, err := c.send(t.Context(), &message{path: "/v1/chat/completions", session: "s1", replica: "r1"})
	if err != nil || a.text != "é" || a.prompt != -1 || a.cached != -1 || a.output != -1 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if got.Get("Authorization") != "Bearer secret" || got.Get("X-Session-Id") != "s1" || got.Get("X-Tailor-Replica") != "r1" {
		t.Errorf("headers %v", got)
	}
}
