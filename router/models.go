package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"tailor/internal/openai"
)

// servedModel is a model as a replica lists it.
type servedModel struct {
	id    string
	entry json.RawMessage
}

const (
	// modelsTimeout bounds the question which models a replica serves. It is asked before
	// the replica becomes ready, so that a slow answer must not take long.
	modelsTimeout = 2 * time.Second
	maxModelsBody = 1 << 20
	maxModels     = 1024
	maxModelID    = 512
)

// errModels says that an answer lists no models.
var errModels = errors.New("router: no list of models")

// askModels asks a replica which models it serves. Nil and no error: it does not say.
func (rt *Router) askModels(ctx context.Context, r *replica) ([]servedModel, error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base.JoinPath("/v1/models").String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(headerVia, r.hop)
	if key := rt.config.ReplicaKey; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := rt.config.Transport.RoundTrip(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil // it does not say in time
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModelsBody+1))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, err
	}
	models, err := parseModels(body)
	if err != nil {
		rt.config.Log.Debug("replica lists no models", "replica", r.id, "error", err)
		return nil, nil
	}
	return models, nil
}

// parseModels reads the answer of GET /v1/models, sorted by ID. Errors wrap errModels.
func parseModels(body []byte) ([]servedModel, error) {
	if len(body) > maxModelsBody {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", errModels, maxModelsBody)
	}
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", errModels, err)
	}
	if len(list.Data) == 0 || len(list.Data) > maxModels {
		return nil, fmt.Errorf("%w: it has %d, want 1 to %d", errModels, len(list.Data), maxModels)
	}
	models := make([]servedModel, 0, len(list.Data))
	for i, entry := range list.Data {
		var m struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(entry, &m); err != nil || m.ID == "" || len(m.ID) > maxModelID {
			return nil, fmt.Errorf("%w: entry %d has no usable id", errModels, i)
		}
		models = append(models, servedModel{m.ID, entry})
	}
	slices.SortStableFunc(models, func(a, b servedModel) int { return strings.Compare(a.id, b.id) })
	return slices.CompactFunc(models, func(a, b servedModel) bool { return a.id == b.id }), nil
}

// offers says whether the replica serves the model, as far as is known: one that does not
// say is taken to serve any, and so is a request that names none.
func (r *replica) offers(model string) bool {
	if model == "" || r.models == nil {
		return true
	}
	_, found := slices.BinarySearchFunc(r.models, model, func(m servedModel, id string) int { return strings.Compare(m.id, id) })
	return found
}

// modelsDue says whether the replica should be asked for its models when it is well.
func (r *replica) modelsDue(epoch string, every time.Duration, now time.Time) bool {
	return r.state != StateReady || epoch != r.epoch || now.Sub(r.modelsAt) >= every
}

// unknownModelError says that every replica tells what it serves, and none this model.
type unknownModelError struct {
	model  string
	served []string
}

func (e *unknownModelError) Error() string {
	const most = 8
	names := make([]string, 0, most)
	for _, name := range e.served[:min(len(e.served), most)] {
		names = append(names, strconv.Quote(name))
	}
	verb := "is"
	if len(e.served) > 1 {
		verb = "are"
	}
	if more := len(e.served) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d others", more))
	}
	return fmt.Sprintf("%q is not served here; %s %s", e.model, strings.Join(names, ", "), verb)
}

// openAI is the error as a replica words it.
func (e *unknownModelError) openAI() *openai.Error {
	out := openai.Invalid("model", "%v", e)
	out.Status, out.Code = http.StatusNotFound, openai.CodeModelNotFound
	return out
}

// mustOffer is an *unknownModelError where no replica serves the model, nor may turn out to
// once it has been asked; the lock is held.
func (g *registry) mustOffer(model string, replicas []*replica) error {
	if model == "" || len(replicas) == 0 {
		return nil
	}
	for _, r := range replicas {
		if r.offers(model) {
			return nil
		}
	}
	e := &unknownModelError{model: model}
	for _, r := range replicas {
		for _, m := range r.models {
			e.served = append(e.served, m.id)
		}
	}
	slices.Sort(e.served)
	e.served = slices.Compact(e.served)
	return e
}

// anyServes says whether any replica is ready, whatever it serves.
func (g *registry) anyServes() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.replicas, (*replica).serves)
}

// models are those that the ready replicas list, sorted by ID; complete: all of them do.
func (g *registry) models() (models []servedModel, complete bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	complete = true
	for _, r := range g.replicas {
		if r.serves() {
			models = append(models, r.models...)
			complete = complete && r.models != nil
		}
	}
	slices.SortStableFunc(models, func(a, b servedModel) int { return strings.Compare(a.id, b.id) })
	return slices.CompactFunc(models, func(a, b servedModel) bool { return a.id == b.id }), complete
}

// listed are the models that the router may tell of by itself. Those that it knows thanks
// to its own key it keeps from callers whose keys it cannot check: a replica is to say.
func (rt *Router) listed() (models []servedModel, complete bool) {
	if rt.config.ReplicaKey != "" && len(rt.config.Keys) == 0 {
		return nil, false
	}
	return rt.registry.models()
}

// listModels answers with the models of all replicas, or has a replica answer where none
// of them has told.
func (rt *Router) listModels(otherwise http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		models, _ := rt.listed()
		if len(models) == 0 {
			otherwise(w, r)
			return
		}
		data := make([]json.RawMessage, len(models))
		for i, m := range models {
			data[i] = m.entry
		}
		openai.WriteJSON(w, http.StatusOK, struct {
			Object string            `json:"object"`
			Data   []json.RawMessage `json:"data"`
		}{openai.ObjectList, data})
	}
}

// oneModel answers with one of them. Its name may hold slashes.
func (rt *Router) oneModel(otherwise http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := chi.URLParam(r, "*")
		models, complete := rt.listed()
		e := &unknownModelError{model: name}
		for _, m := range models {
			if m.id == name {
				openai.WriteJSON(w, http.StatusOK, m.entry)
				return
			}
			e.served = append(e.served, m.id)
		}
		if len(models) == 0 || !complete {
			otherwise(w, r)
			return
		}
		openai.WriteError(w, e.openAI())
	}
}
