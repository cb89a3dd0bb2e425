package workload

import (
	"fmt"
	"slices"
)

// PrefixRepetitionConfig describes requests that repeat a few prefixes equally often, as
// vLLM's prefix_repetition data set does. They come in random order.
type PrefixRepetitionConfig struct {
	Target   Target
	Seed     uint64
	Requests int
	Prefixes int
	// Lengths in tokens.
	PrefixTokens, SuffixTokens, OutputTokens int
}

// DefaultPrefixRepetition is 200 requests over 10 prefixes with 256 + 64 tokens and answers
// of 16.
func DefaultPrefixRepetition() PrefixRepetitionConfig {
	return PrefixRepetitionConfig{Target: Bundled(), Requests: 200, Prefixes: 10, PrefixTokens: 256, SuffixTokens: 64, OutputTokens: 16}
}

func (c PrefixRepetitionConfig) settings() []setting {
	return []setting{
		{"requests", c.Requests, 1}, {"prefixes", c.Prefixes, 1},
		{"prefix_tokens", c.PrefixTokens, 1}, {"suffix_tokens", c.SuffixTokens, 1}, {"output_tokens", c.OutputTokens, 1},
	}
}

// Validate names the field that makes no sense or does not fit.
func (c PrefixRepetitionConfig) Validate() error {
	if err := c.validate(); err != nil {
		return err
	}
	return c.Target.distinct("requests/prefixes", (c.Requests-1)/c.Prefixes+1)
}

// validate checks all but how many suffixes follow one prefix.
func (c PrefixRepetitionConfig) validate() error {
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
	return c.Target.distinct("prefixes", c.Prefixes)
}

// PrefixRepetition generates the workload.
func PrefixRepetition(cfg PrefixRepetitionConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prefix-repetition: %w", err)
	}
	return cfg.generate("prefix-repetition", evenly(cfg.Requests, cfg.Prefixes)), nil
}

// evenly gives requests to prefixes in turn.
func evenly(requests, prefixes int) func(*speller) []int {
	return func(s *speller) []int {
		order := make([]int, requests)
		for i := range order {
			order[i] = i % prefixes
		}
		s.draw.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		return order
	}
}

// generate makes one request for each prefix number that choose returns.
func (c PrefixRepetitionConfig) generate(name string, choose func(*speller) []int) *Workload {
	s := newSpeller(c.Target, c.Seed)
	prefixes := make([][]int32, c.Prefixes)
	for i := range prefixes {
		prefixes[i] = s.text(i, c.PrefixTokens)
	}
	w := &Workload{Name: name, Seed: c.Seed, Parameters: parameters(c.settings())}
	suffixes := make([]int, c.Prefixes) // so far
	for _, p := range choose(s) {
		w.Requests = append(w.Requests, Request{
			Tokens:    slices.Concat(prefixes[p], s.text(suffixes[p], c.SuffixTokens)),
			MaxTokens: c.OutputTokens,
			After:     -1,
			Session:   fmt.Sprintf("prefix-%d", p),
			Placement: -1,
		})
		suffixes[p]++
	}
	return w
}

// SharedPrefixConfig describes groups of questions with a system prompt each, as sglang's
// generated-shared-prefix benchmark has them, scaled to a context of 1024.
type SharedPrefixConfig struct {
	Target Target
	Seed   uint64
	// Groups is how many system prompts there are, PromptsPerGroup how many questions
	// are asked under each. The requests come in random order.
	Groups, PromptsPerGroup int
	// Lengths in tokens.
	SystemTokens, QuestionTokens, OutputTokens int
}

// DefaultSharedPrefix is 16 groups of 16 prompts with 512 + 64 tokens and answers of 16.
func DefaultSharedPrefix() SharedPrefixConfig {
	return SharedPrefixConfig{Target: Bundled(), Groups: 16, PromptsPerGroup: 16, SystemTokens: 512, QuestionTokens: 64, OutputTokens: 16}
}

func (c SharedPrefixConfig) settings() []setting {
	return []setting{
		{"groups", c.Groups, 1}, {"prompts_per_group", c.PromptsPerGroup, 1},
		{"system_tokens", c.SystemTokens, 1}, {"question_tokens", c.QuestionTokens, 1}, {"output_tokens", c.OutputTokens, 1},
	}
}

// Validate names the field that makes no sense or does not fit.
func (c SharedPrefixConfig) Validate() error {
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
	if err := c.Target.distinct("groups", c.Groups); err != nil {
		return err
	}
	return c.Target.distinct("prompts_per_group", c.PromptsPerGroup)
}

// SharedPrefix generates the workload.
func SharedPrefix(cfg SharedPrefixConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("shared-prefix: %w", err)
	}
	same := PrefixRepetitionConfig{
		Target: cfg.Target, Seed: cfg.Seed, Requests: cfg.Groups * cfg.PromptsPerGroup, Prefixes: cfg.Groups,
		PrefixTokens: cfg.SystemTokens, SuffixTokens: cfg.QuestionTokens, OutputTokens: cfg.OutputTokens,
	}
	w := same.generate("shared-prefix", evenly(same.Requests, same.Prefixes))
	w.Parameters = parameters(cfg.settings())
	return w, nil
}
