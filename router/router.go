package router

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"tailor/internal/openai"
	"tailor/router/policy"
)

// Router is an HTTP handler in front of replicas.
//
//   - Run owns the goroutines that watch the replicas; requests run on their own.
//   - After Drain has been called no request is taken in; those inside run to their end.
//   - Safe for concurrent use.
type Router struct {
	config   Config
	prompts  promptReader
	registry *registry
	ledger   *ledger
	metrics  *metrics
	keys     *keyring
	past     *past
	shadows  *shadows
	handler  http.Handler

	mu       sync.Mutex
	inside   int           // requests being served
	draining bool          // no new ones
	empty    chan struct{} // closed when draining and inside is 0
}

// New makes a router. Its replicas are unready until Run has found them well.
func New(config Config) (*Router, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	rt := &Router{
		config: config,
		prompts: promptReader{
			tokenize: config.Tokenize, tokenizeChat: config.TokenizeChat, memo: newMemo(memoBytes),
			blockTokens: config.BlockTokens, chunkBytes: config.ChunkBytes,
			limit: config.PrefixBlocks, saltByKey: config.SaltByKey,
		},
		keys: newKeyring(config.Keys, config.AdminToken),
		registry: &registry{
			news: make(chan struct{}), router: config.Name,
			blockTokens: config.BlockTokens, indexBlocks: config.IndexBlocks, indexAge: config.IndexAge,
			health: config.Health, breaker: config.Breaker, clock: config.Clock, log: config.Log,
			blocks: newBlockIndex(config.BlockTokens, config.FollowBlocks), traffic: newTraffic(),
		},
		ledger: newLedger(config.LedgerRows, config.LedgerFile, config.Log),
		past:   newPast(config.HistoryBlocks),
		empty:  make(chan struct{}),
	}
	rt.metrics = newMetrics(rt.registry)
	rt.shadows = newShadows(rt.registry, rt.metrics, config.Shadows)
	for _, r := range config.Replicas {
		if err := rt.registry.add(r, sourceConfig); err != nil {
			return nil, err
		}
	}
	rt.handler = rt.routes()
	return rt, nil
}

// Run watches the replicas, follows what they hold, and does what requests need not wait
// for, until ctx ends. It returns when all its goroutines have.
func (rt *Router) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { rt.watch(ctx) })
	all.Go(func() { rt.followAll(ctx) })
	all.Go(func() { rt.shadows.run(ctx) })
	all.Go(func() { rt.ledger.run(ctx) })
	for _, s := range rt.config.Sources {
		all.Go(func() { rt.watchSource(ctx, s) })
	}
	all.Wait()
	if t, ok := rt.config.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// AwaitReady returns when all replicas are ready, which Run finds out, or with ctx's error.
func (rt *Router) AwaitReady(ctx context.Context) error { return rt.registry.awaitReady(ctx) }

// Add takes in another replica; it serves once a check has passed. Errors wrap ErrReplica.
func (rt *Router) Add(r Replica) error { return rt.registry.add(r, sourceAPI) }

// Remove lets a replica go: no request is sent to it any more, and what is known of it is
// forgotten. Requests it is serving run to their end. Errors wrap ErrUnknownReplica.
func (rt *Router) Remove(id string) error { return rt.registry.remove(id) }

// Drain refuses new requests from now on and waits until those inside have ended, or ctx.
func (rt *Router) Drain(ctx context.Context) error {
	rt.mu.Lock()
	if !rt.draining {
		rt.draining = true
		if rt.inside == 0 {
			close(rt.empty)
		}
	}
	rt.mu.Unlock()
	select {
	case <-rt.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts a request in, unless the router is draining.
func (rt *Router) enter() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.draining {
		return false
	}
	rt.inside++
	return true
}

// stay counts something in that a request inside leaves behind.
func (rt *Router) stay() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.inside++
}

func (rt *Router) leave() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.inside--; rt.inside == 0 && rt.draining {
		close(rt.empty)
	}
}

func (rt *Router) isDraining() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.draining
}

// ServeHTTP implements http.Handler.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerRequest, requestID(r.Header))
	if !rt.allowOrigins(w, r) {
		rt.handler.ServeHTTP(w, r)
	}
}

func (rt *Router) routes() http.Handler {
	// Requests are numbered per kind: a poll of /v1/models must not take a turn from the
	// completions.
	var completions, others atomic.Uint64
	mux := chi.NewRouter()
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		openai.WriteError(w, &openai.Error{
			Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound,
			Message: "there is nothing at " + r.URL.Path,
		})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		openai.WriteError(w, &openai.Error{
			Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: openai.CodeMethod,
			Message: r.URL.Path + " does not take " + r.Method,
		})
	})
	get := func(path string, handler http.HandlerFunc) {
		mux.Get(path, handler)
		mux.Head(path, handler) // net/http leaves the body away
	}
	// Probes and scrapers have no keys.
	get("/health", rt.health)
	get("/version", rt.version)
	get("/metrics", rt.metrics.handler().ServeHTTP)
	get("/v1/replicas", rt.allSeeing(rt.replicas))
	get("/v1/ledger", rt.allSeeing(rt.ledgerRows))
	get("/v1/devices", rt.allSeeing(rt.devices))
	mux.Post("/v1/replicas", rt.admin(rt.addReplica))
	mux.Delete("/v1/replicas/{id}", rt.admin(rt.removeReplica))
	mux.Post("/v1/replicas/{id}/drain", rt.admin(rt.holdReplica(true)))
	mux.Delete("/v1/replicas/{id}/drain", rt.admin(rt.holdReplica(false)))
	mux.Post("/v1/completions", rt.keyed(func(w http.ResponseWriter, r *http.Request) {
		rt.serve(w, r, route{policy: rt.config.Policy, read: rt.prompts.completion, seq: &completions, retry: true, ledger: true})
	}))
	mux.Post("/v1/chat/completions", rt.keyed(func(w http.ResponseWriter, r *http.Request) {
		rt.serve(w, r, route{policy: rt.config.Policy, read: rt.prompts.chat, seq: &completions, retry: true, ledger: true})
	}))
	// Any ready replica will do for the rest. What a request means is not known here, so
	// only those that may be repeated by their method are.
	other := rt.keyed(func(w http.ResponseWriter, r *http.Request) {
		repeatable := r.Method == http.MethodGet || r.Method == http.MethodHead
		rt.serve(w, r, route{policy: policy.NewLeastLoaded(), seq: &others, retry: repeatable})
	})
	get("/v1/models", rt.keyed(rt.listModels(other)))
	get("/v1/models/*", rt.keyed(rt.oneModel(other)))
	// Whoever asks for a cache must not get any one's: a router that follows this one would
	// take it for what stands behind all of it.
	mux.HandleFunc("/v1/cache", rt.noCache)
	mux.HandleFunc("/v1/cache/*", rt.noCache)
	mux.HandleFunc("/v1/*", other)
	return mux
}

func (rt *Router) noCache(w http.ResponseWriter, r *http.Request) {
	openai.WriteError(w, &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound,
		Message: "a router has no cache: ask a replica for " + r.URL.Path,
	})
}
