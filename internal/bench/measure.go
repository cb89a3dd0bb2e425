package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// reading is all that a cluster has counted so far.
type reading struct {
	replicas map[string]counters // by id; nil: nobody counts
	lost     map[string]float64  // by cause; nil: there is no router that tells
}

// spent is what was counted between two readings. A replica that came in between began at 0.
func (r reading) minus(earlier reading) reading {
	d := reading{}
	if r.replicas != nil {
		d.replicas = map[string]counters{}
		for id, c := range r.replicas {
			d.replicas[id] = c.minus(earlier.replicas[id])
		}
	}
	if r.lost != nil {
		d.lost = map[string]float64{}
		for cause, n := range r.lost {
			if n -= earlier.lost[cause]; n != 0 {
				d.lost[cause] = n
			}
		}
	}
	return d
}

// measure makes a Run of what the client saw and what the cluster counted meanwhile.
func measure(samples []Sample, spent reading, wall time.Duration, slo SLO) Run {
	r := Run{
		Requests: int64(len(samples)), Wall: wall.Seconds(), Samples: samples,
		Lost: map[string]int64{}, Load: []LoadSeries{}, TTFTCurve: []float64{},
	}
	seen := r.observe(samples, slo)
	if spent.replicas != nil {
		r.count(spent.replicas)
	} else {
		r.trust(seen)
	}
	for cause, n := range spent.lost {
		r.Lost[cause] = int64(n)
	}
	if spent.lost == nil {
		r.unknown("lost")
	}
	if r.Known("tokens_reused") && r.PromptTokens > 0 {
		r.TokenHitRate = float64(r.Reused) / float64(r.PromptTokens)
	}
	if answered := r.Requests - r.Failed; r.Known("request_hits") && answered > 0 {
		r.RequestHitRate = float64(r.Hits) / float64(answered)
	}
	if r.PromptTokens == 0 {
		r.unknown("token_hit_rate", "request_hit_rate")
	}
	r.measureLoad(samples, spent.replicas)
	r.check(seen, spent)
	slices.Sort(r.Unknown)
	return r
}

func (r *Run) unknown(names ...string) {
	for _, name := range names {
		if r.Known(name) {
			r.Unknown = append(r.Unknown, name)
		}
	}
}

// seen adds up what the answers' usage says.
type seen struct {
	prompt, cached, output, hits int64
	noUsage, noCached            int64 // answers that do not say
}

// observe takes in the client's own measurements.
func (r *Run) observe(samples []Sample, slo SLO) seen {
	var s seen
	var ttft, fromSent, tpot, e2e []float64
	good := 0
	last := time.Duration(0)
	for i := range samples {
		x := &samples[i]
		last = max(last, x.Due)
		if x.Error != "" {
			r.Failed++
			r.addError(x.Error)
			continue
		}
		ttft = append(ttft, x.TTFT.Seconds())
		fromSent = append(fromSent, (x.TTFT - (x.Sent - x.Due)).Seconds())
		e2e = append(e2e, x.E2E.Seconds())
		if x.Output >= 2 {
			tpot = append(tpot, x.TPOT().Seconds())
		}
		if (slo.TTFT == 0 || x.TTFT.Seconds() <= slo.TTFT) && (slo.TPOT == 0 || x.TPOT().Seconds() <= slo.TPOT) {
			good++
		}
		if x.Prompt < 0 {
			s.noUsage++
		} else {
			s.prompt += int64(x.Prompt)
			s.output += int64(x.Output)
		}
		if x.Cached < 0 {
			s.noCached++
		} else {
			s.cached += int64(x.Cached)
			if x.Cached > 0 {
				s.hits++
			}
		}
	}
	r.TTFT, r.TTFTSent, r.TPOT, r.E2E = distribution(ttft), distribution(fromSent), distribution(tpot), distribution(e2e)
	if len(ttft) == 0 {
		r.unknown("ttft_seconds", "ttft_from_sent_seconds", "e2e_seconds")
	} else {
		for q := range 101 {
			r.TTFTCurve = append(r.TTFTCurve, percentile(ttft, float64(q)/100)) // sorted by now
		}
	}
	if len(tpot) == 0 {
		r.unknown("tpot_seconds")
	}
	if last > 0 {
		r.Offered = float64(len(samples)) / last.Seconds()
	} else {
		r.unknown("offered_requests_per_second")
	}
	if r.Wall > 0 {
		r.Rate, r.Goodput = float64(len(ttft))/r.Wall, float64(good)/r.Wall
	}
	return s
}

// errorKinds bounds how many different errors a report tells apart.
const errorKinds = 10

func (r *Run) addError(text string) {
	if r.Errors == nil {
		r.Errors = map[string]int64{}
	}
	// It may come from a server that is none of ours, and ends on terminals.
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > 160 {
		text = string(runes[:160]) + "..."
	}
	if _, known := r.Errors[text]; !known && len(r.Errors) >= errorKinds {
		text = "others"
	}
	r.Errors[text]++
}

// count takes in what the replicas' engines counted.
func (r *Run) count(replicas map[string]counters) {
	for _, c := range replicas {
		r.Computed += int64(c.computed)
		r.Reused += int64(c.reused)
		r.Decoded += int64(c.decoded)
		r.Hits += int64(c.hits)
		r.Evicted += int64(c.evicted)
	}
	// In one order, so that the sum of floats is the same each time.
	for _, id := range slices.Sorted(maps.Keys(replicas)) {
		r.PrefillCPU += replicas[id].prefillCPU
		r.DecodeCPU += replicas[id].decodeCPU
	}
	r.PromptTokens = r.Computed + r.Reused
}

// trust takes the answers' word where nobody else counts.
func (r *Run) trust(s seen) {
	r.PromptTokens, r.Decoded = s.prompt, s.output
	r.Reused, r.Hits, r.Computed = s.cached, s.hits, s.prompt-s.cached
	r.unknown("blocks_evicted", "prefill_cpu_seconds", "decode_cpu_seconds")
	if s.noUsage > 0 {
		r.unknown("prompt_tokens", "tokens_decoded")
		r.PromptTokens, r.Decoded = 0, 0
	}
	if s.noCached > 0 {
		r.unknown("tokens_computed", "tokens_reused", "request_hits", "token_hit_rate", "request_hit_rate")
		r.Reused, r.Hits, r.Computed = 0, 0, 0
	}
}

// check compares what was sent, what the engines counted and what the router accounted for.
// They can differ only by a fault, or by the traffic of others; where requests failed, how
// far each had come is not known, and nothing is compared.
func (r *Run) check(s seen, spent reading) {
	if r.Failed > 0 || spent.replicas == nil {
		return
	}
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	if s.noUsage > 0 || s.noCached > 0 {
		problem("%d answers have no usage and %d no cached_tokens: what the engines counted cannot be checked", s.noUsage, s.noCached)
		return
	}
	if r.PromptTokens != s.prompt || r.Reused != s.cached {
		problem("the engines counted %d prompt tokens, %d of them reused; the answers say %d and %d", r.PromptTokens, r.Reused, s.prompt, s.cached)
	}
	if spent.lost == nil {
		return
	}
	var sum int64
	for _, n := range r.Lost {
		sum += n
	}
	if sum != r.Computed {
		problem("the engines computed %d prompt tokens; the router accounts for %d", r.Computed, sum)
	}
}

// distribution sorts the values.
func distribution(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return Distribution{
		P50: percentile(values, 0.50), P90: percentile(values, 0.90), P99: percentile(values, 0.99),
		Mean: sum / float64(len(values)), Max: values[len(values)-1],
	}
}
