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

func TestChat(t *testing.T) {
	r, e := realRig(t, 256, withTemplate(t))
	chat := func(fields string) (openai.ChatResponse, answer) {
		t.Helper()
		a := r.do("POST", "/v1/chat/completions", `{"model":"tailor-4m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}],"seed":5`+fields+`}`)
		var out openai.ChatResponse
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
			t.Fatalf("%s: status %d, %v: %s", fields, a.status, err, a.body)
		}
		return out, a
	}
	// The prompt is what the model's card says, and the answer that of the completion.
	want := r.complete(`"prompt":"System: Be brief.\nUser: hi\nAssistant:","seed":5,"max_tokens":12,"logprobs":2`)
	got, a := chat(`,"max_tokens":12,"logprobs":true,"top_logprobs":2`)
	c := got.Choices[0]
	if c.Message.Content != want.Choices[0].Text || c.Message.Role != "assistant" || *c.FinishReason != *want.Choices[0].FinishReason ||
		got.Usage.PromptTokens != want.Usage.PromptTokens || !strings.HasPrefix(got.ID, "chatcmpl-") || got.Object != "chat.completion" {
		t.Errorf("got %s\nwant %+v", a.body, want.Choices[0])
	}
	for i, l := range c.Logprobs.Content {
		w := want.Choices[0].Logprobs
		text := ""
		for _, b := range l.Bytes {
			text += string([]byte{byte(b)})
		}
		if l.Token != w.Tokens[i] || l.Logprob != *w.TokenLogprobs[i] || text != l.Token || len(l.TopLogprobs) != 2 || l.TopLogprobs[0].Token != w.TopLogprobs[i][0].Token {
			t.Errorf("logprob %d: %+v", i, l)
		}
	}
	// max_completion_tokens counts; without any limit the answer may fill the context.
	if out, _ := chat(`,"max_tokens":12,"max_completion_tokens":3,"ignore_eos":true`); out.Usage.CompletionTokens != 3 {
		t.Errorf("usage %+v", out.Usage)
	}
	if out, _ := chat(`,"ignore_eos":true`); out.Usage.TotalTokens != testContext {
		t.Errorf("usage %+v", out.Usage)
	}
	// A stream brings the role with the first text, and the same text.
	s := r.do("POST", "/v1/chat/completions", `{"model":"tailor-4m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}],"seed":5,"max_tokens":12,"stream":true}`)
	var text strings.Builder
	roles := 0
	for line := range strings.SplitSeq(s.body, "\n\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []openai.ChatDelta `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatal(err)
		}
		d := chunk.Choices[0].Delta
		if d.Role != "" {
			roles++
			if text.Len() != 0 || *d.Content == "" {
				t.Errorf("the role comes with %q after %q", *d.Content, text.String())
			}
		}
		text.WriteString(*d.Content)
	}
	if text.String() != c.Message.Content || roles != 1 || !strings.HasSuffix(s.body, "data: [DONE]\n\n") {
		t.Errorf("streamed %s", s.body)
	}
	// A turn that goes on from the answer reuses all of it.
	next := r.do("POST", "/v1/chat/completions", fmt.Sprintf(
		`{"model":"tailor-4m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"},{"role":"assistant","content":%s},{"role":"user","content":"and?"}],"max_tokens":2}`,
		mustJSON(strings.TrimSpace(c.Message.Content))))
	if !strings.Contains(next.body, `"cached_tokens":`) || strings.Contains(next.body, `"cached_tokens":0`) {
		t.Errorf("%s", next.body)
	}
	mustBeIdle(t, e)
}

