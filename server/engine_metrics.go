package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tailor/server/engine"
)

// A count is one number of the engine's, as a metric.
type count struct {
	kind         prometheus.ValueType
	name         string
	label, value string // "": none
	help         string
	of           func(*engine.Stats) float64
}

// engineCounts is the table of them. Metrics of the same name must have the same help.
func engineCounts() []count {
	const (
		gauge, counter = prometheus.GaugeValue, prometheus.CounterValue

		tokens = "Tokens by what they cost; one computed again after a preemption counts once."
		blocks = "Blocks of the KV cache: free + held = total; cached and evictable are parts of held."
		aborts = "Sequences aborted, by phase; a stop string that is found aborts in decode."
	)
	type stats = engine.Stats
	return []count{
		{gauge, "vllm:num_requests_running", "", "", "Requests that hold blocks.", func(s *stats) float64 { return float64(s.Running) }},
		{gauge, "vllm:num_requests_waiting", "", "", "Requests that hold none.", func(s *stats) float64 { return float64(s.Waiting) }},
		{gauge, "vllm:kv_cache_usage_perc", "", "", "Share of blocks that requests under way hold, 0 to 1.", blockUsage},
		{counter, "vllm:prefix_cache_queries_total", "", "", "Prompt tokens looked up in the prefix cache.", promptTokens},
		{counter, "vllm:prefix_cache_hits_total", "", "", "Prompt tokens found there.", func(s *stats) float64 { return float64(s.PromptReused) }},
		{counter, "vllm:prompt_tokens_total", "", "", "Prompt tokens, computed or reused.", promptTokens},
		{counter, "vllm:generation_tokens_total", "", "", "Tokens generated.", func(s *stats) float64 { return float64(s.Decoded) }},
		{counter, "vllm:num_preemptions_total", "", "", "Preemptions.", func(s *stats) float64 { return float64(s.Preemptions) }},

		{counter, "tailor_tokens_total", "mode", "prefill_compute", tokens, func(s *stats) float64 { return float64(s.PromptComputed) }},
		{counter, "tailor_tokens_total", "mode", "prefill_cache", tokens, func(s *stats) float64 { return float64(s.PromptReused) }},
		{counter, "tailor_tokens_total", "mode", "decode", tokens, func(s *stats) float64 { return float64(s.Decoded) }},
		{counter, "tailor_recomputed_tokens_total", "", "", "Tokens computed again after a preemption.", func(s *stats) float64 { return float64(s.Recomputed) }},
		{counter, "tailor_resume_reused_tokens_total", "", "", "Tokens found in the cache when a preempted request came back.", func(s *stats) float64 { return float64(s.ResumeReused) }},
		{counter, "tailor_forks_total", "", "", "Choices that went on in the blocks of their prompt's first.", func(s *stats) float64 { return float64(s.Forks) }},
		{gauge, "tailor_waiting_tokens", "", "", "Tokens of the requests that hold no blocks.", func(s *stats) float64 { return float64(s.WaitingTokens) }},
		{counter, "tailor_requests_admitted_total", "", "", "Requests admitted.", func(s *stats) float64 { return float64(s.Requests) }},
		{counter, "tailor_request_hits_total", "", "", "Admitted requests that reused a token or more.", func(s *stats) float64 { return float64(s.RequestHits) }},
		{counter, "tailor_prefill_cpu_seconds_total", "", "", "CPU time of prefill.", seconds(func(s *stats) time.Duration { return s.PrefillCPU })},
		{counter, "tailor_decode_cpu_seconds_total", "", "", "CPU time of decode.", seconds(func(s *stats) time.Duration { return s.DecodeCPU })},
		{counter, "tailor_steps_total", "", "", "Runs of the model.", func(s *stats) float64 { return float64(s.Steps) }},
		{counter, "tailor_evicted_blocks_total", "", "", "Cached blocks evicted for others.", func(s *stats) float64 { return float64(s.KV.Evicted) }},
		{gauge, "tailor_kv_blocks", "state", "free", blocks, func(s *stats) float64 { return float64(s.KV.Free) }},
		{gauge, "tailor_kv_blocks", "state", "held", blocks, func(s *stats) float64 { return float64(s.KV.Held) }},
		{gauge, "tailor_kv_blocks", "state", "cached", blocks, func(s *stats) float64 { return float64(s.KV.Cached) }},
		{gauge, "tailor_kv_blocks", "state", "evictable", blocks, func(s *stats) float64 { return float64(s.KV.Evictable) }},
		{gauge, "tailor_kv_blocks", "state", "total", blocks, func(s *stats) float64 { return float64(s.KV.Total) }},
		{gauge, "tailor_prefix_tree_tokens", "", "", "Tokens in the prefix tree.", func(s *stats) float64 { return float64(s.KV.Tokens) }},
		{gauge, "tailor_prefix_tree_nodes", "", "", "Nodes of the prefix tree.", func(s *stats) float64 { return float64(s.KV.Nodes) }},
		{gauge, "tailor_prefix_tree_salts", "", "", "Salts under which something is cached.", func(s *stats) float64 { return float64(s.KV.Salts) }},
		{counter, "tailor_aborts_total", "phase", "waiting", aborts, func(s *stats) float64 { return float64(s.Aborts.Waiting) }},
		{counter, "tailor_aborts_total", "phase", "prefill", aborts, func(s *stats) float64 { return float64(s.Aborts.Prefill) }},
		{counter, "tailor_aborts_total", "phase", "decode", aborts, func(s *stats) float64 { return float64(s.Aborts.Decode) }},
	}
}

