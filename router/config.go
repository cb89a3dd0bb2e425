package router

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tailor/internal/openai"
	"tailor/router/policy"
)

var (
	// ErrReplica says that a replica's ID or URL cannot be used.
	ErrReplica = errors.New("router: bad replica")
	// ErrUnknownReplica says that there is no replica of that ID.
	ErrUnknownReplica = errors.New("router: unknown replica")
	// ErrNotReady says that the replica a request asks for cannot serve it now.
	ErrNotReady = errors.New("router: replica is not ready")
)

// Replica names a server and says where it is.
type Replica struct {
	ID  string
	URL string // of its root, e.g. http://127.0.0.1:8081
}

// Config says what a router is made of. Zero values stand for the defaults named.
type Config struct {
	Replicas []Replica
	// Name tells this router from all others; empty: made up.
	Name string
	// Policy chooses; nil: policy.Default.
	Policy policy.Policy
	// Tokenize is the replicas' tokenizer, safe for concurrent use. Nil, or an error for
	// one text: the text's bytes are taken instead, and tokens are estimated. Texts reach it
	// in parts that end before a space between two letters: their tokens, one after the
	// other, must be the text's, as they are with GPT-2's tokenizer and its kind.
	Tokenize func(text string) ([]int32, error)
	// TokenizeChat makes of the body of POST /v1/chat/completions the tokens that replicas
	// make of it. Nil, or an error for one body: its messages are compared as bytes.
	TokenizeChat func(body []byte) ([]int32, error)
	// BlockTokens is the length of a block in tokens; 16.
	BlockTokens int
	// ChunkBytes is how much text stands for a block where there is no tokenizer; 64.
	ChunkBytes int
	// PrefixBlocks bounds the blocks of one request that are hashed; 4096.
	PrefixBlocks int
	// IndexBlocks bounds what the index keeps of each replica; 32768. Best set to the
	// size of the replica's own cache.
	IndexBlocks int
	// FollowBlocks bounds the blocks, of all replicas together, that are known from their
	// own events; 1,048,576, which takes up to 200 MB. A replica that does not fit is guessed at.
	FollowBlocks int
	// NoFollow leaves the replicas' events alone: all is guessed.
	NoFollow bool
	// ReplicaKey is the API key with which replicas are asked what they hold and which
	// models they serve; empty: none.
	ReplicaKey string
	// AnyModel sends requests to any replica, whatever model they name: for servers that do
	// not heed the name. Otherwise a replica gets only what it lists on /v1/models.
	AnyModel bool
	// ModelsInterval is how often replicas that stay ready are asked what they serve; 1 min.
	ModelsInterval time.Duration
	// EventSilence is how long a replica that sends events may say nothing; 3 s. It sends
	// a heartbeat every second.
	EventSilence time.Duration
	// HistoryBlocks bounds what is remembered of all prompts ever seen, which tells a lost
	// reuse from a new prompt; 262,144.
	HistoryBlocks int
	// IndexAge is how long a prefix that nobody asks for stays in the index; 30 minutes.
	IndexAge time.Duration
	// SaltByKey keeps the prefixes of different Authorization headers apart, for replicas
	// that do so too.
	SaltByKey bool
	// MaxBody bounds a request's body in bytes; openai.MaxBody.
	MaxBody int64
	// MaxAnswer bounds in bytes what is held back of an answer that is no stream, so that
	// a replica dying half way can still be reported by status; 8 MiB.
	MaxAnswer int64
	// Retries is how many other replicas are tried after a failure; 2. Negative: none.
	Retries int
	// WriteTimeout is how long a client may take to accept what is written; 30 s.
	WriteTimeout time.Duration
	// LedgerRows is how many requests the ledger remembers; 4096.
	LedgerRows int
	// RetryWait is waited before the second other replica is tried, doubled with each
	// further one and varied by half; 25 ms. The first is tried at once: a replica that
	// refuses connections should cost nobody anything. Negative: none.
	RetryWait time.Duration
	// Hedge is how long an answer may take to begin before the request is sent to a second
	// replica too, whichever answers first being taken; 0: never. It costs computing twice.
	Hedge time.Duration
	// Shadows are policies that choose for the same requests without effect.
	Shadows []policy.Policy
	// Keys are the API keys that let callers in, apart from probes and scrapers; none:
	// everybody is. The replicas get the Authorization header as it came.
	Keys []Key
	// AllowedOrigins are the web pages that browsers may let in; "*" is all.
	AllowedOrigins []string
	// Version is what GET /version tells.
	Version string
	// AdminToken is what a caller of the endpoints that change replicas must bring; empty:
	// there are none.
	AdminToken string
	// LedgerFile gets every row as a line of JSON; nil: none. Writes are not waited for.
	LedgerFile io.Writer
	// Sources name replicas that come and go; they are asked every SourceInterval, 2 s.
	Sources        []Source
	SourceInterval time.Duration
	// Breaker says when a replica that is well but fails requests is left alone.
	Breaker Breaker
	// Health says how replicas are watched.
	Health Health
	// Transport carries the requests; nil: one with large keep-alive pools.
	Transport http.RoundTripper
	// Clock tells the time; nil: the real one.
	Clock Clock
	// Log is where state changes go; nil: slog's default.
	Log *slog.Logger
}

