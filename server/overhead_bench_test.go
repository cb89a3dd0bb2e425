package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tailor/model/sample"
	"tailor/server/engine"
)

// BenchmarkOverhead is what HTTP, JSON and text cost beyond the engine: whole answers of
// the bundled model over a connection that is kept, against the same request given to
// the same engine, in turn. All but 40 of the prompt's 540 tokens are cached.
func BenchmarkOverhead(b *testing.B) {
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprintf("stream=%v", stream), func(b *testing.B) {
			r, e := realRig(b, 512)
			prompt := make([]int32, 540)
			for i := range prompt {
				prompt[i] = int32(i%3000) + 500
			}
			suffix := prompt[500:]
			var over, whole []time.Duration
			var n int32
			next := func() {
				n++
				suffix[0] = n % 4000 // so that just the first 500 are cached
			}
			for b.Loop() {
				next()
				body := fmt.Sprintf(`{"model":%q,"prompt":%s,"max_tokens":16,"temperature":0,"ignore_eos":true,"stream":%v}`,
					testModel, strings.ReplaceAll(fmt.Sprint(prompt), " ", ","), stream)
				began := time.Now()
				resp, err := http.Post(r.http.URL+"/v1/completions", "application/json", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"error"`)) {
					b.Fatalf("%v, %s: %s", err, resp.Status, answer)
				}
				overHTTP := time.Since(began)
				next()
				began = time.Now()
				events, err := e.Submit(b.Context(), engine.Request{Tokens: slices.Clone(prompt), MaxTokens: 16, Sampling: sample.Params{TopP: 1}, IgnoreEOS: true})
				if err != nil {
					b.Fatal(err)
				}
				for range events {
				}
				over = append(over, overHTTP-time.Since(began))
				whole = append(whole, overHTTP)
			}
			slices.Sort(over)
			slices.Sort(whole)
			b.ReportMetric(over[len(over)/2].Seconds()*1e6, "p50-over-us")
			b.ReportMetric(whole[len(whole)/2].Seconds()*1e6, "p50-us")
		})
	}
}
