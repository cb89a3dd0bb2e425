package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tailor/server/engine"
)

// metrics are what GET /metrics says. vLLM's names are used where the thing is the
// same, so that dashboards and gateways made for it work; the rest is tailor_*. The
// engine's counts are read when somebody asks; only what the engine does not count is
// kept here.
type metrics struct {
	registry *prometheus.Registry

	firstToken   prometheus.Histogram
	interToken   prometheus.Histogram
	endToEnd     prometheus.Histogram
	queueTime    prometheus.Histogram
	prefillTime  prometheus.Histogram
	decodeTime   prometheus.Histogram
	inference    prometheus.Histogram
	promptTokens prometheus.Histogram
	generated    prometheus.Histogram
	finishes     *prometheus.CounterVec
	missed       *prometheus.CounterVec
	answers      *prometheus.CounterVec
}

// The finish reasons of choices that led to no answer, next to OpenAI's.
const (
	finishAbort = "abort"
	finishError = "error"
)

// durations reach from a decode step of the bundled model to a queue of minutes.
var durations = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
}

func newMetrics(cfg Config) *metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	counts := prometheus.ExponentialBuckets(1, 2, 15) // to 16384 tokens
	m := &metrics{
		registry:     prometheus.NewRegistry(),
		firstToken:   histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", durations),
		interToken:   histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.", durations),
		endToEnd:     histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", durations),
		queueTime:    histogram("vllm:request_queue_time_seconds", "From arrival to the first admission.", durations),
		prefillTime:  histogram("vllm:request_prefill_time_seconds", "From the first admission to the first token.", durations),
		decodeTime:   histogram("vllm:request_decode_time_seconds", "From the first token to the last.", durations),
		inference:    histogram("vllm:request_inference_time_seconds", "From the first admission to the last token.", durations),
		promptTokens: histogram("vllm:request_prompt_tokens", "Prompt tokens of finished requests.", counts),
		generated:    histogram("vllm:request_generation_tokens", "Generated tokens of finished requests.", counts),
		finishes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vllm:request_success_total",
			Help: "Ended requests, by reason: stop, length, abort (the client left), error.",
		}, []string{"finished_reason"}),
		missed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tailor_missed_tokens_total",
			Help: "Prompt tokens not found in the prefix cache, by why the first of them was not there.",
		}, []string{"reason"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tailor_http_answers_total", Help: "Answers, by route and status; 499: the client left before.",
		}, []string{"route", "status"}),
	}
	for _, reason := range []string{string(engine.FinishStop), string(engine.FinishLength), finishAbort, finishError} {
		m.finishes.WithLabelValues(reason) // a counter that is not there cannot be seen to rise
	}
	for _, reason := range []engine.MissReason{
		engine.MissCold, engine.MissEvicted, engine.MissSalt, engine.MissReset, engine.MissInFlight, engine.MissScored,
	} {
		m.missed.WithLabelValues(string(reason))
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(cfg.Gauges...)
	labels := prometheus.Labels{"model_name": cfg.ModelName, "engine": cfg.Replica}
	prometheus.WrapRegistererWith(labels, m.registry).MustRegister(
		m.firstToken, m.interToken, m.endToEnd, m.queueTime, m.prefillTime, m.decodeTime, m.inference, m.promptTokens, m.generated,
		m.finishes, m.missed, m.answers, newEngineCollector(cfg.Engine, cfg.BlockSize))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// finished records a choice that led to an answer; at is when its last token came.
func (m *metrics) finished(c *choice, at time.Time) {
	m.finishes.WithLabelValues(c.finish).Inc()
	m.promptTokens.Observe(float64(len(c.prompt.tokens)))
	m.generated.Observe(float64(c.generated))
	t := c.times
	m.endToEnd.Observe(at.Sub(t.Arrived).Seconds())
	m.queueTime.Observe(t.Admitted.Sub(t.Arrived).Seconds())
	m.inference.Observe(at.Sub(t.Admitted).Seconds())
	if !t.FirstToken.IsZero() { // it is where no token was asked for
		m.firstToken.Observe(t.FirstToken.Sub(t.Arrived).Seconds())
		m.prefillTime.Observe(t.FirstToken.Sub(t.Admitted).Seconds())
		m.decodeTime.Observe(at.Sub(t.FirstToken).Seconds())
	}
}

// account closes a generation's books: the log's record, and the choices that came to
// no end of their own.
func (s *Server) account(ctx context.Context, g *generation) {
	record := recordOf(ctx)
	first := g.choices[0]
	record.queue, record.ttft = since(first.times.Arrived, first.times.Admitted), since(first.times.Arrived, first.times.FirstToken)
	if n := first.generated - 1; n > 0 {
		record.tpot = since(first.times.FirstToken, first.last) / time.Duration(n)
	}
	var misses, reasons []string
	for _, p := range g.prompts {
		record.cached += p.cached
		if p.cache.Reason != "" {
			s.metrics.missed.WithLabelValues(string(p.cache.Reason)).Add(float64(p.cache.Missed))
		}
		if reason := string(p.cache.Reason); reason != "" && !slices.Contains(misses, reason) {
			misses = append(misses, reason)
		}
	}
	for _, c := range g.choices {
		record.generated += c.generated
		reason := c.finish
		if reason == "" {
			reason = finishError
			if record.gone {
				reason = finishAbort
			}
			s.metrics.finishes.WithLabelValues(reason).Inc()
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	record.finish, record.miss = strings.Join(reasons, ","), strings.Join(misses, ",")
}

func since(from, to time.Time) time.Duration {
	if to.IsZero() {
		return 0
	}
	return to.Sub(from)
}
