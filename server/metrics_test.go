package server

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"tailor/kvcache"
	"tailor/server/engine"
)

// scrape reads GET /metrics: values by name and labels, but for model_name and engine,
// which it checks. A histogram's value is its count.
func scrape(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for name, family := range families {
		ours := strings.HasPrefix(name, "vllm:") || strings.HasPrefix(name, "tailor_")
		for _, m := range family.Metric {
			key, common := name, 0
			for _, label := range m.Label {
				switch label.GetName() + "=" + label.GetValue() {
				case "model_name=" + testModel, "engine=r7":
					common++
				default:
					key += "{" + label.GetName() + `="` + label.GetValue() + `"}`
				}
			}
			if ours && common != 2 {
				t.Errorf("%s has labels %v", name, m.Label)
			}
			out[strings.ReplaceAll(key, "}{", ",")] = valueOf(m)
		}
	}
	return out
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return -1
}

func TestMetrics(t *testing.T) {
	e := says(spell(t, "abc"), 2)
	e.stats = engine.Stats{
		Running: 2, Waiting: 5, Requests: 9, RequestHits: 4, PromptComputed: 100, PromptReused: 60, Decoded: 30, Preemptions: 3,
		Recomputed: 7, Steps: 11, PrefillCPU: 1500 * time.Millisecond, DecodeCPU: 250 * time.Millisecond,
		Aborts: engine.Aborts{Waiting: 1, Prefill: 2, Decode: 3},
		KV:     kvcache.Stats{Total: 64, Free: 16, Held: 48, Cached: 40, Evictable: 32, Evicted: 6},
	}
	r := newRig(t, e)
	r.complete(`"max_tokens":3`)
	r.complete(`"max_tokens":3,"stop":"b"`)
	got := scrape(t, r.Server)
	for name, want := range map[string]float64{
		"vllm:num_requests_running": 2, "vllm:num_requests_waiting": 5,
		"vllm:kv_cache_usage_perc":                                    0.25, // 48 held, of them 32 evictable, of 64
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="64"}`: 1,
		"vllm:prefix_cache_queries_total":                             160, "vllm:prefix_cache_hits_total": 60,
		"vllm:prompt_tokens_total": 160, "vllm:generation_tokens_total": 30, "vllm:num_preemptions_total": 3,
		`vllm:request_success_total{finished_reason="length"}`: 1,
		`vllm:request_success_total{finished_reason="stop"}`:   1,
		`vllm:request_success_total{finished_reason="abort"}`:  0,
		`vllm:request_success_total{finished_reason="error"}`:  0,
		"vllm:time_to_first_token_seconds":                     2, "vllm:e2e_request_latency_seconds": 2, "vllm:request_queue_time_seconds": 2,
		"vllm:request_prefill_time_seconds": 2, "vllm:request_decode_time_seconds": 2,
		"vllm:inter_token_latency_seconds": 3, // 3 tokens and 2: 2 gaps and 1
		"vllm:request_prompt_tokens":       2, "vllm:request_generation_tokens": 2,
		`tailor_tokens_total{mode="prefill_compute"}`: 100, `tailor_tokens_total{mode="prefill_cache"}`: 60,
		`tailor_tokens_total{mode="decode"}`: 30, "tailor_recomputed_tokens_total": 7,
		"tailor_requests_admitted_total": 9, "tailor_request_hits_total": 4,
		"tailor_prefill_cpu_seconds_total": 1.5, "tailor_decode_cpu_seconds_total": 0.25,
		"tailor_steps_total": 11, "tailor_evicted_blocks_total": 6,
		`tailor_kv_blocks{state="free"}`: 16, `tailor_kv_blocks{state="held"}`: 48, `tailor_kv_blocks{state="cached"}`: 40,
		`tailor_kv_blocks{state="evictable"}`: 32, `tailor_kv_blocks{state="total"}`: 64,
		`tailor_aborts_total{phase="waiting"}`: 1, `tailor_aborts_total{phase="prefill"}`: 2, `tailor_aborts_total{phase="decode"}`: 3,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (there: %v), want %v", name, value, ok, want)
		}
	}
	if _, ok := got["go_goroutines"]; !ok {
		t.Error("Go's own metrics are missing")
	}
}
