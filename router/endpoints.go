package router

import (
	"net/http"
	"strconv"

	"tailor/internal/openai"
)

// healthAnswer is the body of GET /health.
type healthAnswer struct {
	Status   string          `json:"status"`
	Draining bool            `json:"draining"`
	Policy   string          `json:"policy"`
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
}

func (rt *Router) version(w http.ResponseWriter, r *http.Request) {
	openai.WriteJSON(w, http.StatusOK, map[string]string{"version": rt.config.Version})
}

// health answers 200 while at least one replica is ready, 503 otherwise. Where there are
// keys it says who the replicas are to those who may know.
func (rt *Router) health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerRouter, rt.config.Name)
	answer := healthAnswer{
		Status: "ok", Draining: rt.isDraining(), Policy: rt.config.Policy.Name(), Replicas: rt.registry.status(),
	}
	ready := 0
	for _, r := range answer.Replicas {
		if r.State == StateReady {
			ready++
		}
	}
	status := http.StatusOK
	switch {
	case ready == 0 || answer.Draining:
		answer.Status, status = "unavailable", http.StatusServiceUnavailable
	case ready < len(answer.Replicas):
		answer.Status = "degraded"
	}
	if !rt.keys.seesAll(r.Header) {
		answer.Replicas = nil
	}
	openai.WriteJSON(w, status, answer)
}

func (rt *Router) replicas(w http.ResponseWriter, r *http.Request) {
	openai.WriteJSON(w, http.StatusOK, struct {
		Policy   string          `json:"policy"`
		Replicas []ReplicaStatus `json:"replicas"`
	}{rt.config.Policy.Name(), rt.registry.status()})
}

const defaultLedgerLimit = 100

// ledgerRows answers with the newest rows first. limit is how many at most.
func (rt *Router) ledgerRows(w http.ResponseWriter, r *http.Request) {
	limit := defaultLedgerLimit
	if s := r.URL.Query().Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			openai.WriteError(w, openai.Invalid("limit", "%q is not a number of rows", s))
			return
		}
		limit = n
	}
	rows, written := rt.ledger.last(limit)
	openai.WriteJSON(w, http.StatusOK, struct {
		Written uint64 `json:"written"` // rows since the start; those before the last capacity are gone
		Kept    int    `json:"capacity"`
		Rows    []Row  `json:"rows"`
	}{written, rt.config.LedgerRows, rows})
}
