package workload_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	"tailor/internal/bench/workload"
)

// fuzzTrace feeds a reader anything. What it takes must be a workload that can be sent, and
// what it refuses must say where.
func fuzzTrace(f *testing.F, read reader, seeds ...string) {
	for _, s := range seeds {
		f.Add(s, uint8(0))
		f.Add(s+"\n"+s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, limit uint8) {
		cfg := workload.DefaultTrace()
		cfg.Target.Context = 64
		cfg.Limit = int(limit)
		cfg.Count = utf8.RuneCountInString
		w, err := read(text, cfg)
		if err != nil {
			var at *workload.TraceError
			if !errors.As(err, &at) || at.File == "" {
				t.Fatalf("error %v does not say where", err)
			}
			return
		}
		if len(w.Requests) == 0 || limit > 0 && len(w.Requests) > int(limit) {
			t.Fatalf("%d requests with limit %d", len(w.Requests), limit)
		}
		for i, r := range w.Requests {
			if i > 0 && r.At < w.Requests[i-1].At || r.At < 0 || i == 0 && r.At != 0 {
				t.Fatalf("request %d at %v", i, r.At)
			}
			given := 0
			for _, is := range []bool{len(r.Tokens) > 0, r.Text != "", len(r.Body) > 0} {
				if is {
					given++
				}
			}
			if given != 1 || r.After != -1 || r.Placement != -1 || r.Continues || r.MaxTokens < 1 || r.MaxTokens > cfg.MaxOutput {
				t.Fatalf("request %d: %+v", i, r)
			}
			if n := len(r.Tokens) + utf8.RuneCountInString(r.Text); n > cfg.Target.Context-cfg.MaxOutput {
				t.Fatalf("request %d has %d tokens", i, n)
			}
		}
		if _, err := w.Sent(nil, nil); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzMooncake(f *testing.F) {
	fuzzTrace(f, mooncake,
		`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]}`,
		`{"timestamp": 1.5e3, "input_length": 1, "output_length": 0, "hash_ids": [9223372036854775807]}`)
}

func FuzzOpenAILog(f *testing.F) {
	fuzzTrace(f, openAI,
		`{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "timestamp": 1760587752.017}`,
		`{"timestamp": "2026-11-30T18:32:00Z", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"}}`,
		`{"prompt": [1, 2]}`)
}

func FuzzAgentTrace(f *testing.F) {
	fuzzTrace(f, agent,
		`{"timestamp": 1760587752017385, "input": "Hi! How can I help you today?", "output": "", "session_id": "s"}`,
		`{"timestamp": 3, "input": "é\ud800", "output": "x", "session_id": ""}`)
}
