package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tailor/internal/openai"
	"tailor/server/engine"
)

// tellCache says in a header how much of the prompts was in the cache, and why not more:
//
//	x-tailor-cache: matched=480, missed=20, reason=evicted, evicted_ago=12.3
//
// Of a stream of several prompts nothing is said, since not all have been looked up by the
// time that headers go out.
func (s *Server) tellCache(w http.ResponseWriter, g *generation) {
	var matched, missed int
	var reasons []string
	var ago float64
	for _, p := range g.prompts {
		if !p.begun {
			return
		}
		matched += p.cache.Matched
		missed += p.cache.Missed
		ago = max(ago, p.cache.EvictedAgo.Seconds())
		if reason := tellable(p.cache.Reason); reason != "" && !slices.Contains(reasons, string(reason)) {
			reasons = append(reasons, string(reason))
		}
	}
	text := fmt.Sprintf("matched=%d, missed=%d", matched, missed)
	if len(reasons) > 0 {
		text += ", reason=" + strings.Join(reasons, "+")
	}
	if ago > 0 {
		text += fmt.Sprintf(", evicted_ago=%.1f", ago)
	}
	w.Header().Set(headerCache, text)
}

// tellable is the reason as a client may know it: that somebody else's prompt begins just
// like its own is what salts are there to hide.
func tellable(reason engine.MissReason) engine.MissReason {
	if reason == engine.MissSalt {
		return engine.MissCold
	}
	return reason
}

// Operator is the name of the keys that may see and do what concerns all tenants, where
// tenants are kept from each other.
const Operator = "operator"

func (s *Server) mustBeOperator(r *http.Request) error {
	if !s.IsolateKeys || tenantOf(r.Context()).name == Operator {
		return nil
	}
	return concernsAll()
}

func concernsAll() *openai.Error {
	return &openai.Error{
		Status: http.StatusForbidden, Type: openai.TypeInvalidRequest, Code: openai.CodeForbidden,
		Message: "this concerns all tenants: it takes a key of the name " + Operator,
	}
}

// Limits of the view.
const (
	defaultNodes = 100
	maxNodes     = 1000
)

// cacheView shows the prefix tree, with the first tokens of what all tenants have sent.
func (s *Server) cacheView(w http.ResponseWriter, r *http.Request) {
	limit := defaultNodes
	err := s.mustBeOperator(r)
	if text := r.URL.Query().Get("limit"); err == nil && text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 || limit > maxNodes {
			err = openai.Invalid("limit", "%q is not a number of nodes, 0 to %d", text, maxNodes)
		}
	}
	var view any
	if err == nil && s.View == nil {
		err = unavailable("this replica does not show its cache")
	}
	if err == nil {
		view, err = s.View(r.Context(), limit)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.respond(w, view)
}

// resetPrefixCache answers 409 while sequences hold blocks, where vLLM says 200 and
// success false.
func (s *Server) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	err := s.mustBeOperator(r)
	if err == nil {
		err = s.Engine.Reset(r.Context())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set(headerEpoch, s.epoch())
	s.respond(w, map[string]bool{"success": true})
}
