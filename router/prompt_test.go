package router

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tailor/internal/openai"
)

func reader() *promptReader { return &promptReader{blockTokens: 16, chunkBytes: 64, limit: 1000} }

// words is a tokenizer: one token for each word.
func words(text string) ([]int32, error) {
	if strings.Contains(text, "\x00") {
		return nil, errors.New("cannot")
	}
	tokens := []int32{}
	for _, w := range strings.Fields(text) {
		tokens = append(tokens, int32(len(w)))
	}
	return tokens, nil
}

func completion(t *testing.T, p *promptReader, body string, headers ...string) prompt {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	q, err := p.completion(h, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return q
}

func TestPromptFields(t *testing.T) {
	q := completion(t, reader(), `{"model":"m","prompt":"x","stream":true,"user":"u","cache_salt":"s"}`)
	if q.model != "m" || !q.stream || q.session != "u" || !q.salted {
		t.Errorf("%+v", q)
	}
	q = completion(t, reader(), `{"model":"m","prompt":"x","stream":null,"user":null,"cache_salt":null}`)
	if q.stream || q.session != "" || q.salted {
		t.Errorf("%+v", q)
	}
	q = completion(t, reader(), `{"model":"m","prompt":"x","user":"u"}`, "X-Session-Id", "conversation")
	if q.session != "conversation" {
		t.Errorf("session %q: a conversation says more than a user", q.session)
	}
}

func TestPromptShapes(t *testing.T) {
	p := reader()
	p.tokenize = words
	text := strings.TrimSpace(strings.Repeat("one two three four ", 10)) // 40 words
	ids := func(n int) string {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprint([]int{3, 3, 5, 4}[i%4]))
		}
		return "[" + strings.Join(s, ",") + "]"
	}
	one := completion(t, p, `{"model":"m","prompt":`+ids(40)+`}`)
	if one.tokens != 40 || len(one.chains) != 1 || len(one.chains[0].blocks) != 2 {
		t.Fatalf("40 ids: %d tokens, %d chains", one.tokens, len(one.chains))
	}
	same := completion(t, p, fmt.Sprintf(`{"model":"m","prompt":%q}`, text))
	if !reflect.DeepEqual(one, same) {
		t.Error("the text of the same tokens is another prefix")
	}
	for body, want := range map[string][]int{ // blocks of each prompt
		`{"model":"m","prompt":[` + ids(40) + `,` + ids(16) + `,[1]]}`: {2, 1, 0},
		fmt.Sprintf(`{"model":"m","prompt":[%q,%q]}`, text, "short"):   {2, 0},
		`{"model":"m","prompt":""}`:                                    {0},
	} {
		q := completion(t, p, body)
		var got []int
		for _, c := range q.chains {
			got = append(got, len(c.blocks))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.60s: blocks %v, want %v", body, got, want)
		}
	}
}

// Where there is no tokenizer, or it fails, the bytes are the prefix.
func TestPromptBytes(t *testing.T) {
	text := strings.Repeat("abcdefgh", 20) // 160 bytes
	without := completion(t, reader(), fmt.Sprintf(`{"model":"m","prompt":%q}`, text))
	if len(without.chains[0].blocks) != 2 || without.tokens != 40 {
		t.Errorf("160 bytes: %d chunks, %d tokens estimated", len(without.chains[0].blocks), without.tokens)
	}
	p := reader()
	p.tokenize = func(string) ([]int32, error) { return nil, errors.New("cannot") }
	failing := completion(t, p, fmt.Sprintf(`{"model":"m","prompt":%q}`, text))
	if !reflect.DeepEqual(without, failing) {
		t.Error("a failing tokenizer is not the same as none")
	}
	// The bytes of the text, not of its JSON spelling.
	escaped := completion(t, reader(), `{"model":"m","prompt":"\u0061`+text[1:]+`"}`)
	if !reflect.DeepEqual(without, escaped) {
		t.Error("another spelling in JSON is another prefix")
	}
}

func TestPromptScopes(t *testing.T) {
	body := func(model, salt string) string {
		return fmt.Sprintf(`{"model":%q,"cache_salt":%q,"prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`, model, salt)
	}
	first := func(p *promptReader, body string, headers ...string) any {
		return completion(t, p, body, headers...).chains[0].blocks[0]
	}
	p := reader()
	if first(p, body("m", "a")) != first(p, body("m", "a")) {
		t.Error("one scope, two prefixes")
	}
	if first(p, body("m", "a")) == first(p, body("m", "b")) || first(p, body("m", "a")) == first(p, body("n", "a")) {
		t.Error("two scopes, one prefix")
	}
	if first(p, body("m", "a"), "Authorization", "x") != first(p, body("m", "a"), "Authorization", "y") {
		t.Error("keys separate without being asked to")
	}
	p.saltByKey = true
	if first(p, body("m", "a"), "Authorization", "x") == first(p, body("m", "a"), "Authorization", "y") {
		t.Error("two keys, one prefix")
	}
	// No choice of salt makes one caller's prefix another's.
	if first(p, body("m", "y1:a"), "Authorization", "x") == first(p, body("m", "a"), "Authorization", "xy1:") ||
		first(p, body("m", "a"), "Authorization", "") == first(p, body("m", ""), "Authorization", "a") {
		t.Error("a salt can be forged")
	}
}