func promptTokens(s *engine.Stats) float64 { return float64(s.PromptComputed + s.PromptReused) }

// blockUsage is vLLM's: what is only kept for later requests may be taken at any
// time, and counts as free.
func blockUsage(s *engine.Stats) float64 {
	if s.KV.Total == 0 {
		return 0
	}
	return float64(s.KV.Held-s.KV.Evictable) / float64(s.KV.Total)
}

func seconds(of func(*engine.Stats) time.Duration) func(*engine.Stats) float64 {
	return func(s *engine.Stats) float64 { return of(s).Seconds() }
}

// engineCollector reads the engine's counts when somebody asks for the metrics.
type engineCollector struct {
	engine    Engine
	blockSize int
	counts    []count
	descs     []*prometheus.Desc // of counts
	info      *prometheus.Desc
	steps     *prometheus.Desc
}

func newEngineCollector(e Engine, blockSize int) *engineCollector {
	c := &engineCollector{engine: e, blockSize: blockSize, counts: engineCounts()}
	for _, n := range c.counts {
		var labels prometheus.Labels
		if n.label != "" {
			labels = prometheus.Labels{n.label: n.value}
		}
		c.descs = append(c.descs, prometheus.NewDesc(n.name, n.help, nil, labels))
	}
	c.info = prometheus.NewDesc("vllm:cache_config_info", "The KV cache's shape.", []string{"block_size", "num_gpu_blocks"}, nil)
	c.steps = prometheus.NewDesc("vllm:iteration_tokens_total", "Tokens of a run of the model, prefill and decode together.", nil, nil)
	return c
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.info
	out <- c.steps
	for _, desc := range c.descs {
		out <- desc
	}
}

// Collect implements prometheus.Collector. All numbers are of one moment.
func (c *engineCollector) Collect(out chan<- prometheus.Metric) {
	stats := c.engine.Stats()
	out <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, strconv.Itoa(c.blockSize), strconv.Itoa(stats.KV.Total))
	below, sum := map[float64]uint64{}, uint64(0)
	for i, bound := range engine.StepBounds() {
		sum += stats.StepTokens[i]
		below[float64(bound)] = sum
	}
	out <- prometheus.MustNewConstHistogram(c.steps, stats.Steps, float64(stats.StepTokensSum), below)
	for i, n := range c.counts {
		out <- prometheus.MustNewConstMetric(c.descs[i], n.kind, n.of(&stats))
	}
}
