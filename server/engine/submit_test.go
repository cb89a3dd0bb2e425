package engine

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tailor/model/sample"
)

func TestSubmitRefusesWhatCannotBeServed(t *testing.T) {
	// 10 blocks of 4 rows, context 256, vocabulary 50.
	r := newRig(t, path, 10, 4, Config{})
	before := r.e.Stats()
	two := sample.Params{Temperature: 3, TopP: 1}
	cases := []struct {
		name string
		req  Request
		want error
		says []string
	}{
		{"empty", ask(nil, 1), ErrEmptyPrompt, nil},
		{"negative id", ask([]int32{1, 2, -1}, 1), ErrTokenRange{2, -1, 50}, []string{"2", "-1", "49"}},
		{"id of the vocabulary's size", ask([]int32{50, 1}, 1), ErrTokenRange{0, 50, 50}, []string{"0", "50", "49"}},
		{"negative length", ask([]int32{1}, -1), ErrMaxTokens{-1}, []string{"-1"}},
		{"past the context", ask(seqFrom(1, 200), 57), ErrContext{200, 57, 256}, []string{"200", "57", "256"}},
		{"prompt past the context", ask(seqFrom(1, 257), 0), ErrContext{257, 0, 256}, []string{"257", "256"}},
		{"overflow", ask(seqFrom(1, 2), math.MaxInt), ErrContext{2, math.MaxInt, 256}, nil},
		{"more blocks than the pool", ask(seqFrom(1, 40), 2), ErrTooLarge{11, 10}, []string{"11", "10"}},
		{"prompt of more blocks than the pool", ask(seqFrom(1, 41), 0), ErrTooLarge{11, 10}, nil},
		{"sampling", Request{Tokens: []int32{1}, Sampling: two}, two.Validate(), []string{"temperature", "3"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.trySubmit(c.req)
			if !reflect.DeepEqual(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %s", err, part)
				}
			}
		})
	}
	if r.turn() || r.e.Stats() != before {
		t.Errorf("refusals left something behind: %+v", r.e.Stats())
	}
}

// The last token generated takes no row: the largest requests that fit are served.
func TestSubmitTakesWhatJustFits(t *testing.T) {
	r := newRig(t, path, 10, 4, Config{})
	for _, req := range []Request{ask(seqFrom(1, 40), 1), ask(seqFrom(2, 40), 0), ask(seqFrom(3, 1), 40)} {
		r.submit(req)
	}
	r.finishAll()
	r.mustAllEqualLone(path)

	r = newRig(t, path, 64, 4, Config{})
	r.submit(ask(seqFrom(1, 200), 56))
	r.submit(ask(seqFrom(2, 256), 0))
	r.finishAll()
	r.mustAllEqualLone(path)
}

func TestSubmitRefusesPastMaxWaiting(t *testing.T) {
	r := newRig(t, path, 10, 4, Config{MaxWaiting: 2, MaxSequences: 1})
	r.submit(ask(seqFrom(1, 5), 3))
	r.submit(ask(seqFrom(2, 5), 3))
	refused := func() {
		t.Helper()
		if _, err := r.trySubmit(ask(seqFrom(3, 5), 3)); !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "2 requests") {
			t.Errorf("got %v, want the queue full at 2", err)
		}
	}
	refused()
	r.turn() // one runs, one waits
	r.submit(ask(seqFrom(3, 5), 3))
	refused()
	r.finishAll()
	r.submit(ask(seqFrom(4, 5), 3))
	r.finishAll()
	r.mustAllEqualLone(path)
}

func TestSubmitRefusesAnEndedContext(t *testing.T) {
	e := path.engine(t, 10, 4, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Submit(ctx, ask(seqFrom(1, 5), 3)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if w := e.Stats().Waiting; w != 0 {
		t.Errorf("%d wait", w)
	}
}

// What the caller does with its slices afterwards is its own affair.
func TestSubmitCopies(t *testing.T) {
	r := newRig(t, path, 10, 4, Config{})
	req := ask(seqFrom(1, 5), 8)
	req.StopTokens = []int32{48}
	want := lone(t, path, req)
	mine := req
	mine.Tokens, mine.StopTokens = slices.Clone(req.Tokens), slices.Clone(req.StopTokens)
	c := r.submit(mine)
	clear(mine.Tokens)
	mine.StopTokens[0] = want.tokens[0]
	r.finishAll()
	c.mustEqual(t, want)
}

func TestUnseededRequestsDiffer(t *testing.T) {
	r := newRig(t, path, 100, 4, Config{})
	req := ask(seqFrom(1, 5), 20)
	req.Sampling.Seed = nil
	a, b := r.submit(req), r.submit(req)
	r.finishAll()
	// By chance they are equal once in far more runs than there will ever be.
	if slices.Equal(a.tokens, b.tokens) {
		t.Errorf("both gave %v", a.tokens)
	}
	if req.Sampling.Seed != nil {
		t.Error("Submit wrote a seed into the caller's request")
	}
}