func TestChatRefusals(t *testing.T) {
	hi := `"messages":[{"role":"user","content":"hi"}]`
	e := says(spell(t, "a"), 0)
	e.stats.KV.Total = 64
	bare := newRig(t, e)
	got := bare.do("POST", "/v1/chat/completions", `{"model":"tailor-4m",`+hi+`}`).mustRefuse(t, 400, "messages")
	if !strings.Contains(got.Message, "chat template") || !strings.Contains(got.Message, "/v1/completions") {
		t.Errorf("message %q", got.Message)
	}
	raising, err := NewChatTemplate(`{% if messages[0].content == "bad" %}{{ raise_exception("no such thing") }}{% elif messages[0].content == "bug" %}{{ nonsense() }}{% endif %}{{ messages[0].content }}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, e, func(c *Config) { c.Template = raising })
	ask := func(content, fields string) answer {
		return r.do("POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"tailor-4m","messages":[{"role":"user","content":%q}]%s}`, content, fields))
	}
	if got := ask("bad", "").mustRefuse(t, 400, "messages"); !strings.Contains(got.Message, "no such thing") {
		t.Errorf("message %q", got.Message)
	}
	if a := ask("bug", ""); a.header.Get("x-should-retry") != "false" || !strings.Contains(r.log.String(), "nonsense") {
		t.Errorf("header %v, log %s", a.header, r.log)
	} else {
		a.mustRefuse(t, 500, "")
	}
	e.refuse = engine.ErrEmptyPrompt // what is about the prompt is about the messages here
	ask("", "").mustRefuse(t, 400, "messages")
	e.refuse = nil
	ask(strings.Repeat("a b ", 40000), "").mustRefuse(t, 400, "messages")
	r.do("POST", "/v1/chat/completions", `{"model":"other",`+hi+`}`).mustRefuse(t, 404, "model")
	if ask("hi", `,"max_tokens":1`).status != 200 {
		t.Error("a good request is refused")
	}
}

// What people write cannot spell a special token, what the template writes can.
func TestMessagesCannotSpellSpecialTokens(t *testing.T) {
	template, err := NewChatTemplate(`{% for m in messages %}{{ m.content | trim }}{{ eos_token }}{% endfor %}`, map[string]string{"eos_token": "<|endoftext|>"})
	if err != nil {
		t.Fatal(err)
	}
	e := says(spell(t, "a"), 0)
	e.stats.KV.Total = 64
	r := newRig(t, e, func(c *Config) { c.Template = template })
	for _, content := range []string{"hi", "<|endoftext|>", "a <|endoftext|> b<|endoftext|>", "\uFDD0<|endoftext|>\uFDD1", "<|endof\uFDD0text|>"} {
		a := r.do("POST", "/v1/chat/completions", `{"model":"tailor-4m","max_tokens":1,"messages":[{"role":"user","content":`+mustJSON(content)+`}]}`)
		if a.status != 200 {
			t.Fatalf("%s", a.body)
		}
		requests := e.submitted()
		ids := requests[len(requests)-1].Tokens
		clean := strings.NewReplacer("\uFDD0", "\uFFFD", "\uFDD1", "\uFFFD").Replace(content)
		if n := len(ids) - 1; slices.Index(ids, testEOS) != n || tokens(t).Decode(ids[:n]) != clean {
			t.Errorf("%q became %v: %q", content, ids, tokens(t).Decode(ids))
		}
	}
}

// The next turn of a conversation brings the answer as it came, as every client does, and
// finds what was generated in the cache.
func TestChatTurnsReuseTheAnswerBefore(t *testing.T) {
	r, e := realRig(t, 256, withTemplate(t))
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	conversation := []message{{"system", "You help customers with hotels and taxis."}, {"user", "I need a hotel in Seattle."}}
	stored := 0 // tokens of full blocks that the turns so far have left
	for turn := range 3 {
		messages, err := json.Marshal(conversation)
		if err != nil {
			t.Fatal(err)
		}
		a := r.do("POST", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":%s,"max_tokens":40,"temperature":0}`, testModel, messages))
		var out openai.ChatResponse
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
			t.Fatalf("status %d, %v: %s", a.status, err, a.body)
		}
		if cached, _ := out.Usage.Cached(); cached < stored {
			t.Errorf("turn %d: %d tokens reused of %d, want all %d of prompt and answer before", turn, cached, out.Usage.PromptTokens, stored)
		}
		stored = (out.Usage.TotalTokens - 1) / 16 * 16
		conversation = append(conversation, message{"assistant", out.Choices[0].Message.Content}, message{"user", "And a taxi, please."})
	}
	if stored < 64 {
		t.Errorf("only %d tokens were stored, which proves little", stored)
	}
	mustBeIdle(t, e)
}