func TestPromptLimit(t *testing.T) {
	p := reader()
	p.limit = 5
	q := completion(t, p, `{"model":"m","prompt":["`+strings.Repeat("x", 64*3)+`","`+strings.Repeat("y", 64*9)+`","`+strings.Repeat("z", 64)+`"]}`)
	if len(q.chains[0].blocks) != 3 || len(q.chains[1].blocks) != 2 || len(q.chains[2].blocks) != 0 {
		t.Errorf("blocks %d, %d, %d; want 3, 2, 0 of 5 allowed", len(q.chains[0].blocks), len(q.chains[1].blocks), len(q.chains[2].blocks))
	}
}

// A conversation that goes on begins with what it was.
func TestChatPrefixGrows(t *testing.T) {
	turn := func(n int) string {
		return fmt.Sprintf(`{"role":"user", "content":"turn %d %s"}`, n, strings.Repeat("w", 80))
	}
	chat := func(messages ...string) prompt {
		q, err := reader().chat(http.Header{}, []byte(`{"model":"m","messages":[ `+strings.Join(messages, " , ")+` ]}`))
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	a, b := chat(turn(1), turn(2)), chat(turn(1), turn(2), turn(3))
	if n := len(a.chains[0].blocks); n < 3 || !slices.Equal(a.chains[0].blocks, b.chains[0].blocks[:n]) {
		t.Errorf("%d chunks, not the beginning of the longer conversation", n)
	}
	if c := chat(turn(9), turn(2)); c.chains[0].blocks[0] == a.chains[0].blocks[0] {
		t.Error("another first message, the same prefix")
	}
	for _, body := range []string{`{"model":"m"}`, `{"model":"m","messages":null}`, `{"model":"m","messages":7}`} {
		if _, err := reader().chat(http.Header{}, []byte(body)); err != nil {
			t.Errorf("%s: what is wrong with it is for the replica to say: %v", body, err)
		}
	}
}

// Whatever the body, the reader does not panic, and either refuses it in OpenAI's shape
// or keeps its bounds. What it takes for a prefix does not depend on white space.
func FuzzPrompt(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"hello","stream":true}`), true)
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"cache_salt":"s"}`), false)
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), false)
	f.Add([]byte(`{"model":"m","prompt":["a","b\u0000"],"user":null}`), true)
	f.Add([]byte(`{"model":"m","prompt":[1,2,3,-1,2147483647]}`), true)
	f.Add([]byte(`{"model":"m\n","prompt":[ 1 ,20,3 ],"x":{"a":[1.5e3,-2,true,null,"\u0041"]},"stream":false}`), true)
	f.Add([]byte(`{"Model":"m","model":"m","prompt":[0],"max_tokens":"x","stop":{},"n":1}`), true)
	f.Fuzz(func(t *testing.T, body []byte, tokenizer bool) {
		p := &promptReader{blockTokens: 2, chunkBytes: 3, limit: 7}
		if tokenizer {
			p.tokenize = words
		}
		if _, ok := scanCompletion(body); ok {
			fast, _ := p.completion(http.Header{}, body)
			full, err := p.parse(http.Header{}, body)
			if e, ok := errors.AsType[*openai.Error](err); ok {
				// A field that is the replica's affair is left to the replica.
				if slices.Contains([]string{"", "model", "prompt", "user", "cache_salt", "stream"}, e.Param) {
					t.Fatalf("read in one pass as %+v, in full refused: %v", fast, err)
				}
			} else if !reflect.DeepEqual(fast, full) {
				t.Fatalf("read in one pass as %+v, in full as %+v", fast, full)
			}
		}
		for _, read := range []func(http.Header, []byte) (prompt, error){p.completion, p.chat} {
			q, err := read(http.Header{}, body)
			if err != nil {
				if e, ok := errors.AsType[*openai.Error](err); !ok || e.Status != 400 || e.Message == "" {
					t.Fatalf("refused with %v", err)
				}
				continue
			}
			blocks := 0
			for _, c := range q.chains {
				blocks += len(c.blocks)
			}
			if blocks > 7 || blocks*p.blockTokens > q.tokens+p.blockTokens*len(q.chains) {
				t.Fatalf("%d blocks, %d tokens", blocks, q.tokens)
			}
			spaced, err := read(http.Header{}, append([]byte(" \n\t"), append(body, "\r\n "...)...))
			if err != nil || !reflect.DeepEqual(q, spaced) {
				t.Fatalf("white space around the body changes it: %v", err)
			}
		}
	})
}

// TestManyPromptsCostNoMoreThanABoundedNumber counts all prompts of a request and looks at
// the blocks of a few: the work must not grow with the square of their number.
func TestManyPromptsCostNoMoreThanABoundedNumber(t *testing.T) {
	encoded := 0
	p := reader()
	p.tokenize = func(string) ([]int32, error) {
		encoded++
		return []int32{1}, nil
	}
	const prompts = 1000
	q := completion(t, p, `{"model":"m","prompt":["a"`+strings.Repeat(`,"a"`, prompts-1)+`]}`)
	if len(q.chains) != maxChains || encoded != maxChains || q.tokens != prompts {
		t.Errorf("%d prompts: %d chains, %d encoded, %d tokens; want %d, %d, %d",
			prompts, len(q.chains), encoded, q.tokens, maxChains, maxChains, prompts)
	}
	q = completion(t, p, `{"model":"m","prompt":[[1]`+strings.Repeat(`,[1]`, prompts-1)+`]}`)
	if len(q.chains) != maxChains || q.tokens != prompts {
		t.Errorf("%d token prompts: %d chains, %d tokens", prompts, len(q.chains), q.tokens)
	}
}
