package openai

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestChatMessages(t *testing.T) {
	for _, tt := range []struct {
		json string
		want Messages
	}{
		{`[{"role":"user","content":"hi"}]`, Messages{{Role: "user", Content: "hi"}}},
		{`[{"role":"system","content":"","name":"n"},{"role":"developer","content":"b"},{"role":"assistant","content":"c","tool_calls":[],"audio":null}]`,
			Messages{{Role: "system", Name: "n"}, {Role: "developer", Content: "b"}, {Role: "assistant", Content: "c"}}},
		{`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b 😀"}],"x":1}]`, Messages{{Role: "user", Content: "a\nb 😀"}}},
		{`[ { "role" : "user" , "content" : [ ] } ]`, Messages{{Role: "user"}}},
	} {
		r, err := ParseChat([]byte(`{"model":"m","messages":` + tt.json + `}`))
		if err == nil {
			err = r.Validate()
		}
		if err != nil || !reflect.DeepEqual(r.Messages, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.json, r, err, tt.want)
		}
	}
}

func TestChatRefuses(t *testing.T) {
	hi := `"messages":[{"role":"user","content":"hi"}]`
	message := func(m string) string { return `"messages":[{"role":"user","content":"hi"},` + m + `]` }
	for _, tt := range []struct{ fields, param, says string }{
		{`"prompt":"x"`, "messages", "missing"},
		{`"messages":null`, "messages", "missing"},
		{`"messages":[]`, "messages", "empty"},
		{`"messages":"hi"`, "messages", `"hi"`},
		{`"messages":{}`, "messages", `{}`},
		{message(`null`), "messages", "message 1: null"},
		{message(`"x"`), "messages", `message 1: "x"`},
		{message(`{"content":"x"}`), "messages", "message 1: it has no role"},
		{message(`{"role":"boss","content":"x"}`), "messages", `"boss"`},
		{message(`{"role":"tool","content":"x"}`), "messages", `"tool" is not supported`},
		{message(`{"role":7,"content":"x"}`), "messages", "7"},
		{message(`{"role":"user"}`), "messages", "no content"},
		{message(`{"role":"assistant","content":null}`), "messages", "no content"},
		{message(`{"role":"user","content":7}`), "messages", "7"},
		{message(`{"role":"user","content":["a"]}`), "messages", `["a"]`},
		{message(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}`), "messages", "image_url"},
		{message(`{"role":"user","content":[{"type":"text"}]}`), "messages", "no text"},
		{message(`{"role":"assistant","content":"","tool_calls":[{"id":"1"}]}`), "messages", "tool_calls"},
		{message(`{"role":"user","content":"\ud800"}`), "messages", `\ud800`},
		{hi + `,"top_logprobs":2`, "top_logprobs", "where logprobs is true"},
		{hi + `,"top_logprobs":21,"logprobs":true`, "top_logprobs", "21"},
		{hi + `,"logprobs":1`, "logprobs", "1"},
		{hi + `,"max_completion_tokens":-1`, "max_completion_tokens", "-1"},
		{hi + `,"max_tokens":9,"max_completion_tokens":4,"min_tokens":5`, "min_tokens", "max_completion_tokens"},
		{hi + `,"max_tokens":4,"min_tokens":5`, "min_tokens", "max_tokens"},
		{hi + `,"tools":[{"type":"function"}]`, "tools", "not supported"},
		{hi + `,"tool_choice":"required"`, "tool_choice", "not supported"},
		{hi + `,"chat_template":"x"`, "chat_template", "not supported"},
		{hi + `,"stream_options":{"include_usage":true}`, "stream_options", "stream"},
		{hi + `,"n":129`, "n", "129"},
		{hi + `,"best_of":2`, "best_of", "not supported"},
	} {
		r, err := ParseChat([]byte(`{"model":"m",` + tt.fields + `}`))
		if err == nil {
			err = r.Validate()
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Status != 400 || e.Param != tt.param || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %v; want param %q and %q", tt.fields, err, tt.param, tt.says)
			continue
		}
		fourKeys(t, e)
	}
	r, err := ParseChat([]byte(`{"model":"m",` + hi + `,"tools":[],"tool_choice":"auto","best_of":1,"store":true,"metadata":{"a":"b"},"logprobs":true,"top_logprobs":20}`))
	if err != nil || r.Validate() != nil || *r.TopLogprobs != 20 {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzParseChat(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":3,"logprobs":true,"top_logprobs":2}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"x"}]}`))
	f.Add([]byte(`{"model":"m","messages":[[]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseChat(body)
		if err == nil {
			err = r.Validate()
		}
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Status != 400 || e.Message == "") {
			t.Fatalf("%q: %v of type %T", body, err, err)
		}
	})
}

func TestLogprobsOnTheWire(t *testing.T) {
	inf := Logprob(math.Inf(-1))
	in := Choice{Text: "ab", Logprobs: &Logprobs{
		Tokens: []string{"a", `"<`}, TokenLogprobs: []*Logprob{nil, &inf}, TextOffset: []int{0, 1},
		TopLogprobs: []TopLogprobs{nil, {{"z", -0.1}, {`"<`, inf}, {"b", inf}}},
	}}
	data, err := marshal(in)
	const want = `{"index":0,"text":"ab","logprobs":{"tokens":["a","\"<"],"token_logprobs":[null,-9999.0],` +
		`"top_logprobs":[null,{"z":-0.1,"\"<":-9999.0,"b":-9999.0}],"text_offset":[0,1]},"finish_reason":null,"stop_reason":null}`
	if err != nil || string(data) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, data, want)
	}
	var back Choice
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Logprobs.TopLogprobs[1]; len(got) != 3 || got[0] != (TopLogprob{"z", -0.1}) || got[1].Logprob != -9999 || back.Logprobs.TopLogprobs[0] != nil {
		t.Errorf("read back as %+v", back.Logprobs)
	}
}

func TestChatChunkOnTheWire(t *testing.T) {
	c := ChatChunk{ID: "i", Created: 1, Model: "m", Choices: []ChatDelta{{Delta: Delta{Role: "assistant", Content: new("a")}}}}
	for _, tt := range []struct {
		chunk ChatChunk
		want  string
	}{
		{c, `{"id":"i","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},` +
			`"logprobs":null,"finish_reason":null,"stop_reason":null}]}`},
		{ChatChunk{ID: "i", Created: 1, Model: "m", IncludeUsage: true}, `{"id":"i","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":null}`},
	} {
		if data, err := marshal(tt.chunk); err != nil || string(data) != tt.want {
			t.Errorf("%v\ngot  %s\nwant %s", err, data, tt.want)
		}
	}
}
