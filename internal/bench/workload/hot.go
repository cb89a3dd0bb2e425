package workload

import (
	"fmt"
	"math"
	"sort"
	"strconv"
)

// HotConfig describes requests over prefixes some of which are asked for much more often:
// the k-th most popular with a probability proportional to k^-Exponent (Zipf).
type HotConfig struct {
	PrefixRepetitionConfig
	// Exponent 0 makes all prefixes equally likely, 10 the first one nearly certain.
	Exponent float64
}

// DefaultHot is 300 requests over 50 prefixes with 256 + 32 tokens, exponent 1.1 (the first
// prefix has a quarter of the requests), and answers of 8.
func DefaultHot() HotConfig {
	return HotConfig{
		PrefixRepetitionConfig: PrefixRepetitionConfig{Target: Bundled(), Requests: 300, Prefixes: 50, PrefixTokens: 256, SuffixTokens: 32, OutputTokens: 8},
		Exponent:               1.1,
	}
}

// Validate names the field that makes no sense or does not fit.
func (c HotConfig) Validate() error {
	if err := c.validate(); err != nil {
		return err
	}
	if !(c.Exponent >= 0 && c.Exponent <= 10) {
		return fmt.Errorf("exponent is %v, want 0 to 10", c.Exponent)
	}
	return c.Target.distinct("requests", c.Requests) // all of them may have the same prefix
}

// Hot generates the workload.
func Hot(cfg HotConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("hot: %w", err)
	}
	w := cfg.generate("hot", func(s *speller) []int {
		order := make([]int, cfg.Requests)
		upTo := zipf(cfg.Prefixes, cfg.Exponent)
		for i := range order {
			at := s.draw.Float64() * upTo[len(upTo)-1]
			order[i] = min(sort.Search(len(upTo), func(k int) bool { return upTo[k] > at }), len(upTo)-1)
		}
		return order
	})
	w.Parameters = append(w.Parameters, Parameter{Name: "exponent", Value: strconv.FormatFloat(cfg.Exponent, 'g', -1, 64)})
	return w, nil
}

// zipf returns the running sum of the weights of n prefixes. rand.Zipf has no exponents of
// 1 and below, which measured traffic often shows.
func zipf(n int, exponent float64) []float64 {
	upTo := make([]float64, n)
	sum := 0.0
	for k := range upTo {
		sum += math.Pow(float64(k+1), -exponent)
		upTo[k] = sum
	}
	return upTo
}
