package router

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// headerCache is where a tailor replica says what its cache did for a request, such as
// "matched=480, missed=21, reason=cold". Of several reasons, joined by +, the first counts.
const headerCache = "X-Tailor-Cache"

// Reasons of a replica for the first token it had to compute.
const (
	missEvicted  = "evicted"
	missInFlight = "in_flight"
)

// CachedFrom says where the number of delivered cached tokens comes from.
type CachedFrom string

const (
	CachedFromReplica   CachedFrom = "replica"   // the replica's own report
	CachedFromUsage     CachedFrom = "usage"     // cached_tokens in the answer's usage
	CachedFromPredicted CachedFrom = "predicted" // the replica does not tell
)

// delivered is what a replica reused for a request.
type delivered struct {
	from    CachedFrom
	matched int
	prompt  int // tokens; 0 if not told
	reason  string
}

// readCacheHeader reads a replica's report; false if there is none that makes sense.
func readCacheHeader(h http.Header) (d delivered, ok bool) {
	text := h.Get(headerCache)
	if text == "" {
		return d, false
	}
	d.from = CachedFromReplica
	missed := -1
	d.matched = -1
	separator := func(c rune) bool { return c == ',' || c == ';' }
	for part := range strings.FieldsFuncSeq(text, separator) {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(value)
		switch {
		case name == "reason":
			d.reason, _, _ = strings.Cut(value, "+")
		case err != nil || n < 0:
		case name == "matched":
			d.matched = n
		case name == "missed":
			missed = n
		}
	}
	if missed >= 0 {
		d.prompt = d.matched + missed
	}
	return d, d.matched >= 0
}

// usageTail is how far from the end of a part the usage may begin.
const usageTail = 2048

// readUsage finds the usage in a part of an answer, without parsing it: the last one
// counts, since a stream may repeat it as it grows.
func (d *delivered) readUsage(p []byte) {
	p = p[max(0, len(p)-usageTail):]
	if n, ok := lastNumber(p, `"cached_tokens":`); ok {
		d.from, d.matched = CachedFromUsage, n
		if n, ok := lastNumber(p, `"prompt_tokens":`); ok {
			d.prompt = n
		}
	}
}

func lastNumber(p []byte, key string) (int, bool) {
	if !bytes.Contains(p, []byte(key)) { // nearly always, and quicker to see from the front
		return 0, false
	}
	i := bytes.LastIndex(p, []byte(key))
	p = bytes.TrimLeft(p[i+len(key):], " ")
	n, digits := 0, 0
	for digits < len(p) && digits < 9 && p[digits]-'0' <= 9 {
		n = 10*n + int(p[digits]-'0')
		digits++
	}
	return n, digits > 0
}
