package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/httprate"

	"tailor/internal/openai"
)

// A Key lets a tenant in.
type Key struct {
	Name   string // of the tenant, in the log; keys may share one
	Secret string
}

// ErrKey says that a key cannot be used.
var ErrKey = errors.New("bad API key")

// ParseKeys reads keys, one a line: NAME:SECRET or just the secret, which is then called
// key1, key2, ... by its line. Empty lines and lines that begin with # do not count. Errors
// wrap ErrKey, and name the line, never the secret.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, secret, named := strings.Cut(line, ":")
		if !named {
			name, secret = fmt.Sprintf("key%d", number), line
		}
		name, secret = strings.TrimSpace(name), strings.TrimSpace(secret)
		switch {
		case cleanID(name) != name || name == "":
			return nil, fmt.Errorf("%w: line %d: a name has 1 to %d of the characters a-z A-Z 0-9 - _ . and no others", ErrKey, number, maxRequestID)
		case secret == "" || strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c > '~' }):
			return nil, fmt.Errorf("%w: line %d: a key is one or more printable ASCII characters without spaces", ErrKey, number)
		}
		keys = append(keys, Key{name, secret})
	}
	return keys, nil
}

// tenant is who sent a request: of the zero value nothing is known.
type tenant struct {
	name   string
	secret string
}

// authenticate lets only those in who have a key, where there are keys. Probes and
// scrapers, which have none, get at /health, /version and /metrics.
func (s *Server) authenticate(next http.Handler) http.Handler {
	if len(s.Keys) == 0 {
		return next
	}
	sums := make([][sha256.Size]byte, len(s.Keys))
	for i, k := range s.Keys {
		sums[i] = sha256.Sum256([]byte(k.Secret))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health", "/version", "/metrics":
			next.ServeHTTP(w, r)
			return
		}
		scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			secret = ""
		}
		secret = strings.TrimSpace(secret)
		// Sums are of one length and compared in constant time, all of them, so that
		// neither a key's length, nor its beginning, nor its place in the list shows.
		sum, found := sha256.Sum256([]byte(secret)), -1
		for i := range sums {
			if subtle.ConstantTimeCompare(sum[:], sums[i][:]) == 1 {
				found = i
			}
		}
		if found < 0 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.fail(w, r, wrongKey(secret == ""))
			return
		}
		k := s.Keys[found]
		recordOf(r.Context()).tenant = k.Name
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keyTenant, tenant{k.Name, secret})))
	})
}

func tenantOf(ctx context.Context) tenant {
	t, _ := ctx.Value(keyTenant).(tenant)
	return t
}

// wrongKey does not repeat the key: answers end up in logs.
func wrongKey(none bool) *openai.Error {
	message := "the API key is not one of this server's"
	if none {
		message = "this server wants an API key: Authorization: Bearer KEY"
	}
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidKey, Message: message,
	}
}

// limitRate bounds the requests of each key, or of each address where there are no keys.
func (s *Server) limitRate(next http.Handler) http.Handler {
	if s.RequestsPerMinute <= 0 {
		return next
	}
	who := func(r *http.Request) (string, error) {
		if t := tenantOf(r.Context()); t.secret != "" {
			return "key:" + t.secret, nil
		}
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		return "address:" + httprate.CanonicalizeIP(host), nil
	}
	limited := httprate.LimitBy(s.RequestsPerMinute, time.Minute, who, httprate.WithLimitHandler(
		func(w http.ResponseWriter, r *http.Request) { // Retry-After is set
			s.fail(w, r, &openai.Error{
				Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, Code: openai.CodeQueueFull,
				Message: fmt.Sprintf("more than %d requests in a minute", s.RequestsPerMinute),
			})
		}))(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			limited.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// salt separates the prefixes of those who must not see each other's, by time or by count.
func (s *Server) salt(ctx context.Context, chosen *string) string {
	own := openai.Or(chosen, "")
	if !s.IsolateKeys {
		return own
	}
	return openai.SaltOfKey(tenantOf(ctx).secret, own)
}