// Health says how replicas are watched.
type Health struct {
	Path     string        // asked with GET; /health
	Interval time.Duration // between two checks of a replica; 1 s
	Timeout  time.Duration // of a check; 5 s
	Fails    int           // failures in a row that put a replica down; 3
	Passes   int           // successes in a row that bring it back from there; 2
}

// Breaker says when a replica that passes its health checks but fails requests is left
// alone.
type Breaker struct {
	Failures  int           // in a row that open it; 10
	Successes int           // in a row, after Open, that close it again; 3
	Open      time.Duration // how long no request is sent; 30 s
}

func (c Config) withDefaults() (Config, error) {
	if c.Policy == nil {
		p, err := policy.New(policy.Default, policy.DefaultOptions())
		if err != nil {
			return c, err
		}
		c.Policy = p
	}
	orDefault(&c.BlockTokens, 16)
	orDefault(&c.ChunkBytes, 64)
	orDefault(&c.PrefixBlocks, 4096)
	orDefault(&c.IndexBlocks, 32768)
	orDefault(&c.FollowBlocks, 1<<20)
	orDefault(&c.EventSilence, 3*time.Second)
	orDefault(&c.ModelsInterval, time.Minute)
	orDefault(&c.Name, strings.ToLower(rand.Text()))
	orDefault(&c.SourceInterval, 2*time.Second)
	orDefault(&c.HistoryBlocks, 1<<18)
	orDefault(&c.RetryWait, 25*time.Millisecond)
	orDefault(&c.Breaker.Failures, 10)
	orDefault(&c.Breaker.Successes, 3)
	orDefault(&c.Breaker.Open, 30*time.Second)
	orDefault(&c.IndexAge, 30*time.Minute)
	orDefault(&c.MaxBody, openai.MaxBody)
	orDefault(&c.MaxAnswer, 8<<20)
	orDefault(&c.Retries, 2)
	orDefault(&c.WriteTimeout, 30*time.Second)
	orDefault(&c.LedgerRows, 4096)
	orDefault(&c.Health.Path, "/health")
	orDefault(&c.Health.Interval, time.Second)
	orDefault(&c.Health.Timeout, 5*time.Second)
	orDefault(&c.Health.Fails, 3)
	orDefault(&c.Health.Passes, 2)
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	if c.Clock == nil {
		c.Clock = realClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Retries = max(c.Retries, 0)
	for _, limit := range []int64{
		int64(c.BlockTokens), int64(c.ChunkBytes), int64(c.PrefixBlocks), int64(c.IndexBlocks), int64(c.IndexAge),
		int64(c.FollowBlocks), int64(c.HistoryBlocks), int64(c.EventSilence), int64(c.ModelsInterval), int64(c.SourceInterval), int64(c.Hedge),
		int64(c.Breaker.Failures), int64(c.Breaker.Successes), int64(c.Breaker.Open),
		c.MaxBody, c.MaxAnswer, int64(c.WriteTimeout), int64(c.LedgerRows),
		int64(c.Health.Interval), int64(c.Health.Timeout), int64(c.Health.Fails), int64(c.Health.Passes),
	} {
		if limit < 0 {
			return c, fmt.Errorf("router: a limit is negative: %d", limit)
		}
	}
	return c, nil
}

func orDefault[T comparable](field *T, fallback T) {
	var zero T
	if *field == zero {
		*field = fallback
	}
}

// Validate says whether the replica can be used. Errors wrap ErrReplica.
func (r Replica) Validate() error {
	_, err := r.parse()
	return err
}

// parse checks a replica's name and address. The ID travels in a header.
func (r Replica) parse() (*url.URL, error) {
	if r.ID == "" || len(r.ID) > 128 || strings.ContainsFunc(r.ID, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, fmt.Errorf("%w: ID %q, want 1 to 128 printable ASCII characters without spaces", ErrReplica, r.ID)
	}
	u, err := url.Parse(r.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		want := "http://host:port"
		if host, port, bad := net.SplitHostPort(r.URL); bad == nil && !strings.Contains(port, "/") {
			want = "http://" + net.JoinHostPort(host, port)
		}
		return nil, fmt.Errorf("%w: %s: URL %q, want %s", ErrReplica, r.ID, r.URL, want)
	}
	return u, nil
}
