package bench

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counters are what one replica's engine has counted so far, read from its /metrics.
type counters struct {
	computed   float64 // prompt tokens run through the model
	reused     float64 // prompt tokens whose keys and values were in the cache
	decoded    float64
	admitted   float64 // prompts
	hits       float64 // admitted prompts that reused at least one token
	prefillCPU float64 // seconds
	decodeCPU  float64 // seconds
	evicted    float64 // blocks
}

// readCounters scrapes a replica. A replica that lacks one of the counters is an error:
// a benchmark that took a missing figure for 0 would report savings that nobody made.
func readCounters(ctx context.Context, c *client, url string) (counters, error) {
	var read counters
	families, err := c.metrics(ctx, url)
	if err != nil {
		return read, err
	}
	for _, want := range []struct {
		to          *float64
		name, label string
		value       string
	}{
		{&read.computed, "tailor_tokens_total", "mode", "prefill_compute"},
		{&read.reused, "tailor_tokens_total", "mode", "prefill_cache"},
		{&read.decoded, "tailor_tokens_total", "mode", "decode"},
		{&read.admitted, "tailor_requests_admitted_total", "", ""},
		{&read.hits, "tailor_request_hits_total", "", ""},
		{&read.prefillCPU, "tailor_prefill_cpu_seconds_total", "", ""},
		{&read.decodeCPU, "tailor_decode_cpu_seconds_total", "", ""},
		{&read.evicted, "tailor_evicted_blocks_total", "", ""},
	} {
		v, ok := sumMetric(families[want.name], want.label, want.value)
		if !ok {
			return read, fmt.Errorf("%s/metrics: no counter %s{%s=%q}", url, want.name, want.label, want.value)
		}
		*want.to = v
	}
	return read, nil
}

// readLost reads from a router's /metrics how many prompt tokens were computed so far, by
// the cause why they were not reused, and how many requests it has served. A cause that
// never occurred is absent.
func readLost(ctx context.Context, c *client, url string) (map[string]float64, error) {
	families, err := c.metrics(ctx, url)
	if err != nil {
		return nil, err
	}
	lost := map[string]float64{}
	for _, m := range families["tailor_router_lost_tokens_total"].GetMetric() {
		lost[label(m, "cause")] += m.GetCounter().GetValue()
	}
	return lost, nil
}

func (c *client) metrics(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer drainBody(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s/metrics: %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s/metrics: %w", url, err)
	}
	return families, nil
}

// sumMetric adds up the counters, or gauges, of a family whose label has the value; any
// where the label is "".
func sumMetric(f *dto.MetricFamily, name, value string) (sum float64, ok bool) {
	for _, m := range f.GetMetric() {
		if name != "" && label(m, name) != value {
			continue
		}
		switch {
		case m.GetCounter() != nil:
			sum, ok = sum+m.GetCounter().GetValue(), true
		case m.GetGauge() != nil:
			sum, ok = sum+m.GetGauge().GetValue(), true
		}
	}
	return sum, ok
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// minus returns what was counted between an earlier reading and this one.
func (c counters) minus(earlier counters) counters {
	return counters{
		computed:   c.computed - earlier.computed,
		reused:     c.reused - earlier.reused,
		decoded:    c.decoded - earlier.decoded,
		admitted:   c.admitted - earlier.admitted,
		hits:       c.hits - earlier.hits,
		prefillCPU: c.prefillCPU - earlier.prefillCPU,
		decodeCPU:  c.decodeCPU - earlier.decodeCPU,
		evicted:    c.evicted - earlier.evicted,
	}
}
