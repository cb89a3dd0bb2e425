package server

import "net/http"

// devices says what memory the machine has, its GPUs' and its own.
func (s *Server) devices(w http.ResponseWriter, r *http.Request) {
	if s.Devices == nil {
		notFound(w, r)
		return
	}
	s.respond(w, s.Devices(r.Context()))
}
