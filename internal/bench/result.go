package bench

import (
	"encoding/json"
	"slices"
	"time"
)

// SchemaVersion is the version of Report's JSON form. It changes when a field changes its
// meaning or goes away, not when one is added.
const SchemaVersion = "tailor-bench/1"

// Report is a comparison: one workload, replayed under several policies and, where asked
// for, several capacities, each several times.
type Report struct {
	Schema   string         `json:"schema"`
	Created  time.Time      `json:"created"`
	Command  []string       `json:"command"`
	Version  string         `json:"version"` // of tailor
	Machine  Machine        `json:"machine"`
	Target   string         `json:"target"` // URL of what was running already; empty: started for this
	Model    string         `json:"model"`
	Workload WorkloadReport `json:"workload"`
	Arrival  Arrival        `json:"arrival"`
	SLO      SLO            `json:"slo"`
	Replicas int            `json:"replicas"` // 0: unknown (a foreign target)
	Threads  int            `json:"threads"`  // of each replica
	// Settings are options of the replicas that change what they compute or keep, by name.
	Settings map[string]string `json:"settings,omitempty"`
	// BlockTokens is the length of a KV block.
	BlockTokens int `json:"block_tokens"`
	Repeat      int `json:"repeat"`
	// Cold says that every run began with empty caches.
	Cold        bool    `json:"cold"`
	Interrupted bool    `json:"interrupted"` // ended early: what follows is what ran to its end
	Reach       Reach   `json:"reach"`
	Groups      []Group `json:"groups"` // by capacity, then policy; each has at least one run
	// Partial is the run that was under way when the rest was given up, if one was. Its
	// requests are a part of the workload's, so it compares with nothing.
	Partial *Group  `json:"partial,omitempty"`
	Verdict Verdict `json:"verdict"`
}

// Machine is where the benchmark ran.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
}

// WorkloadReport describes the workload.
type WorkloadReport struct {
	Name         string            `json:"name"`
	Seed         uint64            `json:"seed"`
	Parameters   map[string]string `json:"parameters"`
	Requests     int               `json:"requests"`
	PromptTokens int64             `json:"prompt_tokens"`
	OutputTokens int64             `json:"output_tokens"`
}

// Arrival says when requests were sent.
type Arrival struct {
	Kind        string  `json:"kind"`                          // closed, poisson or trace
	Concurrency int     `json:"concurrency,omitempty"`         // closed: clients
	Rate        float64 `json:"requests_per_second,omitempty"` // poisson
	Speed       float64 `json:"speed,omitempty"`               // trace: its clock against ours
	// MaxInFlight bounds an open loop; see Run.Held.
	MaxInFlight int `json:"max_in_flight,omitempty"`
}

// SLO is what an answer must keep to count as good; 0 bounds nothing.
type SLO struct {
	TTFT float64 `json:"ttft_seconds"`
	TPOT float64 `json:"tpot_seconds"`
}

// Reach is what could have been reused of the workload's prompts, sent in order.
type Reach struct {
	// Unit is "tokens" or, where the target has no tokenizer to ask, "bytes"; empty where no
	// run came to its end, and then nothing else is known either.
	Unit   string `json:"unit"`
	Prompt int64  `json:"prompt"`
	// Infinite is what one cache that never evicts would reuse, and how many requests
	// would find anything in it.
	Infinite     int64 `json:"infinite"`
	InfiniteHits int64 `json:"infinite_hits"`
	// Bounds are, by blocks in all caches together, upper bounds for every eviction
	// policy that knows the future, on one pooled cache.
	Bounds []Bound `json:"bounds"`
}

// Bound is an upper bound of what a cache of so many blocks can reuse.
type Bound struct {
	Blocks int   `json:"blocks"`
	Reused int64 `json:"reused"`
	// LRU is what one pooled cache of that size reuses that evicts least recently used.
	LRU int64 `json:"lru"`
}

// Group is all runs of one policy with one capacity.
type Group struct {
	Policy string `json:"policy"`
	// KVBlocks of each replica; 0: unknown.
	KVBlocks int   `json:"kv_blocks"`
	Runs     []Run `json:"runs"`
	// Summary is the median, minimum and maximum of each figure of the runs, by the name
	// it has in Run's JSON form; with a dot inside a distribution or the causes of what was
	// lost: ttft_seconds.p50, lost.cold. What a run does not know is absent.
	Summary map[string]Spread `json:"summary"`
	// Published are the figures that the workload's author gives for this policy.
	Published *PublishedCheck `json:"published,omitempty"`
}

// PublishedCheck compares with what a workload's author counted.
type PublishedCheck struct {
	Computed int64 `json:"tokens_computed"`
	Hits     int64 `json:"request_hits"`
	Same     bool  `json:"same"` // all runs measured just these
}

