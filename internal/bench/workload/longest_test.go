package workload

import "testing"

func TestLongestRows(t *testing.T) {
	w := Workload{Requests: []Request{
		{Tokens: make([]int32, 10), MaxTokens: 5, After: -1},
		{Tokens: make([]int32, 13), After: -1},
		{Tokens: make([]int32, 3), MaxTokens: 4, After: 0, Continues: true}, // 10 + 5 + 3 + 4 - 1
		{Tokens: make([]int32, 3), MaxTokens: 4, After: 1},
		{Text: "a text of a length that is not known yet", MaxTokens: 9, After: -1},
	}}
	if rows, i := w.LongestRows(); rows != 21 || i != 2 {
		t.Errorf("request %d with %d rows, want 2 with 21", i, rows)
	}
	if rows, _ := new(Workload).LongestRows(); rows != 0 {
		t.Errorf("%d rows of no request", rows)
	}
}
