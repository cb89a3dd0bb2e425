package openai

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// decode is what a server does with a body.
func decode(body string) (*CompletionRequest, error) {
	r, err := ParseCompletion([]byte(body))
	if err == nil {
		err = r.Validate()
	}
	return r, err
}

func TestDecodeRefuses(t *testing.T) {
	long := strings.Repeat("s", MaxSalt+1)
	with := func(fields string) string { return `{"model":"m","prompt":"p",` + fields + `}` }
	tests := []struct {
		name, body, param string
		says              string // the value must be in the message
	}{
		{"empty body", ``, "", "empty"},
		{"not JSON", `hello`, "", "not JSON"},
		{"cut off", `{"model":"m"`, "", "not JSON"},
		{"trailing data", `{"model":"m","prompt":"p"} {}`, "", "not JSON"},
		{"null", `null`, "", "null"},
		{"array", `["a"]`, "", `["a"]`},
		{"number", `17`, "", "17"},
		{"nested too deep", strings.Repeat("[", 20000), "", "not JSON"},
		{"invalid UTF-8", "{\"model\":\"m\",\"prompt\":\"a\xffb\"}", "", "0xff at offset 24"},
		{"UTF-8 cut", "{\"model\":\"m\",\"prompt\":\"a\xe2\x82\"}", "", "0xe2 at offset 24"},
		{"UTF-8 of a surrogate", "{\"model\":\"m\",\"prompt\":\"\xed\xa0\x80\"}", "", "0xed at offset 23"},
		{"lone high surrogate", `{"model":"m","prompt":"a\ud83d"}`, "prompt", `\ud83d`},
		{"lone low surrogate", `{"model":"m","prompt":"\udc00\ud800"}`, "prompt", `\udc00`},
		{"surrogate before another escape", `{"model":"m","prompt":"\ud83d\u0041"}`, "prompt", `\ud83d`},
		{"surrogate after a backslash", `{"model":"m","prompt":"\\\ud83d"}`, "prompt", `\ud83d`},

		{"no model", `{"prompt":"p"}`, "model", "missing"},
		{"null model", `{"model":null,"prompt":"p"}`, "model", "missing"},
		{"model of wrong type", `{"model":7,"prompt":"p"}`, "model", "7"},
		{"no prompt", `{"model":"m"}`, "prompt", "missing"},
		{"key in other case", `{"model":"m","Prompt":"p"}`, "prompt", "missing"},
		{"null prompt", `{"model":"m","prompt":null}`, "prompt", "missing"},
		{"empty prompt", `{"model":"m","prompt":""}`, "prompt", "empty"},
		{"empty list", `{"model":"m","prompt":[]}`, "prompt", "[]"},
		{"empty text in list", `{"model":"m","prompt":["a",""]}`, "prompt", "prompt 1 is empty"},
		{"empty tokens in list", `{"model":"m","prompt":[[1],[]]}`, "prompt", "prompt 1 is empty"},
		{"prompt number", `{"model":"m","prompt":5}`, "prompt", "5"},
		{"prompt object", `{"model":"m","prompt":{"a":1}}`, "prompt", `{"a":1}`},
		{"prompt bool", `{"model":"m","prompt":true}`, "prompt", "true"},
		{"text among tokens", `{"model":"m","prompt":[1,"a"]}`, "prompt", `"a" at index 1`},
		{"token among texts", `{"model":"m","prompt":["a",1]}`, "prompt", "item 1 of a list of texts is 1"},
		{"token among lists", `{"model":"m","prompt":[[1],2]}`, "prompt", "item 1 of a list of token lists is 2"},
		{"null among tokens", `{"model":"m","prompt":[1,null]}`, "prompt", "null at index 1"},
		{"null among lists", `{"model":"m","prompt":[[1],null]}`, "prompt", "null"},
		{"null first", `{"model":"m","prompt":[null]}`, "prompt", "null at index 0"},
		{"deeper list", `{"model":"m","prompt":[[[1]]]}`, "prompt", "[1] at index 0"},
		{"fraction as token", `{"model":"m","prompt":[1.5]}`, "prompt", "1.5 at index 0"},
		{"token past 32 bits", `{"model":"m","prompt":[1,2147483648]}`, "prompt", "2147483648 at index 1"},

		{"max_tokens negative", with(`"max_tokens":-1`), "max_tokens", "-1"},
		{"max_tokens fraction", with(`"max_tokens":1.5`), "max_tokens", "1.5"},
		{"max_tokens text", with(`"max_tokens":"16"`), "max_tokens", `"16"`},
		{"max_tokens huge", with(`"max_tokens":9000000000000000000`), "max_tokens", "9000000000000000000"},
		{"max_tokens past 64 bits", with(`"max_tokens":90000000000000000000`), "max_tokens", "90000000000000000000"},
		{"temperature too high", with(`"temperature":9`), "temperature", "9"},
		{"temperature negative", with(`"temperature":-0.1`), "temperature", "-0.1"},
		{"temperature text", with(`"temperature":"hot"`), "temperature", `"hot"`},
		{"temperature past float64", with(`"temperature":1e999`), "temperature", "1e999"},
		{"top_p zero", with(`"top_p":0`), "top_p", "0"},
		{"top_p above 1", with(`"top_p":1.01`), "top_p", "1.01"},
		{"top_p list", with(`"top_p":[1]`), "top_p", "[1]"},
		{"top_k -2", with(`"top_k":-2`), "top_k", "-2"},
		{"top_k bool", with(`"top_k":true`), "top_k", "true"},
		{"seed text", with(`"seed":"x"`), "seed", `"x"`},
		{"seed past 64 bits", with(`"seed":9223372036854775808`), "seed", "9223372036854775808"},
		{"stop of 9", with(`"stop":["1","2","3","4","5","6","7","8","9"]`), "stop", "9 strings"},
		{"stop empty string", with(`"stop":["a",""]`), "stop", "string 1"},
		{"stop only empty string", with(`"stop":""`), "stop", "string 0"},
		{"stop number", with(`"stop":3`), "stop", "3"},
		{"stop number in list", with(`"stop":["a",3]`), "stop", "3"},
		{"stop null in list", with(`"stop":[null]`), "stop", "item 0"},
		{"n 2", with(`"n":2`), "n", "2"},
		{"n 0", with(`"n":0`), "n", "0"},
		{"n text", with(`"n":"1"`), "n", `"1"`},
		{"best_of 2", with(`"best_of":2`), "best_of", "2"},
		{"best_of list", with(`"best_of":[]`), "best_of", "[]"},
		{"stream text", with(`"stream":"yes"`), "stream", `"yes"`},
		{"stream number", with(`"stream":1`), "stream", "1"},
		{"stream_options without stream", with(`"stream_options":{}`), "stream_options", "stream"},
		{"stream_options, stream false", with(`"stream":false,"stream_options":{"include_usage":true}`), "stream_options", "stream"},
		{"stream_options list", with(`"stream":true,"stream_options":[]`), "stream_options", "[]"},
		{"include_usage number", with(`"stream":true,"stream_options":{"include_usage":1}`), "stream_options.include_usage", "1"},
		{"continuous usage", with(`"stream":true,"stream_options":{"continuous_usage_stats":true}`), "stream_options.continuous_usage_stats", "true"},
		{"user number", with(`"user":1`), "user", "1"},
		{"cache_salt empty", with(`"cache_salt":""`), "cache_salt", "0 characters"},
		{"cache_salt long", with(`"cache_salt":"` + long + `"`), "cache_salt", "1025 characters"},
		{"cache_salt number", with(`"cache_salt":1`), "cache_salt", "1"},
		{"ignore_eos text", with(`"ignore_eos":"true"`), "ignore_eos", `"true"`},
		{"skip_special_tokens number", with(`"skip_special_tokens":0`), "skip_special_tokens", "0"},

		{"echo", with(`"echo":true`), "echo", "true"},
		{"echo text", with(`"echo":"x"`), "echo", `"x"`},
		{"suffix", with(`"suffix":"end"`), "suffix", `"end"`},
		{"logprobs", with(`"logprobs":0`), "logprobs", "0"},
		{"presence_penalty", with(`"presence_penalty":0.5`), "presence_penalty", "0.5"},
		{"frequency_penalty", with(`"frequency_penalty":-2`), "frequency_penalty", "-2"},
		{"logit_bias", with(`"logit_bias":{"50256":-100}`), "logit_bias", `{"50256":-100}`},
		{"min_p", with(`"min_p":0.1`), "min_p", "0.1"},
		{"repetition_penalty", with(`"repetition_penalty":1.1`), "repetition_penalty", "1.1"},
		{"stop_token_ids", with(`"stop_token_ids":[1]`), "stop_token_ids", "[1]"},
		{"min_tokens", with(`"min_tokens":3`), "min_tokens", "3"},
		{"response_format", with(`"response_format":{"type":"json_object"}`), "response_format", "json_object"},
		{"guided_json", with(`"guided_json":{}`), "guided_json", "{}"},
		{"prompt_logprobs", with(`"prompt_logprobs":1`), "prompt_logprobs", "1"},
		{"the first of two by name", with(`"min_p":0.1,"echo":true`), "echo", "true"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(tt.body)
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("error %v of type %T; want *Error", err, err)
			}
			if e.Status != http.StatusBadRequest || e.Param != tt.param {
				t.Errorf("status %d, param %q; want 400, %q (%s)", e.Status, e.Param, tt.param, e.Message)
			}
			if !strings.Contains(e.Message, tt.says) || !strings.HasPrefix(e.Message, tt.param) {
				t.Errorf("message %q; want one that begins with %q and says %q", e.Message, tt.param, tt.says)
			}
			fourKeys(t, e)
		})
	}
}

