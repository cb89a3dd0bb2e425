package server

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"tailor/internal/openai"
	"tailor/weights"
)

// schemas are those of testdata/openai_schemas.json.
type schemas map[string]json.RawMessage

func loadSchemas(t *testing.T) schemas {
	t.Helper()
	data, err := os.ReadFile("testdata/openai_schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schemas
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

type schema struct {
	Ref        string                     `json:"$ref"`
	Type       string                     `json:"type"`
	Nullable   bool                       `json:"nullable"`
	Enum       []string                   `json:"enum"`
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	Extra      []string                   `json:"extra"`
	Items      json.RawMessage            `json:"items"`
	Additional json.RawMessage            `json:"additionalProperties"`
}

// check returns what is wrong with a value, by place.
func (s schemas) check(raw json.RawMessage, value any, at string) []string {
	var want schema
	if err := json.Unmarshal(raw, &want); err != nil {
		return []string{at + ": schema: " + err.Error()}
	}
	if value == nil && want.Nullable {
		return nil
	}
	if want.Ref != "" {
		return s.check(s[want.Ref], value, at)
	}
	wrong := func(kind string) []string {
		return []string{fmt.Sprintf("%s: %T %v is not %s", at, value, value, kind)}
	}
	if want.Enum != nil {
		if text, ok := value.(string); !ok || !slices.Contains(want.Enum, text) {
			return wrong(fmt.Sprint("one of ", want.Enum))
		}
		return nil
	}
	var bad []string
	switch want.Type {
	case "string":
		if _, ok := value.(string); !ok {
			return wrong("a string")
		}
	case "number", "integer":
		n, ok := value.(float64)
		if !ok || want.Type == "integer" && n != math.Trunc(n) {
			return wrong("of type " + want.Type)
		}
	case "array":
		list, ok := value.([]any)
		if !ok {
			return wrong("an array")
		}
		for i, item := range list {
			bad = append(bad, s.check(want.Items, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case "object":
		object, ok := value.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		for _, key := range want.Required {
			if _, ok := object[key]; !ok {
				bad = append(bad, at+": lacks "+key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			switch inner, known := want.Properties[key]; {
			case known:
				bad = append(bad, s.check(inner, object[key], at+"."+key)...)
			case want.Additional != nil:
				bad = append(bad, s.check(want.Additional, object[key], at+"."+key)...)
			case !slices.Contains(want.Extra, key):
				bad = append(bad, at+": has "+key)
			}
		}
	default:
		return []string{at + ": the schema has no type"}
	}
	return bad
}

func (s schemas) mustMatch(t *testing.T, name, data string) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(data), &value); err != nil {
		t.Errorf("%s: %v: %s", name, err, data)
		return
	}
	if bad := s.check(s[name], value, name); len(bad) > 0 {
		t.Errorf("%s\n%s", strings.Join(bad, "\n"), data)
	}
}

// mustMatchStream checks every chunk, and that the stream ends as it must.
func (s schemas) mustMatchStream(t *testing.T, name, body string) int {
	t.Helper()
	reader := openai.NewStreamReader(strings.NewReader(body))
	for n := 0; ; n++ {
		data, err := reader.Next()
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Errorf("%v: %s", err, body)
			return n
		}
		s.mustMatch(t, name, string(data))
	}
}

// withTemplate lets the bundled model chat.
func withTemplate(t *testing.T) func(*Config) {
	t.Helper()
	template, err := LoadChatTemplate(weights.Bundled().FS())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Template = template }
}

// Every answer and every chunk is what OpenAI's published description says, whatever was
// asked for.
func TestAnswersMatchThePublishedSchemas(t *testing.T) {
	s := loadSchemas(t)
	r, e := realRig(t, 256, withTemplate(t))
	chunks := 0
	for _, fields := range []string{
		``, `"max_tokens":0`, `"n":3`, `"best_of":3`, `"echo":true`, `"echo":true,"max_tokens":0,"logprobs":2`, `"logprobs":0`, `"logprobs":5,"n":2`,
		`"stop":["e"," t"]`, `"stop":"e","include_stop_str_in_output":true`, `"prompt":["a","b c"],"n":2,"logprobs":1`,
		`"prompt":[[1,2,3],[200,201]],"echo":true,"logprobs":1`, `"return_token_ids":true`, `"ignore_eos":true,"skip_special_tokens":false`,
		`"stop_token_ids":[13,11,30,15,14]`, `"logprobs":3,"allowed_token_ids":[128,129,130,131,132]`, `"prompt_logprobs":2`,
	} {
		a := r.do("POST", "/v1/completions", request(`"seed":3,"max_tokens":12,`+fieldsOr(fields)))
		if a.status != 200 {
			t.Errorf("%s: status %d: %s", fields, a.status, a.body)
			continue
		}
		s.mustMatch(t, "completion", a.body)
		if strings.Contains(fields, "best_of") || strings.Contains(fields, "prompt_logprobs") {
			continue
		}
		for _, options := range []string{``, `,"stream_options":{"include_usage":true}`, `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`} {
			a := r.do("POST", "/v1/completions", request(`"stream":true,"seed":3,"max_tokens":12,`+fieldsOr(fields)+options))
			chunks += s.mustMatchStream(t, "completion_chunk", a.body)
		}
	}
	for _, fields := range []string{
		``, `"n":2`, `"logprobs":true`, `"logprobs":true,"top_logprobs":3`, `"stop":"e"`, `"return_token_ids":true`, `"max_completion_tokens":3`, `"max_tokens":0`,
		`"logprobs":true,"top_logprobs":2,"logit_bias":{"140":100}`,
	} {
		body := `{"model":"tailor-4m","messages":[{"role":"user","content":"hi"}],"seed":3,"max_tokens":12,` + fieldsOr(fields)
		a := r.do("POST", "/v1/chat/completions", body+"}")
		if a.status != 200 {
			t.Errorf("%s: status %d: %s", fields, a.status, a.body)
			continue
		}
		s.mustMatch(t, "chat", a.body)
		for _, options := range []string{``, `,"stream_options":{"include_usage":true}`, `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`} {
			a := r.do("POST", "/v1/chat/completions", body+`,"stream":true`+options+"}")
			chunks += s.mustMatchStream(t, "chat_chunk", a.body)
		}
	}
	s.mustMatch(t, "model_list", r.do("GET", "/v1/models", "").body)
	s.mustMatch(t, "model", r.do("GET", "/v1/models/"+testModel, "").body)
	for _, bad := range badRequests()[:20] {
		s.mustMatch(t, "error", r.do("POST", "/v1/completions", bad.body).body)
	}
	if chunks < 300 {
		t.Errorf("%d chunks", chunks)
	}
	mustBeIdle(t, e)
	// The check itself sees faults.
	for _, broken := range []string{
		`{}`, `{"id":"a","object":"text_completion","created":1.5,"model":"m","choices":[]}`,
		`{"id":"a","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort"}]}`,
		`{"id":"a","object":"text_completion","created":1,"model":"m","choices":[],"more":1}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(broken), &value); err != nil || len(s.check(s["completion"], value, "")) == 0 {
			t.Errorf("%s passes", broken)
		}
	}
}

// fieldsOr keeps a list of fields from ending in a comma.
func fieldsOr(fields string) string {
	if fields == "" {
		return `"user":"u"`
	}
	return fields
}
