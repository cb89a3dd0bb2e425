package workload

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Format is how a recorded trace is written. See Mooncake, OpenAILog and AgentTrace.
type Format string

const (
	FormatMooncake Format = "mooncake"
	FormatOpenAI   Format = "openai"
	FormatAgent    Format = "lmcache"
)

// TraceConfig says how a recorded trace becomes a workload.
type TraceConfig struct {
	// Format empty: it is detected from the first row.
	Format Format
	// Target's ids spell a Mooncake trace, its context bounds the prompts.
	Target Target
	// Seed draws the tokens of a Mooncake trace.
	Seed uint64
	// Limit is how many requests are taken, the earliest ones; 0: all.
	Limit int
	// MaxOutput bounds the tokens of each answer. For request logs 0 leaves what each
	// body asks for.
	MaxOutput int
	// ScaleBlocks is how many tokens a block of a Mooncake trace becomes, which has 512.
	ScaleBlocks int
	// Count counts the tokens of a text, for agent traces. Nil: answers are taken to have
	// a token for every 4 bytes, and prompts are not cut to the context.
	Count func(string) int
}

// DefaultTrace takes all requests of whatever format, with answers of at most 16 tokens and
// Mooncake's blocks scaled to 16.
func DefaultTrace() TraceConfig {
	return TraceConfig{Target: Bundled(), MaxOutput: 16, ScaleBlocks: 16}
}

// validate names the field that makes no sense for the format.
func (c TraceConfig) validate(f Format) error {
	if err := c.Target.Validate(); err != nil {
		return err
	}
	if err := check([]setting{{"limit", c.Limit, 0}, {"max_output", c.MaxOutput, 0}}); err != nil {
		return err
	}
	switch f {
	case FormatMooncake:
		if c.ScaleBlocks < 1 || c.ScaleBlocks > mooncakeBlock {
			return fmt.Errorf("scale_blocks is %d, want 1 to %d", c.ScaleBlocks, mooncakeBlock)
		}
		fallthrough
	case FormatAgent:
		if c.MaxOutput < 1 || c.MaxOutput >= c.Target.Context {
			return fmt.Errorf("max_output is %d, want 1 to %d, to leave room for a prompt in context %d",
				c.MaxOutput, c.Target.Context-1, c.Target.Context)
		}
	case FormatOpenAI:
	default:
		return fmt.Errorf("format is %q, want %s, %s or %s", f, FormatMooncake, FormatOpenAI, FormatAgent)
	}
	return nil
}

// OpenTrace reads a trace: a file, or a folder whose *.jsonl files belong together.
func OpenTrace(path string, cfg TraceConfig) (*Workload, error) {
	in, err := fileRows(path)
	if err != nil {
		return nil, err
	}
	defer in.close()
	format := cfg.Format
	if format == "" {
		if format, err = detect(in, path); err != nil {
			return nil, err
		}
	}
	return cfg.read(format, in, path)
}

// detect tells the format from the names of the first row's fields.
func detect(in *rows, path string) (Format, error) {
	first, err := in.peek()
	switch {
	case errors.Is(err, io.EOF):
		return "", noRequests(path)
	case err != nil:
		return "", err
	case first.has("hash_ids"):
		return FormatMooncake, nil
	case first.has("messages"), first.has("prompt"), first.has("body"):
		return FormatOpenAI, nil
	case first.has("input"):
		return FormatAgent, nil
	}
	return "", first.fail("", "has none of hash_ids (Mooncake), messages, prompt, body (OpenAI) and input (LMCache) among its fields: %s", first.names())
}

func noRequests(path string) error {
	return &TraceError{File: path, Err: errors.New("has no requests")}
}

// read makes the workload of what in yields.
func (c TraceConfig) read(format Format, in *rows, path string) (*Workload, error) {
	if err := c.validate(format); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	out := &earliest{limit: c.Limit}
	w := &Workload{
		Name:       string(format),
		Seed:       c.Seed,
		Parameters: []Parameter{{"trace", filepath.Base(path)}, {"max_output", strconv.Itoa(c.MaxOutput)}},
	}
	var err error
	switch format {
	case FormatMooncake:
		err = c.mooncake(in, out, w)
	case FormatOpenAI:
		err = c.openAI(in, out, w)
	case FormatAgent:
		err = c.agent(in, out, w)
	}
	if err != nil {
		return nil, err
	}
	if len(out.kept) == 0 {
		return nil, noRequests(path)
	}
	if c.Limit > 0 {
		w.Parameters = append(w.Parameters, Parameter{"limit", strconv.Itoa(c.Limit)})
	}
	w.Requests = out.requests()
	return w, nil
}

// earliest keeps the first requests by time, all of them with limit 0, and of those at the
// same time in the order in which they came. It holds twice as many as it keeps at most.
type earliest struct {
	limit int
	kept  []timed
}

// timed is a request and when it was sent, in nanoseconds since any start.
type timed struct {
	at int64
	Request
}

func (e *earliest) add(at int64, r Request) {
	r.After, r.Placement = -1, -1
	e.kept = append(e.kept, timed{at: at, Request: r})
	if e.limit > 0 && len(e.kept) >= 2*e.limit {
		e.settle()
	}
}

func (e *earliest) settle() {
	slices.SortStableFunc(e.kept, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	if e.limit > 0 && len(e.kept) > e.limit {
		clear(e.kept[e.limit:])
		e.kept = e.kept[:e.limit]
	}
}

// full says that there are as many as asked for: later ones change nothing.
func (e *earliest) full() bool { return e.limit > 0 && len(e.kept) >= e.limit }

// requests returns them with their times from the first one on.
func (e *earliest) requests() []Request {
	e.settle()
	list := make([]Request, len(e.kept))
	for i, k := range e.kept {
		list[i] = k.Request
		list[i].At = time.Duration(k.at - e.kept[0].at)
	}
	return list
}
