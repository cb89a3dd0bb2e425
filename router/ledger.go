package router

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
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
	OutcomeCut       Outcome = "cut"            // the router stopped before the answer was complete
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
	Hedged          string             `json:"hedged"`   // the replica that was asked too, and lost
	Failures        []Failure          `json:"failures"` // attempts that were given up

	// Once an answer has begun: prompt_tokens = cached_tokens + computed_tokens, and
	// computed_tokens is the sum of lost. Before that all of these are 0.
	CachedFrom     CachedFrom `json:"cached_from"`
	CachedTokens   int        `json:"cached_tokens"` // delivered
	ComputedTokens int        `json:"computed_tokens"`
	MissReason     string     `json:"miss_reason"`  // the replica's
	Drift          int        `json:"drift_tokens"` // predicted minus delivered, in whole blocks
	Lost           Lost       `json:"lost"`

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

// ledger keeps the last rows, and writes them all to a file if there is one.
//
//   - While run is running it writes; who adds a row does not wait. After that, while the
//     last requests end, rows are written as they are added.
//   - Rows are written in the order of their numbers.
//   - Safe for concurrent use.
type ledger struct {
	size int
	file io.Writer // nil: none
	log  *slog.Logger
	wake chan struct{} // rows are pending

	writing sync.Mutex // of file; before mu

	mu      sync.Mutex
	rows    []Row // a ring: row n is at n % size
	next    uint64
	pending []Row // to be written
	running bool
}

func newLedger(size int, file io.Writer, log *slog.Logger) *ledger {
	return &ledger{size: size, file: file, log: log, wake: make(chan struct{}, 1)}
}

func (l *ledger) add(row Row) {
	l.mu.Lock()
	row.Seq = l.next
	if len(l.rows) < l.size {
		l.rows = append(l.rows, row)
	} else {
		l.rows[l.next%uint64(l.size)] = row
	}
	l.next++
	if l.file == nil {
		l.mu.Unlock()
		return
	}
	l.pending = append(l.pending, row)
	running := l.running
	l.mu.Unlock()
	if !running {
		l.flush()
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// run writes rows until ctx ends.
func (l *ledger) run(ctx context.Context) {
	l.setRunning(true)
	defer l.flush()
	defer l.setRunning(false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.flush()
		}
	}
}

func (l *ledger) setRunning(running bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = running
}

// flush writes what is pending.
func (l *ledger) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	rows := l.pending
	l.pending = nil
	l.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for i := range rows {
		if err := encoder.Encode(&rows[i]); err != nil {
			panic("router: a row does not marshal: " + err.Error())
		}
	}
	if _, err := l.file.Write(lines.Bytes()); err != nil {
		l.log.Error("rows of the ledger are lost", "rows", len(rows), "error", err)
	}
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
