package router

import (
	"crypto/sha256"
	"crypto/subtle"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tailor/internal/openai"
)

// Key lets a caller in.
type Key struct {
	Name   string // of the tenant; keys may share one
	Secret string
}

// Operator is the name of the keys that may see what concerns all tenants, as on a replica.
const Operator = "operator"

// keyring knows the callers' keys and the admin token. It is immutable.
type keyring struct {
	names []string
	sums  [][sha256.Size]byte
	admin []byte // its sum; nil: there is no admin token
}

func newKeyring(keys []Key, adminToken string) *keyring {
	k := &keyring{}
	for _, key := range keys {
		k.names = append(k.names, key.Name)
		k.sums = append(k.sums, sha256.Sum256([]byte(key.Secret)))
	}
	if adminToken != "" {
		sum := sha256.Sum256([]byte(adminToken))
		k.admin = sum[:]
	}
	return k
}

// caller is whose key a request brings. Sums are of one length and compared in constant
// time, all of them, so that neither a key's length nor its beginning nor its place in the
// list shows.
func (k *keyring) caller(h http.Header) (name string, found, none bool) {
	secret := bearer(h)
	sum := sha256.Sum256([]byte(secret))
	for i := range k.sums {
		if subtle.ConstantTimeCompare(sum[:], k.sums[i][:]) == 1 {
			name, found = k.names[i], true
		}
	}
	return name, found, secret == ""
}

// isAdmin says whether a request brings the admin token.
func (k *keyring) isAdmin(h http.Header) bool {
	sum := sha256.Sum256([]byte(bearer(h)))
	return k.admin != nil && subtle.ConstantTimeCompare(sum[:], k.admin) == 1
}

func bearer(h http.Header) string {
	scheme, secret, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// seesAll says whether a request may see what concerns all callers: everybody may where
// there are no keys; where keys tell several callers apart, the operator and the admin.
func (k *keyring) seesAll(h http.Header) bool {
	if len(k.sums) == 0 || k.isAdmin(h) {
		return true
	}
	name, found, _ := k.caller(h)
	several := slices.ContainsFunc(k.names, func(n string) bool { return n != k.names[0] })
	return found && (!several || name == Operator)
}

// keyed lets only those in who have a key, where there are keys.
func (rt *Router) keyed(then http.HandlerFunc) http.HandlerFunc {
	if len(rt.config.Keys) == 0 {
		return then
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if _, found, none := rt.keys.caller(r.Header); !found {
			refuseKey(w, none)
			return
		}
		then(w, r)
	}
}

// allSeeing lets only those in who may see what concerns all callers.
func (rt *Router) allSeeing(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if rt.keys.seesAll(r.Header) {
			then(w, r)
			return
		}
		if _, found, none := rt.keys.caller(r.Header); !found {
			refuseKey(w, none)
			return
		}
		openai.WriteError(w, &openai.Error{
			Status: http.StatusForbidden, Type: openai.TypeInvalidRequest, Code: openai.CodeForbidden,
			Message: "this concerns all tenants: it takes a key of the name " + Operator + ", or the admin token",
		})
	}
}

// refuseKey does not repeat the key: answers end up in logs.
func refuseKey(w http.ResponseWriter, none bool) {
	message := "the API key is not one of this router's"
	if none {
		message = "this router wants an API key: Authorization: Bearer KEY"
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	openai.WriteError(w, &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidKey, Message: message,
	})
}

// allowOrigins answers browsers, for pages of the origins that the operator names. Without
// any, no header is set and browsers keep pages of other origins out. True: that was all
// that was asked.
func (rt *Router) allowOrigins(w http.ResponseWriter, r *http.Request) (done bool) {
	if len(rt.config.AllowedOrigins) == 0 {
		return false
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(rt.config.AllowedOrigins, origin) && !slices.Contains(rt.config.AllowedOrigins, "*") {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", strings.Join([]string{headerRequest, headerReplica, headerEpoch, headerCache, "Retry-After"}, ", "))
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", "GET, POST")
	header.Set("Access-Control-Allow-Headers", strings.Join([]string{"Authorization", "Content-Type", headerRequest, "X-Request-Timeout", headerReplica, sessionHeaders[0]}, ", "))
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

const maxRequestID = 128 // bytes

// requestID is the client's own name for the request, without what does not belong into
// logs, headers and JSON unescaped, just as a replica takes it; or a new one.
func requestID(h http.Header) string {
	id := h.Get(headerRequest)
	if strings.ContainsFunc(id, notInID) {
		id = strings.Map(func(c rune) rune {
			if notInID(c) {
				return -1
			}
			return c
		}, id)
	}
	if id = id[:min(len(id), maxRequestID)]; id == "" {
		id = "req-" + strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
	}
	return id
}

func notInID(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.:", c))
}
