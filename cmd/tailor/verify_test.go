package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestVerify runs the proof on the bundled model for each type of weights, and of keys and
// values. What rounding changes is seen, and hot has the bits of cold all the same.
func TestVerify(t *testing.T) {
	for _, c := range []struct {
		args  []string
		limit string // of logits up to 20.8
		hot   string
	}{
		{nil, "limit 0.00021\n", "hot      16"},
		{[]string{"--kv-dtype", "bf16"}, "limit 0.21\n", "hot      16"},
		{[]string{"--dtype", "bf16", "--kv-dtype", "bf16", "--block-size", "5"}, "limit 0.62\n", "hot      20"},
	} {
		var out bytes.Buffer
		cmd := newRoot()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"verify", "--tokens", "4"}, c.args...))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
		for _, want := range []string{c.limit, c.hot + " of 21 prompt tokens from the cache: 0 of 16384 logits differ", "chunks of 7: 0 of 16384 logits differ"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, out.String())
			}
		}
	}
}
