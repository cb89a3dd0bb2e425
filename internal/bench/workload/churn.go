package workload

import (
	"fmt"
	"strconv"
	"strings"
)

// ChurnConfig describes repeated prefixes while replicas leave and join.
type ChurnConfig struct {
	PrefixRepetitionConfig
	// Replicas is how many there are at the start.
	Replicas int
	// Changes are in the order of Sent. Nil: replica 0 leaves after a quarter of the
	// requests, a fresh one joins after half, and replica 1 leaves after three quarters.
	Changes []Change
}

// DefaultChurn is 240 requests over 24 prefixes with 256 + 32 tokens on 4 replicas, and
// answers of 8.
func DefaultChurn() ChurnConfig {
	return ChurnConfig{
		PrefixRepetitionConfig: PrefixRepetitionConfig{Target: Bundled(), Requests: 240, Prefixes: 24, PrefixTokens: 256, SuffixTokens: 32, OutputTokens: 8},
		Replicas:               4,
	}
}

func (c ChurnConfig) changes() []Change {
	if c.Changes != nil {
		return c.Changes
	}
	return []Change{{Sent: c.Requests / 4}, {Sent: c.Requests / 2, Add: true}, {Sent: c.Requests * 3 / 4, Remove: 1}}
}

// Validate names the field that makes no sense or does not fit.
func (c ChurnConfig) Validate() error {
	if err := c.PrefixRepetitionConfig.Validate(); err != nil {
		return err
	}
	if c.Replicas < 2 {
		return fmt.Errorf("replicas is %d, want 2 or more", c.Replicas)
	}
	removed := map[int]bool{}
	there, sent := c.Replicas, 0
	for i, change := range c.changes() {
		if change.Sent < sent || change.Sent > c.Requests {
			return fmt.Errorf("changes[%d].sent is %d, want %d to requests %d", i, change.Sent, sent, c.Requests)
		}
		sent = change.Sent
		if change.Add {
			there++
			continue
		}
		if change.Remove < 0 || change.Remove >= c.Replicas || removed[change.Remove] {
			return fmt.Errorf("changes[%d].remove is %d, want one of the %d replicas that is still there", i, change.Remove, c.Replicas)
		}
		removed[change.Remove] = true
		if there--; there == 0 {
			return fmt.Errorf("changes[%d].remove is %d: that would be the last replica", i, change.Remove)
		}
	}
	return nil
}

// Churn generates the workload.
func Churn(cfg ChurnConfig) (*Workload, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("churn: %w", err)
	}
	w := cfg.generate("churn", evenly(cfg.Requests, cfg.Prefixes))
	w.Replicas = cfg.Replicas
	w.Churn = cfg.changes()
	var list []string
	for _, change := range w.Churn {
		if change.Add {
			list = append(list, fmt.Sprintf("%d:+1", change.Sent))
		} else {
			list = append(list, fmt.Sprintf("%d:-#%d", change.Sent, change.Remove))
		}
	}
	w.Parameters = append(w.Parameters,
		Parameter{Name: "replicas", Value: strconv.Itoa(cfg.Replicas)},
		Parameter{Name: "changes", Value: strings.Join(list, " ")})
	return w, nil
}
