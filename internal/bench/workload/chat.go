package workload

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// ChatConfig describes conversations under one shared system prompt, whose history grows
// by the user's turns and the model's own answers.
type ChatConfig struct {
	Target   Target
	Seed     uint64
	Sessions int
	Turns    int // of each session
	// Lengths in tokens: of the system prompt, of each turn of the user, of each answer.
	SystemTokens, UserTokens, OutputTokens int
	// Think is the mean time from an answer to the user's next turn; each is drawn
	// evenly between half of it and one and a half.
	Think time.Duration
	// Stagger is the time from one session's start to the next one's.
	Stagger time.Duration
}

// DefaultChat is 24 sessions of 6 turns with a system prompt of 256 tokens, turns of 48,
// answers of 32, 2 s to think and 250 ms between starts.
func DefaultChat() ChatConfig {
	return ChatConfig{
		Target: Bundled(), Sessions: 24, Turns: 6, SystemTokens: 256, UserTokens: 48, OutputTokens: 32,
		Think: 2 * time.Second, Stagger: 250 * time.Millisecond,
	}
}

func (c ChatConfig) settings() []setting {
	return []setting{
		{"sessions", c.Sessions, 1}, {"turns", c.Turns, 1},
		{"system_tokens", c.SystemTokens, 1}, {"user_tokens", c.UserTokens, 1}, {"output_tokens", c.OutputTokens, 1},
	}
}

// Validate names the field that makes no sense or does not fit.
func (c ChatConfig) Validate() error {
	if err := c.Target.Validate(); err != nil {
		return err
	}
	all := c.settings()
	if err := check(all); err != nil {
		return err
	}
	if err := fits(c.Target.Context, all[2:]...); err != nil {
		return err
	}
	// One turn fits; so a turn's tokens are at most the context's and all turns' fit an int
	// if there are no more turns than the context has tokens.
	if context := c.Target.Context; c.Turns > context || c.SystemTokens+c.Turns*(c.UserTokens+c.OutputTokens) > context {
		return fmt.Errorf("system_tokens %d + turns %d * (user_tokens %d + output_tokens %d) do not fit together in context %d",
			c.SystemTokens, c.Turns, c.UserTokens, c.OutputTokens, context)
	}
	const longest = 24 * time.Hour
	if c.Think < 0 || c.Think > longest {
		return fmt.Errorf("think is %v, want 0 to %v", c.Think, longest)
	}
	if c.Stagger < 0 || c.Stagger > longest {
		return fmt.Errorf("stagger is %v, want 0 to %v", c.Stagger, longest)
	}
	return c.Target.distinct("sessions", c.Sessions)
}

// Chat generates the workload. A session's first turn is the system prompt and what the
// user says; each later one continues the one before. The requests are in the order in
// which they would be sent if answers took no time, and their At is that time.
func Chat(cfg ChatConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	s := newSpeller(cfg.Target, cfg.Seed)
	system := s.text(0, cfg.SystemTokens)

	type turn struct {
		session, number int
		Request
	}
	turns := make([]turn, 0, cfg.Sessions*cfg.Turns)
	for session := range cfg.Sessions {
		at := time.Duration(session) * cfg.Stagger
		for number := range cfg.Turns {
			t := turn{session: session, number: number}
			t.Session = fmt.Sprintf("session-%d", session)
			t.MaxTokens, t.After, t.Placement = cfg.OutputTokens, -1, -1
			t.Tokens = s.text(session, cfg.UserTokens)
			if number == 0 {
				t.Tokens = slices.Concat(system, t.Tokens)
			} else {
				t.Continues = true
				t.Think = cfg.Think/2 + time.Duration(s.draw.Int64N(int64(cfg.Think)+1))
				at += t.Think
			}
			t.At = at
			turns = append(turns, t)
		}
	}
	// Stable: where nobody thinks, a session's turns stay in their order.
	slices.SortStableFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.number, b.number))
	})

	w := &Workload{Name: "chat", Seed: cfg.Seed, Timed: cfg.Think > 0 || cfg.Stagger > 0, Parameters: parameters(cfg.settings())}
	w.Parameters = append(w.Parameters, Parameter{"think", cfg.Think.String()}, Parameter{"stagger", cfg.Stagger.String()})
	last := make([]int, cfg.Sessions) // index of each session's request before
	for i, t := range turns {
		if t.Continues {
			t.After = last[t.session]
		}
		last[t.session] = i
		w.Requests = append(w.Requests, t.Request)
	}
	return w, nil
}
