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
		{"stop null in list", with(`"stop":[null]`), "stop", "null at index 0"},
		{"n 0", with(`"n":0`), "n", "0"},
		{"n text", with(`"n":"1"`), "n", `"1"`},
		{"best_of below n", with(`"n":3,"best_of":2`), "best_of", "2 choices cannot give the 3"},
		{"best_of streamed", with(`"best_of":2,"stream":true`), "best_of", "cannot be streamed"},
		{"best_of list", with(`"best_of":[]`), "best_of", "[]"},
		{"stream text", with(`"stream":"yes"`), "stream", `"yes"`},
		{"stream number", with(`"stream":1`), "stream", "1"},
		{"stream_options without stream", with(`"stream_options":{}`), "stream_options", "stream"},
		{"stream_options, stream false", with(`"stream":false,"stream_options":{"include_usage":true}`), "stream_options", "stream"},
		{"stream_options list", with(`"stream":true,"stream_options":[]`), "stream_options", "[]"},
		{"include_usage number", with(`"stream":true,"stream_options":{"include_usage":1}`), "stream_options.include_usage", "1"},
		{"continuous usage number", with(`"stream":true,"stream_options":{"continuous_usage_stats":1}`), "stream_options.continuous_usage_stats", "1"},
		{"user number", with(`"user":1`), "user", "1"},
		{"cache_salt empty", with(`"cache_salt":""`), "cache_salt", "0 characters"},
		{"cache_salt long", with(`"cache_salt":"` + long + `"`), "cache_salt", "1025 characters"},
		{"cache_salt number", with(`"cache_salt":1`), "cache_salt", "1"},
		{"ignore_eos text", with(`"ignore_eos":"true"`), "ignore_eos", `"true"`},
		{"skip_special_tokens number", with(`"skip_special_tokens":0`), "skip_special_tokens", "0"},

		{"echo text", with(`"echo":"x"`), "echo", `"x"`},
		{"suffix", with(`"suffix":"end"`), "suffix", "fill in"},
		{"logprobs 6", with(`"logprobs":6`), "logprobs", "6 is not within 0 to 5"},
		{"logprobs true", with(`"logprobs":true`), "logprobs", "true"},
		{"logit_bias id", with(`"logit_bias":{"x":-100}`), "logit_bias", `"x"`},
		{"logit_bias negative id", with(`"logit_bias":{"-1":-100}`), "logit_bias", `"-1"`},
		{"logit_bias null", with(`"logit_bias":{"5":null}`), "logit_bias", "null for token 5"},
		{"logit_bias text", with(`"logit_bias":{"5":"1"}`), "logit_bias", `"1" for token 5`},
		{"logit_bias, the lowest of two", with(`"logit_bias":{"7":101,"5":-101}`), "logit_bias", "-101 for token 5"},
		{"logit_bias list", with(`"logit_bias":[]`), "logit_bias", "[]"},
		{"min_tokens above max_tokens", with(`"min_tokens":17`), "min_tokens", "17 are more than the 16"},
		{"prompt_logprobs streamed", with(`"prompt_logprobs":1,"stream":true`), "prompt_logprobs", "stream"},
		{"truncate to nothing", with(`"truncate_prompt_tokens":0`), "truncate_prompt_tokens", "0"},
		{"stop_token_ids text", with(`"stop_token_ids":[1,"2"]`), "stop_token_ids", `"2" at index 1`},
		{"allowed_token_ids empty", with(`"allowed_token_ids":[]`), "allowed_token_ids", "0 token ids"},
		{"bad_words empty word", with(`"bad_words":["a",""]`), "bad_words", "string 1"},
		{"bad_words text", with(`"bad_words":"a"`), "bad_words", `"a"`},
		{"response_format", with(`"response_format":{"type":"json_object"}`), "response_format", "not supported"},
		{"guided_json", with(`"guided_json":{}`), "guided_json", "not supported"},
		{"use_beam_search", with(`"use_beam_search":true`), "use_beam_search", "not supported"},
		{"the first of two by name", with(`"regex":"a","ebnf":"b"`), "ebnf", "not supported"},
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
			"all that is supported",
			`{"model":"m","prompt":"p","echo":true,"suffix":"","presence_penalty":-2,"frequency_penalty":2.0,"logit_bias":{"50256":-100,"0":1.5},
			"repetition_penalty":1.3,"min_p":0.5,"min_tokens":3,"stop_token_ids":[7],"bad_words":["a b"],"priority":-4,"logprobs":5,
			"return_token_ids":true,"include_stop_str_in_output":true,"n":2,"best_of":20,"prompt_logprobs":0,"allowed_token_ids":[1,2],
			"truncate_prompt_tokens":-1,"add_special_tokens":false,"return_tokens_as_token_ids":true,"spaces_between_special_tokens":true}`,
			CompletionRequest{
				Echo: new(true), Suffix: new(""), PresencePenalty: new(-2.0), FrequencyPenalty: new(2.0), LogitBias: Biases{50256: -100, 0: 1.5},
				RepetitionPenalty: new(1.3), MinP: new(0.5), MinTokens: new(3), StopTokenIDs: TokenIDs{7}, BadWords: Words{"a b"}, Priority: new(-4),
				Logprobs: new(5), ReturnTokenIDs: new(true), IncludeStop: new(true), N: new(2), BestOf: new(20), PromptLogprobs: new(0),
				AllowedTokenIDs: TokenIDs{1, 2}, TruncatePrompt: new(-1), AddSpecialTokens: new(false), ReturnTokensAsIDs: new(true),
				SpacesBetweenTokens: new(true),
			},
		},
		{
			"unsupported fields that change nothing",
			`{"model":"m","prompt":"p","response_format":{"type":"text"},"length_penalty":1,"use_beam_search":false,"guided_json":null}`,
			CompletionRequest{},
		},
		{"best_of 0 is n", `{"model":"m","prompt":"p","best_of":0,"n":128}`, CompletionRequest{N: new(128), BestOf: new(0)}},
		{"unknown keys", `{"model":"m","prompt":"p","foo":[1,{"a":null}]}`, CompletionRequest{}},
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
	for _, fields := range []string{`"suffix":"x"`, `"n":300`, `"logprobs":50`, `"temperature":9`, `"presence_penalty":3`, `"stop":["1","2","3","4","5"]`, `"guided_regex":"a"`} {
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

// dropEmpty makes empty lists nil: they are not written, and mean the same.
func dropEmpty(r *CompletionRequest) {
	if len(r.Stop) == 0 {
		r.Stop = nil
	}
	if len(r.StopTokenIDs) == 0 {
		r.StopTokenIDs = nil
	}
	if len(r.AllowedTokenIDs) == 0 {
		r.AllowedTokenIDs = nil
	}
	if len(r.BadWords) == 0 {
		r.BadWords = nil
	}
	if len(r.LogitBias) == 0 {
		r.LogitBias = nil
	}
}

// FuzzParseCompletion checks that any body leads to a request or to an *Error
// with status 400, and that a request survives being written and read again.
func FuzzParseCompletion(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"p","max_tokens":3,"stop":["a","b"],"stream":true,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"temperature":0.5,"top_p":0.9,"top_k":-1,"seed":7,"cache_salt":"x"}`))
	f.Add([]byte(`{"model":"m","prompt":["\ud83d\ude00",""],"logit_bias":{},"echo":false,"user":"\\"}`))
	f.Add([]byte(`{"model":"m","prompt":[1,null]}`))
	f.Add([]byte(`{"model":"m","prompt":[1],"logit_bias":{"5":-100,"05":1e3},"stop_token_ids":[1, 2 ],"bad_words":["a"],"allowed_token_ids":[]}`))
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
		dropEmpty(r)
		dropEmpty(again)
		if !reflect.DeepEqual(r, again) {
			t.Fatalf("%q: %+v became %+v", body, r, again)
		}
	})
}
