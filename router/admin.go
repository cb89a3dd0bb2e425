package router

import (
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"tailor/internal/openai"
)

// Replicas that came through the API, or with the configuration.
const (
	sourceAPI    = "api"
	sourceConfig = "config"
)

// admin lets a request through that brings the token.
func (rt *Router) admin(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case rt.config.AdminToken == "":
			openai.WriteError(w, &openai.Error{
				Status: http.StatusForbidden, Type: openai.TypeInvalidRequest, Code: codeAdmin,
				Message: "this router was started without an admin token: its replicas cannot be changed by request",
			})
		case !rt.keys.isAdmin(r.Header):
			openai.WriteError(w, &openai.Error{
				Status: http.StatusUnauthorized, Type: openai.TypeInvalidRequest, Code: codeAdmin,
				Message: "the Authorization header does not bring the admin token",
			})
		default:
			then(w, r)
		}
	}
}

const codeAdmin = "admin_token"

// maxAdminBody is plenty for an ID and a URL.
const maxAdminBody = 16 << 10

func (rt *Router) addReplica(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID  string `json:"id"`
		URL string `json:"url"`
	}
	data, err := openai.ReadBody(w, r, maxAdminBody)
	if err == nil {
		err = openai.DecodeObject(data, &body)
	}
	if err == nil {
		if e := rt.registry.add(Replica{ID: body.ID, URL: body.URL}, sourceAPI); e != nil {
			err = openai.Invalid("", "%v", e)
		}
	}
	if err != nil {
		rt.adminError(w, err)
		return
	}
	rt.config.Log.Info("replica added", "replica", body.ID, "url", body.URL)
	rt.answerReplica(w, http.StatusCreated, body.ID)
}

func (rt *Router) removeReplica(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if err := rt.registry.remove(id); err != nil {
		rt.adminError(w, err)
		return
	}
	rt.config.Log.Info("replica removed", "replica", id)
	openai.WriteJSON(w, http.StatusOK, struct {
		ID      string `json:"id"`
		Removed bool   `json:"removed"`
	}{id, true})
}

// holdReplica drains a replica (true) or lets requests come again. What it is serving runs
// to its end; in_flight in the answer says how much that is.
func (rt *Router) holdReplica(held bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := chi.URLParam(r, "id")
		if err := rt.registry.hold(id, held); err != nil {
			rt.adminError(w, err)
			return
		}
		rt.config.Log.Info("replica drained by an operator", "replica", id, "held", held)
		rt.answerReplica(w, http.StatusOK, id)
	}
}

func (rt *Router) answerReplica(w http.ResponseWriter, status int, id string) {
	for _, s := range rt.registry.status() {
		if s.ID == id {
			openai.WriteJSON(w, status, s)
			return
		}
	}
	rt.adminError(w, ErrUnknownReplica) // removed in the meantime
}

func (rt *Router) adminError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*openai.Error](err)
	switch {
	case ok:
	case errors.Is(err, ErrUnknownReplica):
		e = &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, Message: err.Error()}
	default:
		e = openai.Invalid("", "%v", err)
	}
	openai.WriteError(w, e)
}
