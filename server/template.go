package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/parser"

	"tailor/internal/openai"
)

// ErrTemplate says that a chat template cannot be used.
var ErrTemplate = errors.New("bad chat template")

// A ChatTemplate makes a prompt of a conversation. It is immutable, and may be used by any
// number of goroutines.
//
// It is Jinja as transformers sets it up: a block takes the line break after it along, and
// the blanks before it. It comes with the model, from whom the operator trusts; still it
// reads no files, its ranges and its output are bounded, and a conversation is data to it,
// never a template.
type ChatTemplate struct {
	template *exec.Template
	tokens   map[string]string // by the names that templates know them by, e.g. eos_token
	most     int               // bytes of output
	now      func() time.Time
}

const (
	maxPrompt = 4 << 20 // bytes that a template may make
	maxRange  = 100_000 // items of a range()
)

// LoadChatTemplate reads the template of a checkpoint folder: chat_template.jinja or the
// chat_template of tokenizer_config.json. Nil and no error: the folder has none.
func LoadChatTemplate(folder fs.FS) (*ChatTemplate, error) {
	settings, err := tokenizerSettings(folder)
	if err != nil {
		return nil, err
	}
	source, err := fs.ReadFile(folder, "chat_template.jinja")
	if err != nil {
		source = []byte(inlineTemplate(settings["chat_template"]))
	}
	if len(source) == 0 {
		return nil, nil
	}
	return NewChatTemplate(string(source), specialTokens(settings))
}

// SpecialTokens are the tokens that a checkpoint folder's templates may name: eos_token
// and the like.
func SpecialTokens(folder fs.FS) (map[string]string, error) {
	settings, err := tokenizerSettings(folder)
	return specialTokens(settings), err
}

func tokenizerSettings(folder fs.FS) (map[string]json.RawMessage, error) {
	var settings map[string]json.RawMessage
	text, err := fs.ReadFile(folder, "tokenizer_config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: tokenizer_config.json: %w", ErrTemplate, err)
	}
	return settings, nil
}

// inlineTemplate is the template in the forms that tokenizer_config.json has it: a text, or
// a list of named ones, of which the default counts.
func inlineTemplate(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(raw, &named) == nil {
		for _, n := range named {
			if n.Name == "default" {
				return n.Template
			}
		}
	}
	return ""
}

// specialTokens are the settings that templates may speak of, as texts or as objects with
// a content.
func specialTokens(settings map[string]json.RawMessage) map[string]string {
	tokens := map[string]string{}
	for name, raw := range settings {
		var text string
		var object struct {
			Content string `json:"content"`
		}
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		if json.Unmarshal(raw, &text) == nil {
			tokens[name] = text
		} else if json.Unmarshal(raw, &object) == nil {
			tokens[name] = object.Content
		}
	}
	return tokens
}

