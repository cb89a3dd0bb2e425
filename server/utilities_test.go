package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tailor/internal/openai"
	"tailor/server/engine"
)

func TestModels(t *testing.T) {
	r := newRig(t, says(nil, 0), func(c *Config) { c.ModelName = "org/tailor" })
	a := r.do("GET", "/v1/models", "")
	var list openai.ModelList
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 || list.Object != "list" || len(list.Data) != 1 {
		t.Fatalf("status %d, %s, %v", a.status, a.body, err)
	}
	if m := list.Data[0]; m.ID != "org/tailor" || m.Object != "model" || m.MaxModelLen != testContext || m.Created == 0 || m.OwnedBy != "tailor" {
		t.Errorf("got %+v", m)
	}
	a = r.do("GET", "/v1/models/org/tailor", "")
	var one openai.Model
	if err := json.Unmarshal([]byte(a.body), &one); err != nil || one != list.Data[0] {
		t.Errorf("got %s, %v", a.body, err)
	}
	e := r.do("GET", "/v1/models/other", "").mustRefuse(t, 404, "model")
	if e.Code != "model_not_found" || !strings.Contains(e.Message, "other") {
		t.Errorf("got %+v", e)
	}
}

func TestSmallAnswers(t *testing.T) {
	e := says(nil, 0)
	r := newRig(t, e)
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/health", `{"status":"ok"}`},
		{"HEAD", "/health", ``},
		{"GET", "/version", `{"version":"v-test"}`},
		{"POST", "/reset_prefix_cache", `{"success":true}`},
		{"POST", "/flush_cache", `{"success":true}`},
	} {
		if a := r.do(tt.method, tt.path, ""); a.status != 200 || a.body != tt.want {
			t.Errorf("%s: status %d, %s", tt.path, a.status, a.body)
		}
	}
	e.reset = engine.ErrHeld
	r.do("POST", "/reset_prefix_cache", "").mustRefuse(t, 409, "")
}

func TestTokenizeAndBack(t *testing.T) {
	r := newRig(t, says(nil, 0))
	const text = "größer <b> the cat<|endoftext|>"
	ids, err := tokens(t).Encode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}
	a := r.do("POST", "/tokenize", fmt.Sprintf(`{"prompt":%q,"parse_special":true}`, text))
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		t.Fatalf("status %d, %s, %v", a.status, a.body, err)
	}
	if fmt.Sprint(out.Tokens) != fmt.Sprint(ids) || out.Count != len(ids) || out.MaxModelLen != testContext || out.TokenStrs != nil {
		t.Errorf("got %s, want %v", a.body, ids)
	}
	if ids[len(ids)-1] != testEOS {
		t.Errorf("the special token was not recognised: %v", ids)
	}
	a = r.do("POST", "/tokenize", fmt.Sprintf(`{"prompt":%q,"add_special_tokens":true}`, text))
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || slices.Contains(out.Tokens, testEOS) {
		t.Errorf("plain text made a special token: %s, %v", a.body, err)
	}
	a = r.do("POST", "/tokenize", `{"prompt":"the cat","return_token_strs":true}`)
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || strings.Join(out.TokenStrs, "") != "the cat" {
		t.Errorf("got %s, %v", a.body, err)
	}
	a = r.do("POST", "/detokenize", fmt.Sprintf(`{"tokens":%s}`, strings.ReplaceAll(fmt.Sprint(ids), " ", ",")))
	if want := fmt.Sprintf(`{"prompt":%q}`, text); a.body != want {
		t.Errorf("got %s, want %s", a.body, want)
	}
	for _, tt := range []struct{ path, body, param string }{
		{"/tokenize", `{}`, "prompt"}, {"/tokenize", `{"prompt":7}`, "prompt"}, {"/tokenize", `x`, ""},
		{"/tokenize", "{\"prompt\":\"\xff\"}", ""}, {"/tokenize", `{"prompt":"a","return_token_strs":1}`, "return_token_strs"},
		{"/detokenize", `{}`, "tokens"}, {"/detokenize", `{"tokens":[4096]}`, "tokens"}, {"/detokenize", `{"tokens":[-1]}`, "tokens"},
		{"/detokenize", `{"tokens":[1,null]}`, "tokens"}, {"/detokenize", `{"tokens":["a"]}`, "tokens"}, {"/detokenize", `{"tokens":"a"}`, "tokens"},
	} {
		a := r.do("POST", tt.path, tt.body)
		if a.status != 400 {
			t.Errorf("%s %s: status %d", tt.path, tt.body, a.status)
		}
		a.mustRefuse(t, 400, tt.param)
	}
	if a := r.do("POST", "/tokenize", `{"prompt":""}`); a.body != `{"count":0,"max_model_len":1024,"tokens":[],"token_strs":null}` {
		t.Errorf("empty: %s", a.body)
	}
}

// TestEpochChangesWithTheCache lets a router notice that what it knew of a replica is void.
func TestEpochChangesWithTheCache(t *testing.T) {
	r := newRig(t, says(nil, 0))
	first := r.do("GET", "/health", "").header.Get("x-tailor-epoch")
	if again := r.do("GET", "/v1/models", "").header.Get("x-tailor-epoch"); first == "" || again != first {
		t.Errorf("epochs %q and %q: want one that stays", first, again)
	}
	reset := r.do("POST", "/reset_prefix_cache", "")
	after := r.do("GET", "/health", "").header.Get("x-tailor-epoch")
	if reset.status != 200 || after == first || reset.header.Get("x-tailor-epoch") != after {
		t.Errorf("reset: status %d, epoch %q; before %q, after %q", reset.status, reset.header.Get("x-tailor-epoch"), first, after)
	}
	if other := newRig(t, says(nil, 0)).do("GET", "/health", "").header.Get("x-tailor-epoch"); other == after || other == first {
		t.Errorf("another server has the same epoch %q", other)
	}
}