// Spread is a figure over repeated runs.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Run is what one replay cost.
type Run struct {
	// Unknown names, as the JSON form does, the figures that nobody counted, such as the
	// prefill CPU of a server that is not Tailor's. They are absent there and 0 here.
	Unknown []string `json:"unknown,omitempty"`
	// Problems say in what way the counts contradict each other; none is what they should be.
	Problems []string `json:"problems,omitempty"`
	// Errors are the failed requests by what was wrong.
	Errors map[string]int64 `json:"errors,omitempty"`
	// Held are requests that an open loop sent late because Arrival.MaxInFlight were under way.
	Held int64 `json:"held_requests"`
	// Prompts identifies the bytes of all prompts sent: equal runs were asked the same.
	Prompts      string  `json:"prompts_hash"`
	Requests     int64   `json:"requests"`
	Failed       int64   `json:"failed"` // answered with an error, or not at all
	PromptTokens int64   `json:"prompt_tokens"`
	Computed     int64   `json:"tokens_computed"`
	Reused       int64   `json:"tokens_reused"`
	Decoded      int64   `json:"tokens_decoded"`
	Hits         int64   `json:"request_hits"`
	Evicted      int64   `json:"blocks_evicted"`
	TokenHitRate float64 `json:"token_hit_rate"`
	// RequestHitRate is the share of requests that reused anything.
	RequestHitRate float64 `json:"request_hit_rate"`
	PrefillCPU     float64 `json:"prefill_cpu_seconds"`
	DecodeCPU      float64 `json:"decode_cpu_seconds"`
	Wall           float64 `json:"wall_seconds"`
	// Rate is answers per second, Goodput those that kept the SLO, and Offered how many
	// requests per second fell due: where answers come more slowly, a queue grows.
	Rate    float64 `json:"requests_per_second"`
	Offered float64 `json:"offered_requests_per_second"`
	Goodput float64 `json:"goodput_requests_per_second"`
	// TTFT and E2E count from when a request should have been sent, so that in an open loop
	// waiting for the client counts too; TTFTSent from when it was. TPOT is of answers with
	// two tokens and more.
	TTFT     Distribution `json:"ttft_seconds"`
	TTFTSent Distribution `json:"ttft_from_sent_seconds"`
	TPOT     Distribution `json:"tpot_seconds"`
	E2E      Distribution `json:"e2e_seconds"`
	// Lost are computed prompt tokens by cause, from the router's ledger; empty if there is none.
	Lost map[string]int64 `json:"lost"`
	// LoadMax is the requests that the busiest replica served, LoadMean the mean over all.
	LoadMax  int64   `json:"load_max_requests"`
	LoadMean float64 `json:"load_mean_requests"`
	// Load is each replica's requests in flight over time.
	Load []LoadSeries `json:"load"`
	// Cost is the lesson's expected cost against the measured one.
	Cost *Cost `json:"cost,omitempty"`
	// Samples are the requests one by one, in the workload's order. They go to the CSV file and the
	// plots; the JSON form leaves them out.
	Samples []Sample `json:"-"`
	// TTFTCurve is the cumulative distribution of TTFT at 0, 1, ... 100 %, in seconds.
	TTFTCurve []float64 `json:"ttft_curve_seconds"`
}

// Distribution is of times, in seconds.
type Distribution struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// LoadSeries is one replica's requests in flight, sampled every Step seconds from the start.
type LoadSeries struct {
	Replica  string  `json:"replica"`
	Requests int64   `json:"requests"` // served in all
	Step     float64 `json:"step_seconds"`
	InFlight []int   `json:"in_flight"`
}

// Cost compares the lesson's formula E = h*c_s + (1-h)*(c_p + c_s), in seconds of prefill
// CPU a request, with what was measured. h is the run's request hit rate; c_p and c_s, a
// prefix's and a suffix's cost, are measured apart from the runs, on a cluster of their own with
// prompts of the workload's mean lengths.
type Cost struct {
	HitRate   float64 `json:"h"`
	Prefix    float64 `json:"c_p_seconds"`
	Suffix    float64 `json:"c_s_seconds"`
	Predicted float64 `json:"predicted_seconds"`
	Measured  float64 `json:"measured_seconds"`
}

// Sample is what the client saw of one request.
type Sample struct {
	Index   int
	Due     time.Duration // when it should have been sent, from the start of the run
	Sent    time.Duration // when it was
	TTFT    time.Duration // from Due until the first chunk with a choice
	E2E     time.Duration // from Due until the answer's end
	Prompt  int           // tokens
	Cached  int           // of them, as the answer's usage says; -1 where it does not
	Output  int
	Replica string
	Session string
	Error   string // empty: answered
}

// TPOT is the time per output token after the first; 0 where there was only one.
func (s Sample) TPOT() time.Duration {
	if s.Output < 2 {
		return 0
	}
	return (s.E2E - s.TTFT) / time.Duration(s.Output-1)
}

// Known tells whether the figure of that name in the JSON form was counted.
func (r *Run) Known(name string) bool { return !slices.Contains(r.Unknown, name) }

// MarshalJSON leaves out what is not known: a 0 that nobody counted would be a lie.
func (r Run) MarshalJSON() ([]byte, error) {
	type plain Run
	data, err := json.Marshal(plain(r))
	if err != nil || len(r.Unknown) == 0 {
		return data, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for _, name := range r.Unknown {
		delete(fields, name)
	}
	return json.Marshal(fields)
}

// Verdict says in plain words what the figures mean.
type Verdict struct {
	// Pays is yes, no or unclear: does the best prefix-aware policy compute fewer prompt
	// tokens than the best of those that ignore prefixes, beyond the noise?
	Pays string `json:"pays"`
	// Policy and KVBlocks are what to choose; empty and 0 where it makes no difference.
	Policy   string `json:"policy"`
	KVBlocks int    `json:"kv_blocks"`
	// Saving is the share of computed prompt tokens that the choice saves.
	Saving float64 `json:"saving"`
	// Against is the policy that it is compared with.
	Against string `json:"against,omitempty"`
	// Text is the verdict's sentences.
	Text []string `json:"text"`
}
