package workload_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"tailor/internal/bench/workload"
)

func TestSentContinues(t *testing.T) {
	w := &workload.Workload{Requests: []workload.Request{
		{Tokens: []int32{1, 2}, MaxTokens: 2, After: -1},
		{Tokens: []int32{3}, MaxTokens: 1, After: -1},
		{Tokens: []int32{4}, MaxTokens: 1, After: 0, Continues: true},
		{Text: "az", MaxTokens: 0, After: 2, Continues: true},
	}}
	got, err := w.Sent(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []workload.Sent{
		{Prompt: []int32{1, 2}, Output: []int32{-1, -2}},
		{Prompt: []int32{3}, Output: []int32{-3}},
		{Prompt: []int32{1, 2, -1, -2, 4}, Output: []int32{-4}},
		{Prompt: []int32{1, 2, -1, -2, 4, -4, 'a', 'z'}, Output: []int32{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("unknown answers: %v\nwant %v", got, want)
	}
	got, err = w.Sent(
		func(r *workload.Request) ([]int32, error) { return []int32{int32(len(r.Text))}, nil },
		[][]int32{{7, 8}, nil, {9}, {}})
	if err != nil {
		t.Fatal(err)
	}
	want = []workload.Sent{
		{Prompt: []int32{1, 2}, Output: []int32{7, 8}},
		{Prompt: []int32{3}, Output: []int32{-1}},
		{Prompt: []int32{1, 2, 7, 8, 4}, Output: []int32{9}},
		{Prompt: []int32{1, 2, 7, 8, 4, 9, 2}, Output: []int32{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("known answers: %v\nwant %v", got, want)
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		r    workload.Request
		want string // error:... for one
	}{
		{workload.Request{Text: "né"}, "né"},
		{workload.Request{Body: json.RawMessage(`{"prompt": "\u00e9"}`)}, "é"},
		{workload.Request{Body: json.RawMessage(`{"prompt": [1, 2]}`)}, "[1,2]\n"},
		{workload.Request{Body: json.RawMessage(`{"messages": [{"role": "user"}, {"a": 1}]}`)}, "{\"role\":\"user\"}\n{\"a\":1}\n"},
		{workload.Request{Body: json.RawMessage(`{}`)}, "error: neither"},
		{workload.Request{Body: json.RawMessage(`{`)}, "error: body"},
	} {
		units, err := workload.Bytes(&c.r)
		if want, isError := strings.CutPrefix(c.want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", c.r.Body, err, want)
			}
			continue
		}
		got := make([]byte, len(units))
		for i, u := range units {
			got[i] = byte(u)
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s%s: %q, %v; want %q", c.r.Text, c.r.Body, got, err, c.want)
		}
	}
}
