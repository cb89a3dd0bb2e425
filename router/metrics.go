package router

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the router's own; what a replica counts is asked of the replica.
type metrics struct {
	registry     *prometheus.Registry
	requests     *prometheus.CounterVec
	retries      *prometheus.CounterVec
	spills       *prometheus.CounterVec
	promptTokens *prometheus.CounterVec
	cachedTokens *prometheus.CounterVec
	decision     prometheus.Histogram

	delivered, computed *prometheus.CounterVec
	over, under         *prometheus.CounterVec
	lost                *prometheus.CounterVec
	resyncs             *prometheus.CounterVec
	hedges              *prometheus.CounterVec
	loops               *prometheus.CounterVec
	shadowRequests      *prometheus.CounterVec
	shadowAgreed        *prometheus.CounterVec
	shadowPrompt        *prometheus.CounterVec
	shadowCached        *prometheus.CounterVec
	shadowDropped       prometheus.Counter
}

func newMetrics(replicas *registry) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("tailor_router_requests_total",
			"Requests by the replica that served them, the policy that chose it, and how they ended.", "replica", "policy", "outcome"),
		retries: counter("tailor_router_retries_total",
			"Attempts given up before the first byte, by the replica that failed.", "replica"),
		spills: counter("tailor_router_spills_total",
			"Requests sent elsewhere because the preferred replica was too busy, by that replica.", "replica"),
		promptTokens: counter("tailor_router_prompt_tokens_total",
			"Prompt tokens sent to a replica.", "replica"),
		cachedTokens: counter("tailor_router_predicted_cached_tokens_total",
			"Prompt tokens sent to a replica that it was expected to have cached.", "replica"),
		delivered: counter("tailor_router_delivered_cached_tokens_total",
			"Prompt tokens that a replica reported not to have computed.", "replica"),
		computed: counter("tailor_router_computed_tokens_total",
			"Prompt tokens that a replica computed.", "replica"),
		over: counter("tailor_router_overpredicted_tokens_total",
			"Drift of the index, in whole blocks: tokens predicted to be cached that were computed.", "replica"),
		under: counter("tailor_router_underpredicted_tokens_total",
			"Drift of the index, in whole blocks: tokens cached that were not predicted to be.", "replica"),
		lost: counter("tailor_router_lost_tokens_total",
			"Prompt tokens computed, by the reason why they were not reused.", "cause"),
		resyncs: counter("tailor_router_resyncs_total",
			"Times that a replica's events were out of step and its snapshot was taken anew.", "replica"),
		hedges: counter("tailor_router_hedges_total",
			"Requests sent to a second replica because the first took long, by which answered first.", "winner"),
		loops: counter("tailor_router_loops_total",
			"Requests that came back to this router through a replica.", "replica"),
		shadowRequests: counter("tailor_router_shadow_requests_total",
			"Requests by where a shadow policy would have sent them.", "policy", "replica"),
		shadowAgreed: counter("tailor_router_shadow_agreed_total",
			"Requests that a shadow policy would have sent where they went.", "policy"),
		shadowPrompt: counter("tailor_router_shadow_prompt_tokens_total",
			"Prompt tokens that a shadow policy chose for.", "policy"),
		shadowCached: counter("tailor_router_shadow_predicted_cached_tokens_total",
			"Prompt tokens that would have been cached where a shadow policy would have sent them.", "policy"),
		shadowDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tailor_router_shadow_dropped_total", Help: "Events that the shadow policies missed because they were behind.",
		}),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tailor_router_decision_seconds", Help: "Time to look the prefix up, choose and book.",
			Buckets: []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1e-2},
		}),
	}
	m.registry.MustRegister(m.requests, m.retries, m.spills, m.promptTokens, m.cachedTokens, m.decision, replicaCollector{replicas},
		m.delivered, m.computed, m.over, m.under, m.lost, m.resyncs, m.hedges, m.loops,
		m.shadowRequests, m.shadowAgreed, m.shadowPrompt, m.shadowCached, m.shadowDropped)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// chosen counts a decision.
func (m *metrics) chosen(row *Row, seconds float64) {
	m.decision.Observe(seconds)
	m.promptTokens.WithLabelValues(row.Replica).Add(float64(row.PromptTokens))
	m.cachedTokens.WithLabelValues(row.Replica).Add(float64(row.PredictedCached))
	if row.SpilledFrom != "" {
		m.spills.WithLabelValues(row.SpilledFrom).Inc()
	}
}

// answered counts what a request's answer says of the cache.
func (m *metrics) answered(row *Row) {
	m.computed.WithLabelValues(row.Replica).Add(float64(row.ComputedTokens))
	if row.CachedFrom != CachedFromPredicted {
		m.delivered.WithLabelValues(row.Replica).Add(float64(row.CachedTokens))
		m.over.WithLabelValues(row.Replica).Add(float64(max(0, row.Drift)))
		m.under.WithLabelValues(row.Replica).Add(float64(max(0, -row.Drift)))
	}
	l := row.Lost
	for _, c := range [...]struct {
		cause  string
		tokens int
	}{
		{"cold", l.Cold}, {"elsewhere", l.Elsewhere}, {"evicted", l.Evicted}, {"evicted_after_prediction", l.EvictedSince},
		{"in_flight", l.InFlight}, {"salt", l.Salt}, {"stale_index", l.Stale},
	} {
		if c.tokens > 0 {
			m.lost.WithLabelValues(c.cause).Add(float64(c.tokens))
		}
	}
}

var (
	inFlightDesc = prometheus.NewDesc("tailor_router_in_flight_requests",
		"Requests on a replica now.", []string{"replica"}, nil)
	inFlightTokensDesc = prometheus.NewDesc("tailor_router_in_flight_tokens",
		"Prompt tokens on a replica now, without those expected to be cached.", []string{"replica"}, nil)
	indexBlocksDesc = prometheus.NewDesc("tailor_router_index_blocks",
		"Blocks a replica is expected to hold.", []string{"replica"}, nil)
	exactDesc = prometheus.NewDesc("tailor_router_index_exact",
		"1 where what a replica holds is known from its own events, 0 where it is guessed.", []string{"replica"}, nil)
	stateDesc = prometheus.NewDesc("tailor_router_replica_state",
		"1 for the state a replica is in, 0 for the others.", []string{"replica", "state"}, nil)
)

// replicaCollector reads the registry when asked: replicas come and go.
type replicaCollector struct{ replicas *registry }

func (replicaCollector) Describe(out chan<- *prometheus.Desc) {
	out <- inFlightDesc
	out <- inFlightTokensDesc
	out <- indexBlocksDesc
	out <- exactDesc
	out <- stateDesc
}

func (c replicaCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, r := range c.replicas.status() {
		gauge(inFlightDesc, float64(r.InFlight), r.ID)
		gauge(inFlightTokensDesc, float64(r.InFlightTokens), r.ID)
		gauge(indexBlocksDesc, float64(r.IndexBlocks), r.ID)
		exact := 0.0
		if r.Knowledge == KnowledgeExact {
			exact = 1
		}
		gauge(exactDesc, exact, r.ID)
		for _, s := range []State{StateReady, StateUnready, StateDraining, StateDown} {
			is := 0.0
			if s == r.State {
				is = 1
			}
			gauge(stateDesc, is, r.ID, string(s))
		}
	}
}
