package server

import (
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"tailor/internal/openai"
)

// A generated case is one value of one parameter.
type generated struct {
	name    string
	field   string // "name":value, and what has to stand beside it
	param   string
	refused bool
}

// wrongTypes are values that no parameter of the kind may have.
func wrongTypes(k openai.Kind) []string {
	switch k {
	case openai.KindText:
		return []string{"7", "true", "[]", "{}", `["a"]`}
	case openai.KindBoolean:
		return []string{`"x"`, `"true"`, "1", "0", "[]", "{}"}
	case openai.KindInteger:
		return []string{`"7"`, "true", "[]", "{}", "1.5", "9223372036854775808", "1e30"}
	case openai.KindNumber:
		return []string{`"0.5"`, "true", "[]", "{}", "1e999", `"NaN"`}
	case openai.KindStop:
		return []string{"7", "true", "{}", "[1]", "[null]", `""`, `["a",""]`, `["a",["b"]]`}
	case openai.KindWords:
		return []string{"7", "true", "{}", "[1]", "[null]", `"a"`, `["a",""]`}
	case openai.KindTokenIDs:
		return []string{"7", "true", "{}", `"a"`, `["a"]`, "[1.5]", "[null]", "[-1]", "[2147483648]", "[[1]]"}
	case openai.KindBiases:
		return []string{"7", "true", "[]", `"a"`, `{"a":1}`, `{"1":"a"}`, `{"1":null}`, `{"-1":1}`, `{"1":[]}`, `{"1.5":1}`, `{"1":1e999}`}
	case openai.KindPrompt:
		return []string{"7", "true", "{}", `[1,"a"]`, `["a",1]`, "[null]", "[1.5]", "[]", "[[]]", `""`, "null", `[[1],"a"]`, "[2147483648]"}
	case openai.KindOptions:
		return []string{`"x"`, "1", "true", "[]"}
	case openai.KindMessages:
		return []string{
			"7", "true", "{}", `"hi"`, "[]", "null", "[1]", `["hi"]`, `[{}]`, `[{"role":"user"}]`, `[{"role":"boss","content":"x"}]`,
			`[{"role":"user","content":7}]`, `[{"role":"user","content":[{"type":"image_url"}]}]`,
		}
	}
	return nil
}

// generatedCases are the cases that follow from a table: for each parameter wrong types,
// null, and values below, at and above its range.
func generatedCases(table []openai.Parameter) []generated {
	var cases []generated
	for _, p := range table {
		add := func(value string, refused bool) {
			field := fmt.Sprintf("%q:%s", p.Name, value)
			switch p.Name { // what may only stand beside others
			case "stream_options":
				field += `,"stream":true`
			case "top_logprobs":
				field += `,"logprobs":true`
			}
			cases = append(cases, generated{fmt.Sprintf("%s is %.40s", p.Name, value), field, p.Name, refused})
		}
		for _, value := range wrongTypes(p.Kind) {
			add(value, true)
		}
		if p.Name == "model" || p.Kind == openai.KindPrompt || p.Kind == openai.KindMessages {
			if p.Name == "model" {
				add("null", true)
			}
			continue
		}
		add("null", false)
		number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
		switch p.Kind {
		case openai.KindInteger, openai.KindNumber:
			step := 1.0
			if p.Kind == openai.KindNumber {
				step = 1e-6
			}
			if p.Low > math.MinInt64 {
				add(number(p.Low-step), true)
				add(number(p.Low), p.LowOpen)
				add(number(p.Low+step), p.Name == "truncate_prompt_tokens") // that is 0, which leaves nothing
			}
			if p.High < math.MaxFloat32 {
				add(number(p.High+step), true)
				if p.High < math.MaxInt32 || p.Name == "top_k" || p.Name == "priority" || p.Name == "truncate_prompt_tokens" {
					add(number(p.High), false)
				}
			}
		case openai.KindBiases:
			for _, v := range []float64{p.Low, p.High, 0} {
				add(fmt.Sprintf(`{"5":%v}`, v), false)
			}
			add(fmt.Sprintf(`{"5":%v}`, p.Low-0.5), true)
			add(fmt.Sprintf(`{"5":1,"7":%v}`, p.High+0.5), true)
		case openai.KindText:
			if p.MinLen > 0 {
				add(`""`, true)
			}
			if p.MaxLen > 0 {
				add(fmt.Sprintf("%q", strings.Repeat("ß", p.MaxLen)), false)
				add(fmt.Sprintf("%q", strings.Repeat("ß", p.MaxLen+1)), true)
			}
		case openai.KindBoolean:
			add("true", false)
			add("false", false)
		case openai.KindStop, openai.KindWords, openai.KindTokenIDs:
			item := `"z"`
			if p.Kind == openai.KindTokenIDs {
				item = "5"
			}
			list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]" }
			add(list(0), p.MinLen > 0)
			add(list(1), false)
			if p.MaxLen > 0 {
				add(list(p.MaxLen), false)
				add(list(p.MaxLen+1), true)
			}
		}
	}
	return cases
}

// Every parameter's every case has the right status and names the right parameter, and
// what is refused leaves nothing behind.
func TestEveryParameterAtItsLimits(t *testing.T) {
	template, err := NewChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	e := says(spell(t, "ab"), 0)
	r := newRig(t, e, func(c *Config) { c.Template, c.BlockSize = template, 16 })
	e.stats.KV.Total = 64
	r.complete("")
	before := runtime.NumGoroutine()
	refused, accepted := 0, 0
	for _, endpoint := range []struct {
		path  string
		base  string
		table []openai.Parameter
	}{
		{"/v1/completions", `"prompt":"hi","max_tokens":8`, openai.CompletionParameters()},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}],"max_tokens":8`, openai.ChatParameters()},
	} {
		for _, c := range generatedCases(endpoint.table) {
			seen := len(e.submitted())
			a := r.do("POST", endpoint.path, fmt.Sprintf(`{"model":%q,%s,%s}`, testModel, endpoint.base, c.field))
			t.Run(endpoint.path+" "+c.name, func(t *testing.T) {
				if !c.refused {
					accepted++
					if a.status != http.StatusOK {
						t.Errorf("status %d: %s", a.status, a.body)
					}
					return
				}
				refused++
				a.mustRefuse(t, http.StatusBadRequest, c.param)
				if n := len(e.submitted()) - seen; n != 0 {
					t.Errorf("%d requests reached the engine", n)
				}
			})
		}
	}
	t.Logf("%d cases refused, %d accepted", refused, accepted)
	if refused < 400 {
		t.Errorf("only %d cases are refused", refused)
	}
	r.http.Client().CloseIdleConnections()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+2; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
