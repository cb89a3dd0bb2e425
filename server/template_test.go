package server

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"tailor/internal/openai"
	"tailor/weights"
)

// The prompts are Jinja2's, set up as transformers does it, of the bundled template and of
// those that well-known model families have.
func TestTemplatesRenderAsJinjaDoes(t *testing.T) {
	data, err := os.ReadFile("testdata/chat_templates.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name     string `json:"template_name"`
		Template string `json:"template"`
		Messages []struct{ Role, Content string }
		Generate bool   `json:"add_generation_prompt"`
		Want     string `json:"want"`
		Raises   string `json:"raises"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		template, err := NewChatTemplate(c.Template, map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		template.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }
		var messages openai.Messages
		for _, m := range c.Messages {
			messages = append(messages, openai.Message{Role: m.Role, Content: m.Content})
		}
		got, err := template.render(messages, c.Generate)
		if c.Raises != "" {
			e, ok := errors.AsType[*openai.Error](err)
			if !ok || e.Status != 400 || e.Param != "messages" || !strings.Contains(e.Message, c.Raises) {
				t.Errorf("%s: %q, %v; want a refusal that says %q", c.Name, got, err, c.Raises)
			}
		} else if err != nil || got != c.Want {
			t.Errorf("%s, %d messages:\ngot  %q, %v\nwant %q", c.Name, len(messages), got, err, c.Want)
		}
	}
	if len(cases) < 50 {
		t.Errorf("%d cases", len(cases))
	}
}

func TestTemplateIsBounded(t *testing.T) {
	one := openai.Messages{{Role: "user", Content: "{{ messages }} {% raw %}"}}
	for name, source := range map[string]string{
		"output":            "{% for i in range(100000) %}{{ messages[0].content * 1000 }}{% endfor %}",
		"range":             "{% for i in range(1000000000000) %}{% endfor %}",
		"nested ranges":     "{% for i in range(100000) %}{% for j in range(10000) %}xxxxxxxx{% endfor %}{% endfor %}",
		"no such function":  "{{ nonsense(1) }}",
		"no such attribute": "{{ messages.items().nonsense() }}",
		"range of texts":    "{% for i in range('a') %}{% endfor %}",
		"environment":       "{{ lipsum() }}",
	} {
		template, err := NewChatTemplate(source, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text, err := template.render(one, true); !errors.Is(err, ErrTemplate) {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	for name, source := range map[string]string{
		"files":      `{% include "/etc/passwd" %}`,
		"imports":    `{% import "/etc/passwd" as x %}`,
		"extends":    `{% extends "/etc/passwd" %}`,
		"unfinished": "{% if messages %}",
		"no Jinja":   "{{ messages | }}",
	} {
		if _, err := NewChatTemplate(source, nil); !errors.Is(err, ErrTemplate) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The conversation is data.
	template, err := NewChatTemplate("{{ messages[0].content }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := template.render(one, true); err != nil || text != one[0].Content {
		t.Errorf("%q, %v", text, err)
	}
}

func TestLoadChatTemplate(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tt := range map[string]struct {
		files fstest.MapFS
		want  string // "": no template
		bad   bool
	}{
		"none":          {fstest.MapFS{}, "", false},
		"without":       {fstest.MapFS{"tokenizer_config.json": file(`{"eos_token":"E"}`)}, "", false},
		"null":          {fstest.MapFS{"tokenizer_config.json": file(`{"chat_template":null}`)}, "", false},
		"inline":        {fstest.MapFS{"tokenizer_config.json": file(`{"chat_template":"a{{ eos_token }}","eos_token":"E"}`)}, "aE", false},
		"token objects": {fstest.MapFS{"tokenizer_config.json": file(`{"chat_template":"a{{ eos_token }}","eos_token":{"content":"F"},"bos_token":null}`)}, "aF", false},
		"named": {fstest.MapFS{"tokenizer_config.json": file(
			`{"chat_template":[{"name":"rag","template":"x"},{"name":"default","template":"d"}]}`)}, "d", false},
		"a file of its own": {fstest.MapFS{
			"chat_template.jinja": file("j{{ eos_token }}"), "tokenizer_config.json": file(`{"chat_template":"a","eos_token":"E"}`)}, "jE", false},
		"no JSON":  {fstest.MapFS{"tokenizer_config.json": file(`{`)}, "", true},
		"no Jinja": {fstest.MapFS{"tokenizer_config.json": file(`{"chat_template":"{% if %}"}`)}, "", true},
	} {
		c, err := LoadChatTemplate(tt.files)
		if (err != nil) != tt.bad || (c != nil) != (tt.want != "") {
			t.Errorf("%s: %v, %v", name, c, err)
			continue
		}
		if c != nil {
			if got, err := c.render(nil, true); err != nil || got != tt.want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
	c, err := LoadChatTemplate(weights.Bundled().FS())
	if err != nil || c == nil {
		t.Fatalf("the bundled folder: %v, %v", c, err)
	}
}