// fourKeys checks the wire form that openai-python needs.
func fourKeys(t *testing.T, e *Error) {
	t.Helper()
	data, err := json.Marshal(ErrorResponse{e})
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	inner := out["error"]
	for _, key := range []string{"message", "type", "param", "code"} {
		value, ok := inner[key]
		if !ok {
			t.Errorf("%s has no %q", data, key)
		}
		if text, ok := value.(string); value != nil && (!ok || text == "") {
			t.Errorf("%s: %q is %v; want text or null", data, key, value)
		}
	}
	if len(inner) != 4 || inner["message"] == nil || inner["type"] == nil {
		t.Errorf("%s: want exactly four keys, with message and type set", data)
	}
}

func TestDecodeAccepts(t *testing.T) {
	tests := []struct {
		name, body string
		want       CompletionRequest
	}{
		{"least", `{"model":"m","prompt":"p"}`, CompletionRequest{}},
		{
			"all null",
			`{"model":"m","prompt":"p","max_tokens":null,"temperature":null,"top_p":null,"top_k":null,"seed":null,"stop":null,
			"n":null,"best_of":null,"stream":null,"stream_options":null,"user":null,"cache_salt":null,"ignore_eos":null,
			"skip_special_tokens":null,"echo":null,"suffix":null,"logprobs":null,"presence_penalty":null,"logit_bias":null}`,
			CompletionRequest{},
		},
		{
			"unsupported fields that change nothing",
			`{"model":"m","prompt":"p","echo":false,"suffix":"","presence_penalty":0,"frequency_penalty":0.0,"logit_bias":{},
			"repetition_penalty":1.0,"min_p":0,"min_tokens":0,"stop_token_ids":[],"bad_words":[],"priority":0,
			"return_token_ids":false,"include_stop_str_in_output":false,"response_format":{"type":"text"},"n":1,"best_of":1}`,
			CompletionRequest{N: new(1), BestOf: new(1)},
		},
		{"unknown keys", `{"model":"m","prompt":"p","foo":[1,{"a":null}],"add_special_tokens":true}`, CompletionRequest{}},
		{"zeros differ from null", `{"model":"m","prompt":"p","max_tokens":0,"temperature":0,"seed":0,"stream":false,"ignore_eos":false}`,
			CompletionRequest{MaxTokens: new(0), Temperature: new(0.0), Seed: new(int64(0)), Stream: new(false), IgnoreEOS: new(false)}},
		{"the last of equal keys counts", `{"model":"x","model":"m","prompt":[1],"prompt":"p","max_tokens":3,"max_tokens":4}`,
			CompletionRequest{MaxTokens: new(4)}},
		{"borders", `{"model":"m","prompt":"p","temperature":2,"top_p":1,"top_k":-1,"seed":-9223372036854775808,"stop":["a","b","c","d"]}`,
			CompletionRequest{Temperature: new(2.0), TopP: new(1.0), TopK: new(-1), Seed: new(int64(math.MinInt64)), Stop: Stop{"a", "b", "c", "d"}}},
		{"one stop string", `{"model":"m","prompt":"p","stop":"\n\n"}`, CompletionRequest{Stop: Stop{"\n\n"}}},
		{"no stop string", `{"model":"m","prompt":"p","stop":[]}`, CompletionRequest{}},
		{"stream with usage", `{"model":"m","prompt":"p","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false,"x":1}}`,
			CompletionRequest{Stream: new(true), StreamOptions: &StreamOptions{IncludeUsage: new(true), ContinuousUsageStats: new(false)}}},
		{"salt of 1024 characters, not bytes", `{"model":"m","prompt":"p","cache_salt":"` + strings.Repeat("ß", MaxSalt) + `"}`,
			CompletionRequest{CacheSalt: new(strings.Repeat("ß", MaxSalt))}},
		{"surrogate pair", `{"model":"m","prompt":"p","user":"\ud83d\ude00\\ud83d"}`, CompletionRequest{User: new(`😀\ud83d`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decode(tt.body)
			if err != nil {
				t.Fatal(err)
			}
			got.other = nil
			tt.want.Model, tt.want.Prompt = "m", TextPrompt("p")
			if !reflect.DeepEqual(*got, tt.want) {
				t.Errorf("got %+v\nwant %+v", *got, tt.want)
			}
		})
	}
}

func TestPromptShapes(t *testing.T) {
	tests := []struct {
		json string
		want Prompt
		bare string // how it is written again; "" for the same
	}{
		{`"a"`, TextPrompt("a"), ""},
		{`["a"]`, TextPrompt("a"), `"a"`},
		{`["a","b <|x|>"]`, Prompt{Texts: []string{"a", "b <|x|>"}}, ""},
		{`[1,-2,2147483647]`, TokenPrompt([]int32{1, -2, math.MaxInt32}), ""},
		{` [ [ 1 , 2 ] ] `, TokenPrompt([]int32{1, 2}), `[1,2]`},
		{`[[]]`, TokenPrompt([]int32{}), ""},
		{`[[1],[2,3]]`, Prompt{Tokens: [][]int32{{1}, {2, 3}}}, ""},
	}
	for _, tt := range tests {
		r, err := ParseCompletion([]byte(`{"model":"m","prompt":` + tt.json + `}`))
		if err != nil {
			t.Errorf("%s: %v", tt.json, err)
			continue
		}
		if !reflect.DeepEqual(r.Prompt, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.json, r.Prompt, tt.want)
		}
		out, err := r.Prompt.MarshalJSON()
		if want := Or(orNull(tt.bare), tt.json); err != nil || string(out) != want {
			t.Errorf("%s: written as %s, %v; want %s", tt.json, out, err, want)
		}
	}
}

