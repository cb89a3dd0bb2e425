package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"tailor/internal/openai"
	"tailor/model/tokenizer"
	"tailor/server/blocklog"
	"tailor/server/engine"
)

// An Engine turns prompts into tokens; *engine.Engine is one.
type Engine interface {
	// Submit accepts a prompt or says why not. The channel holds all its events, is
	// closed after the last, and ends early when ctx does.
	Submit(ctx context.Context, r engine.Request) (<-chan engine.Event, error)
	Stats() engine.Stats
	Reset(ctx context.Context) error
	// BlockLog is what has happened to the prefix cache, BlockSnapshot all that it holds.
	BlockLog() *blocklog.Log
	BlockSnapshot(ctx context.Context) (blocklog.Snapshot, error)
}

// Config says what a Server serves.
type Config struct {
	Engine    Engine
	Tokenizer *tokenizer.Tokenizer
	ModelName string // what requests must name
	Context   int    // tokens that prompt and answer may add up to
	BlockSize int    // tokens per block of the KV cache, for the metrics
	Replica   string // this replica's id, in answers and metrics
	Version   string
	Log       *slog.Logger

	// The rest may be left 0.

	// Template makes prompts of conversations; nil: the model cannot be chatted with.
	Template *ChatTemplate
	// Keys are the API keys that are let in; none: everybody is.
	Keys []Key
	// IsolateKeys keeps each key from reusing, and so from noticing, what others have had
	// computed.
	IsolateKeys bool
	// RequestsPerMinute bounds each key, or each address where there are no keys.
	RequestsPerMinute int
	// AllowedOrigins are the web pages that browsers may let in; "*" is all.
	AllowedOrigins []string
	// View describes at most so many nodes of the prefix tree, for GET /v1/cache.
	View func(ctx context.Context, limit int) (any, error)
	// Devices describes the machine's GPUs and memory, for GET /v1/devices.
	Devices func(ctx context.Context) any
	// Gauges are exported by GET /metrics beside the server's own, without its labels.
	Gauges []prometheus.Collector
	// Settings are what GET /get_server_info shows beside what is here: no secrets.
	Settings map[string]any

	MaxBody    int64 // bytes; openai.MaxBody
	MaxPrompts int   // per request; 64
	// WriteTimeout bounds how long a client may take to read one event of a stream,
	// or an answer in one piece; 30 s.
	WriteTimeout time.Duration
}

// Server answers for one engine. Its handler may be used by any number of
// goroutines.
//
//   - Per request there is state in the handler's goroutine only; what requests
//     share is the engine, the metrics and the draining flag.
//   - A request's goroutines end with the engine's channels, within a step after
//     its context has ended.
type Server struct {
	Config
	created       time.Time
	maxTokenBytes int // the most text that a token stands for
	chats         *ChatEncoder
	draining      atomic.Bool
	drains        signal
	metrics       *metrics
}

// New prepares a server; nothing runs before its Handler is called.
func New(cfg Config) *Server {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = openai.MaxBody
	}
	if cfg.MaxPrompts == 0 {
		cfg.MaxPrompts = 64
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	s := &Server{Config: cfg, created: time.Now(), metrics: newMetrics(cfg)}
	for id := range cfg.Tokenizer.VocabSize() {
		bytes, _ := cfg.Tokenizer.Bytes(int32(id))
		s.maxTokenBytes = max(s.maxTokenBytes, len(bytes))
	}
	special := cfg.Tokenizer.Special()
	for text := range special {
		s.maxTokenBytes = max(s.maxTokenBytes, len(text))
	}
	s.chats = NewChatEncoder(cfg.Template, cfg.Tokenizer)
	return s
}

// SetDraining makes the server refuse new completions with 503 and say so in its
// health, while those under way go on, and ends the streams of cache events; or ends
// that.
func (s *Server) SetDraining(on bool) {
	s.draining.Store(on)
	if on {
		s.drains.now()
	}
}

// Handler is the HTTP API.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(s.identify, s.accessLog, s.recoverPanic, s.allowOrigins, s.authenticate, s.limitRate, middleware.GetHead)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed)

	r.Post("/v1/completions", s.completions)
	r.Post("/v1/chat/completions", s.chat)
	r.Get("/v1/models", s.models)
	r.Get("/v1/models/*", s.model) // names may hold slashes
	r.Post("/tokenize", s.tokenize)
	r.Post("/detokenize", s.detokenize)
	r.Get("/health", s.health)
	r.Get("/version", s.version)
	r.Get("/get_server_info", s.serverInfo)
	r.Get("/server_info", s.serverInfo) // SGLang's later name
	r.Get("/v1/devices", s.devices)
	r.Get("/v1/cache", s.cacheView)
	r.Get("/v1/cache/events", s.cacheEvents)
	r.Get("/v1/cache/snapshot", s.cacheSnapshot)
	r.Method(http.MethodGet, "/metrics", s.metrics.handler())
	r.Post("/reset_prefix_cache", s.resetPrefixCache)
	r.Post("/flush_cache", s.resetPrefixCache) // SGLang's name for it
	return r
}

// respond answers with v, in bounded time.
func (s *Server) respond(w http.ResponseWriter, v any) {
	s.boundWrite(w)
	openai.WriteJSON(w, http.StatusOK, v)
}

// boundWrite gives the client until then to take the answer; net/http lifts the
// deadline after it. Where deadlines are not supported no connection can be held.
func (s *Server) boundWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.WriteTimeout))
}

func notFound(w http.ResponseWriter, r *http.Request) {
	openai.WriteError(w, &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound,
		Message: "there is no " + r.URL.Path + " here",
	})
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	routes := chi.RouteContext(r.Context()).Routes
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
			allowed = append(allowed, method)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	openai.WriteError(w, &openai.Error{
		Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethod,
		Message: r.URL.Path + " takes " + strings.Join(allowed, " or ") + ", not " + r.Method,
	})
}
