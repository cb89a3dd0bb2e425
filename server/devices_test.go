package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestDevices(t *testing.T) {
	plain := newRig(t, says(spell(t, "a"), 0))
	ask := func(s *Server, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	if w := ask(plain.Server, "/v1/devices"); w.Code != http.StatusNotFound {
		t.Errorf("without devices: status %d", w.Code)
	}
	cfg := plain.Config
	cfg.Devices = func(context.Context) any { return map[string]uint64{"total_bytes": 1<<63 + 1} }
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_gauge", Help: "A gauge."})
	gauge.Set(7)
	cfg.Gauges = []prometheus.Collector{gauge}
	s := New(cfg)
	if w := ask(s, "/v1/devices"); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"total_bytes":9223372036854775809}` {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	// The machine's gauges are not one replica's.
	if w := ask(s, "/metrics"); !strings.Contains(w.Body.String(), "\ntest_gauge 7\n") {
		t.Errorf("metrics lack the gauge:\n%s", w.Body)
	}
	other := cfg
	other.Replica = "r1"
	New(other) // one gauge may be in several servers
}
