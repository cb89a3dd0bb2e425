package workload

import "fmt"

// NoReuseConfig describes prompts that share nothing: no policy can save anything.
type NoReuseConfig struct {
	Target   Target
	Seed     uint64
	Requests int
	// Lengths in tokens.
	PromptTokens, OutputTokens int
}

// DefaultNoReuse is 100 prompts of 320 tokens, and answers of 16.
func DefaultNoReuse() NoReuseConfig {
	return NoReuseConfig{Target: Bundled(), Requests: 100, PromptTokens: 320, OutputTokens: 16}
}

func (c NoReuseConfig) settings() []setting {
	return []setting{{"requests", c.Requests, 1}, {"prompt_tokens", c.PromptTokens, 1}, {"output_tokens", c.OutputTokens, 1}}
}

// Validate names the field that makes no sense or does not fit.
func (c NoReuseConfig) Validate() error {
	if err := c.Target.Validate(); err != nil {
		return err
	}
	all := c.settings()
	if err := check(all); err != nil {
		return err
	}
	if err := fits(c.Target.Context, all[1:]...); err != nil {
		return err
	}
	return c.Target.distinct("requests", c.Requests)
}

// NoReuse generates the workload.
func NoReuse(cfg NoReuseConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("no-reuse: %w", err)
	}
	w := &Workload{Name: "no-reuse", Seed: cfg.Seed, Parameters: parameters(cfg.settings())}
	s := newSpeller(cfg.Target, cfg.Seed)
	for i := range cfg.Requests {
		w.Requests = append(w.Requests, Request{
			Tokens:    s.text(i, cfg.PromptTokens),
			MaxTokens: cfg.OutputTokens,
			After:     -1,
			Placement: -1,
		})
	}
	return w, nil
}

// DefaultAllFits is 100 requests over 4 prefixes with 256 + 16 tokens, and answers of 4.
// All together leave 164 blocks of 16 tokens, so nothing is evicted from a cache of 200.
func DefaultAllFits() PrefixRepetitionConfig {
	return PrefixRepetitionConfig{Target: Bundled(), Requests: 100, Prefixes: 4, PrefixTokens: 256, SuffixTokens: 16, OutputTokens: 4}
}

// AllFits generates requests for one replica that keeps all of them: every policy must do
// equally well on it.
func AllFits(cfg PrefixRepetitionConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("all-fits: %w", err)
	}
	w := cfg.generate("all-fits", evenly(cfg.Requests, cfg.Prefixes))
	w.Replicas = 1
	return w, nil
}
