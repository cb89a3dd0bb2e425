package router

import (
	"sync"
	"time"

	"tailor/router/policy"
)

// Outcome is how a request ended.
type Outcome string

const (
	OutcomeOK        Outcome = "ok"             // answered in full, status below 400
	OutcomeRejected  Outcome = "rejected"       // the replica answered 4xx
	OutcomeUpstream  Outcome = "upstream_error" // the replicas tried failed, or answered 5xx
	OutcomeInvalid   Outcome = "invalid"        // refused by the router: the request's fault
	OutcomeNoReplica Outcome = "no_replica"     // refused by the router: nobody to send it to
	OutcomeCancelled Outcome = "cancelled"      // the client went away
)

// Row is what the ledger keeps of a request. It holds no text of it and no salt.
type Row struct {
	Seq       uint64    `json:"seq"` // rows are numbered as they are written, from 0
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id"`
	Path      string    `json:"path"`
	Model     string    `json:"model"`
	Stream    bool      `json:"stream"`
	Salted    bool      `json:"salted"`

	Policy          string             `json:"policy"`  // or "pinned"
	Replica         string             `json:"replica"` // the last one it was sent to
	Reason          policy.Reason      `json:"reason"`
	SpilledFrom     string             `json:"spilled_from"`
	PromptTokens    int                `json:"prompt_tokens"`
	PromptBlocks    int                `json:"prompt_blocks"`
	PredictedCached int                `json:"predicted_cached_tokens"`
	Candidates      []policy.Candidate `json:"candidates"`
	Retries         int                `json:"retries"`
	Failures        []Failure          `json:"failures"` // attempts that were given up

	Status          int     `json:"status"` // sent to the client; 0 if none was
	Outcome         Outcome `json:"outcome"`
	Error           string  `json:"error"`
	AnswerBytes     int64   `json:"answer_bytes"` // passed on
	DecisionSeconds float64 `json:"decision_seconds"`
	FirstByte       float64 `json:"first_byte_seconds"` // from arrival; 0 if none came
	Seconds         float64 `json:"seconds"`
}

// Failure is an attempt that did not lead to an answer.
type Failure struct {
	Replica string `json:"replica"`
	Status  int    `json:"status"` // 0: the connection failed
	Error   string `json:"error"`
}

// ledger keeps the last rows. Safe for concurrent use.
type ledger struct {
	size int

	mu   sync.Mutex
	rows []Row // a ring: row n is at n % size
	next uint64
}

func newLedger(size int) *ledger { return &ledger{size: size} }

func (l *ledger) add(row Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row.Seq = l.next
	if len(l.rows) < l.size {
		l.rows = append(l.rows, row)
	} else {
		l.rows[l.next%uint64(l.size)] = row
	}
	l.next++
}

// last returns up to limit rows, the newest first, and how many were ever written.
func (l *ledger) last(limit int) (rows []Row, written uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows = make([]Row, min(limit, len(l.rows)))
	for i := range rows {
		rows[i] = l.rows[(l.next-1-uint64(i))%uint64(l.size)]
	}
	return rows, l.next
}