// NewChatTemplate parses a template. tokens are special tokens by name.
func NewChatTemplate(source string, tokens map[string]string) (*ChatTemplate, error) {
	const name = "/chat_template"
	setup := config.New()
	setup.TrimBlocks, setup.LeftStripBlocks = true, true
	loader, err := loaders.NewMemoryLoader(map[string]string{name: source})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	globals := exec.NewContext(map[string]any{"range": boundedRange})
	for _, kept := range []string{"namespace", "dict"} {
		function, _ := builtins.GlobalFunctions.Get(kept)
		globals.Set(kept, function)
	}
	blocks := exec.NewControlStructureSet(map[string]parser.ControlStructureParser{})
	for _, kept := range []string{"for", "if", "set", "macro", "raw", "filter", "with", "call", "break", "continue", "do"} {
		block, _ := builtins.ControlStructures.Get(kept)
		if err := blocks.Register(kept, block); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
		}
	}
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	if err := filters.Replace("tojson", toJSON); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	template, err := exec.NewTemplate(name, setup, loader, &exec.Environment{
		Context: globals, Filters: filters, Tests: builtins.Tests, ControlStructures: blocks, Methods: builtins.Methods,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return &ChatTemplate{template: template, tokens: tokens, most: maxPrompt, now: time.Now}, nil
}

// render makes the prompt. What the template raises is the conversation's fault, a 400;
// every other failure is the template's.
func (c *ChatTemplate) render(messages openai.Messages, generation bool) (text string, err error) {
	list := make(conversation, len(messages))
	for i, m := range messages {
		role := m.Role
		if role == openai.RoleDeveloper {
			role = openai.RoleSystem // templates are older than the name
		}
		fields := map[string]any{"role": role, "content": m.Content}
		if m.Name != "" {
			fields["name"] = m.Name
		}
		list[i] = fields
	}
	var raised *openai.Error
	values := map[string]any{
		"messages": list, "add_generation_prompt": generation, "tools": nil, "documents": nil,
		"raise_exception": func(message string) (string, error) {
			raised = openai.Invalid("messages", "the model's chat template refuses them: %s", message)
			return "", raised
		},
		"strftime_now": func(layout string) string { return strftime(c.now(), layout) },
	}
	for name, token := range c.tokens {
		values[name] = token
	}
	defer func() {
		if cause := recover(); cause != nil { // the library's, on what it does not foresee
			text, err = "", fmt.Errorf("%w: %v", ErrTemplate, cause)
		}
	}()
	out := &promptWriter{left: c.most}
	err = c.template.Execute(out, exec.NewContext(values))
	switch {
	case raised != nil:
		return "", raised
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return out.text.String(), nil
}

// conversation is the list of messages. The library finds nothing at -1 of a list of one
// item, which templates look for, so it is asked here.
type conversation []any

// GetItem implements exec.ItemGetter.
func (c conversation) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if i < 0 {
		i += len(c)
	}
	if !ok || i < 0 || i >= len(c) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(c[i]), true
}

// toJSON is the filter as transformers has it: the library's own writes <, > and & as
// escapes.
func toJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if indent, ok := params.KwArgs["indent"]; ok && indent.IsInteger() {
		encoder.SetIndent("", strings.Repeat(" ", min(max(indent.Integer(), 0), 16)))
	}
	if err := encoder.Encode(in.ToGoSimpleType(true)); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(strings.TrimSuffix(out.String(), "\n"))
}

// promptWriter takes so many bytes and no more.
type promptWriter struct {
	text bytes.Buffer
	left int
}

var errLong = errors.New("the prompt gets too long")

func (w *promptWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errLong
	}
	return w.text.Write(p)
}

var _ io.Writer = (*promptWriter)(nil)

// boundedRange is Python's range as a list. The library's own hands numbers out of a
// goroutine, which a loop that is left early would never end.
func boundedRange(_ *exec.Evaluator, params *exec.VarArgs) ([]int, error) {
	start, stop, step := 0, 0, 1
	into := [][]*int{1: {&stop}, 2: {&start, &stop}, 3: {&start, &stop, &step}}
	n := len(params.Args)
	if n < 1 || n > 3 {
		return nil, fmt.Errorf("range takes 1 to 3 integers, not %d", n)
	}
	for i, value := range params.Args {
		if !value.IsInteger() {
			return nil, fmt.Errorf("range takes integers, not %s", value)
		}
		*into[n][i] = value.Integer()
	}
	if step == 0 {
		return nil, errors.New("the step of a range is 0")
	}
	out := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) == maxRange {
			return nil, fmt.Errorf("a range has more than %d items", maxRange)
		}
		out = append(out, i)
	}
	return out, nil
}

// strftime knows the directives of C that dates in prompts are made of; others stay.
func strftime(t time.Time, layout string) string {
	return strings.NewReplacer(
		"%%", "%", "%Y", t.Format("2006"), "%y", t.Format("06"), "%m", t.Format("01"), "%d", t.Format("02"),
		"%e", t.Format("_2"), "%-d", t.Format("2"), "%-m", t.Format("1"), "%b", t.Format("Jan"), "%B", t.Format("January"), "%a", t.Format("Mon"),
		"%A", t.Format("Monday"), "%H", t.Format("15"), "%I", t.Format("03"), "%M", t.Format("04"),
		"%S", t.Format("05"), "%p", t.Format("PM"), "%j", t.Format("002"),
	).Replace(layout)
}
