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
	admitted   float64 // requests
	hits       float64 // admitted requests that reused at least one token
	prefillCPU float64 // seconds
	evicted    float64 // blocks
}

// readCounters scrapes a replica. A replica that lacks one of the counters is an error:
// a benchmark that took a missing figure for 0 would report savings that nobody made.
func readCounters(ctx context.Context, client *http.Client, url string) (counters, error) {
	var c counters
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return c, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c, fmt.Errorf("%s/metrics: %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return c, fmt.Errorf("%s/metrics: %w", url, err)
	}
	for _, want := range []struct {
		to         *float64
		name, mode string
	}{
		{&c.computed, "tailor_tokens_total", "prefill_compute"},
		{&c.reused, "tailor_tokens_total", "prefill_cache"},
		{&c.decoded, "tailor_tokens_total", "decode"},
		{&c.admitted, "tailor_requests_admitted_total", ""},
		{&c.hits, "tailor_request_hits_total", ""},
		{&c.prefillCPU, "tailor_prefill_cpu_seconds_total", ""},
		{&c.evicted, "tailor_evicted_blocks_total", ""},
	} {
		v, ok := sumCounter(families[want.name], want.mode)
		if !ok {
			return c, fmt.Errorf("%s/metrics: no counter %s{mode=%q}", url, want.name, want.mode)
		}
		*want.to = v
	}
	return c, nil
}

// sumCounter adds up the counters of a family whose mode label is mode ("" for any).
func sumCounter(f *dto.MetricFamily, mode string) (sum float64, ok bool) {
	for _, m := range f.GetMetric() {
		matches := mode == ""
		for _, l := range m.GetLabel() {
			matches = matches || l.GetName() == "mode" && l.GetValue() == mode
		}
		if matches && m.GetCounter() != nil {
			sum += m.GetCounter().GetValue()
			ok = true
		}
	}
	return sum, ok
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
		evicted:    c.evicted - earlier.evicted,
	}
}