// Parse leaves to Validate what another server might be able to do.
func TestParsePassesWhatOthersMaySupport(t *testing.T) {
	for _, fields := range []string{`"echo":true`, `"n":3`, `"logprobs":5`, `"temperature":9`, `"presence_penalty":2`, `"stop":["1","2","3","4","5"]`} {
		body := `{"model":"m","prompt":"p",` + fields + `}`
		r, err := ParseCompletion([]byte(body))
		if err != nil {
			t.Errorf("ParseCompletion(%s): %v", body, err)
			continue
		}
		if r.Validate() == nil {
			t.Errorf("Validate passes %s", body)
		}
	}
}

func TestValidateCatchesNaN(t *testing.T) {
	for param, r := range map[string]*CompletionRequest{
		"temperature": {Prompt: TextPrompt("p"), Temperature: new(math.NaN())},
		"top_p":       {Prompt: TextPrompt("p"), TopP: new(math.NaN())},
	} {
		if e, ok := errors.AsType[*Error](r.Validate()); !ok || e.Param != param {
			t.Errorf("%s NaN: got %v", param, e)
		}
	}
}

// FuzzParseCompletion checks that any body leads to a request or to an *Error
// with status 400, and that a request survives being written and read again.
func FuzzParseCompletion(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"p","max_tokens":3,"stop":["a","b"],"stream":true,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"temperature":0.5,"top_p":0.9,"top_k":-1,"seed":7,"cache_salt":"x"}`))
	f.Add([]byte(`{"model":"m","prompt":["\ud83d\ude00",""],"logit_bias":{},"echo":false,"user":"\\"}`))
	f.Add([]byte(`{"model":"m","prompt":[1,null]}`))
	f.Add([]byte("{\"model\":\"m\xff\"}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseCompletion(body)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Status != 400 || e.Message == "" {
				t.Fatalf("%q: %v of type %T", body, err, err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Status != 400 || e.Param == "" {
				t.Fatalf("%q: %v of type %T", body, err, err)
			}
		}
		written, err := marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseCompletion(written)
		if err != nil {
			t.Fatalf("%q, written as %q: %v", body, written, err)
		}
		r.other = nil
		if len(r.Stop) == 0 {
			r.Stop = nil
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatalf("%q: %+v became %+v", body, r, again)
		}
	})
}
