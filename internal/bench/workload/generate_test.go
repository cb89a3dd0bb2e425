package workload_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"tailor/internal/bench/workload"
)

// small is a vocabulary in which random texts would often begin alike.
func small() workload.Target {
	return workload.Target{Vocab: 64, AvoidLow: 3, AvoidHigh: 5, Context: 512}
}

// generators make each workload at a size for which the reuse is worked out below.
var generators = map[string]struct {
	make   func(seed uint64) (*workload.Workload, error)
	prompt int64
	reused int64 // by an infinite cache with blocks of 16
	hits   int64
}{
	// Every prompt after the first of its group reuses the 100 tokens of the system prompt,
	// which the first one's 30 + 1 tokens complete to full blocks.
	"shared-prefix": {
		make: func(seed uint64) (*workload.Workload, error) {
			return workload.SharedPrefix(workload.SharedPrefixConfig{
				Target: small(), Seed: seed, Groups: 7, PromptsPerGroup: 9, SystemTokens: 100, QuestionTokens: 30, OutputTokens: 2})
		},
		prompt: 7 * 9 * 130, reused: 7 * 8 * 100, hits: 7 * 8,
	},
	"prefix-repetition": {
		make: func(seed uint64) (*workload.Workload, error) {
			return workload.PrefixRepetition(workload.PrefixRepetitionConfig{
				Target: small(), Seed: seed, Requests: 50, Prefixes: 12, PrefixTokens: 40, SuffixTokens: 8, OutputTokens: 1})
		},
		prompt: 50 * 48, reused: (50 - 12) * 40, hits: 50 - 12,
	},
	"churn": {
		make: func(seed uint64) (*workload.Workload, error) {
			return workload.Churn(workload.ChurnConfig{
				PrefixRepetitionConfig: workload.PrefixRepetitionConfig{
					Target: small(), Seed: seed, Requests: 80, Prefixes: 8, PrefixTokens: 64, SuffixTokens: 10, OutputTokens: 1},
				Replicas: 3})
		},
		prompt: 80 * 74, reused: (80 - 8) * 64, hits: 80 - 8,
	},
	"all-fits": {
		make: func(seed uint64) (*workload.Workload, error) {
			c := workload.DefaultAllFits()
			c.Seed = seed
			return workload.AllFits(c)
		},
		prompt: 100 * 272, reused: 96 * 256, hits: 96,
	},
	"no-reuse": {
		make: func(seed uint64) (*workload.Workload, error) {
			return workload.NoReuse(workload.NoReuseConfig{Target: small(), Seed: seed, Requests: 56, PromptTokens: 70, OutputTokens: 20})
		},
		prompt: 56 * 70,
	},
	// One system prompt of 32, turns of 10 with answers of 6. Of the session's own history
	// a turn finds all that fills blocks: 32 + 10 + 6 - 1 = 47 rows leave 32 tokens to the
	// second turn, 63 leave 48 to the third. A first turn finds the system prompt.
	"chat": {
		make: func(seed uint64) (*workload.Workload, error) {
			return workload.Chat(workload.ChatConfig{
				Target: small(), Seed: seed, Sessions: 20, Turns: 3, SystemTokens: 32, UserTokens: 10, OutputTokens: 6,
				Think: time.Second, Stagger: 100 * time.Millisecond})
		},
		prompt: 20 * (42 + 58 + 74), reused: 19*32 + 20*(32+48), hits: 59,
	},
}

func TestGeneratorsReuseExactlyWhatTheyMean(t *testing.T) {
	for name, g := range generators {
		for seed := range uint64(20) {
			w, err := g.make(seed)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if w.Name != name || w.Seed != seed || len(w.Parameters) == 0 {
				t.Errorf("%s: named %q with seed %d, want %d, and parameters %v", name, w.Name, w.Seed, seed, w.Parameters)
			}
			sent, err := w.Sent(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := workload.Infinite(sent, 16)
			if got.Prompt != g.prompt || got.Reused != g.reused || got.Hits != g.hits {
				t.Errorf("%s, seed %d: %+v, want %d prompt tokens, %d reused by %d requests", name, seed, got, g.prompt, g.reused, g.hits)
			}
		}
	}
}

func TestGeneratorsAreReproducible(t *testing.T) {
	for name, g := range generators {
		a, _ := g.make(5)
		b, _ := g.make(5)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two workloads of one seed differ", name)
		}
		if c, _ := g.make(6); reflect.DeepEqual(a.Requests, c.Requests) {
			t.Errorf("%s: seeds 5 and 6 make the same requests", name)
		}
	}
}

func TestGeneratedRequestsFitTheirTarget(t *testing.T) {
	for name, g := range generators {
		if name == "all-fits" {
			continue // made for another target
		}
		w, _ := g.make(1)
		sent, _ := w.Sent(nil, nil)
		target := small()
		for i, r := range w.Requests {
			for _, id := range r.Tokens {
				if int(id) < target.AvoidLow || int(id) >= target.Vocab-target.AvoidHigh {
					t.Fatalf("%s: request %d has token %d", name, i, id)
				}
			}
			if n := len(sent[i].Prompt) + r.MaxTokens; n > target.Context {
				t.Errorf("%s: request %d has %d tokens in context %d", name, i, n, target.Context)
			}
			if r.MaxTokens < 1 || r.Placement != -1 || r.Text != "" || r.Body != nil {
				t.Errorf("%s: request %d: %+v", name, i, r)
			}
			if r.After >= i || r.After < -1 || r.Continues != (r.After >= 0) {
				t.Errorf("%s: request %d after %d, continues: %v", name, i, r.After, r.Continues)
			}
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for name, err := range map[string]error{
		"shared-prefix":     workload.DefaultSharedPrefix().Validate(),
		"prefix-repetition": workload.DefaultPrefixRepetition().Validate(),
		"hot":               workload.DefaultHot().Validate(),
		"churn":             workload.DefaultChurn().Validate(),
		"chat":              workload.DefaultChat().Validate(),
		"no-reuse":          workload.DefaultNoReuse().Validate(),
		"all-fits":          workload.DefaultAllFits().Validate(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAllFitsFits(t *testing.T) {
	w, err := workload.AllFits(workload.DefaultAllFits())
	if err != nil {
		t.Fatal(err)
	}
	sent, _ := w.Sent(nil, nil)
	all := workload.Infinite(sent, 16)
	if all.Blocks != 164 { // 4 * 256/16 + 100 * 16/16, as its comment says
		t.Errorf("leaves %d blocks", all.Blocks)
	}
	if got := workload.LRU(sent, 16, 200); got != all {
		t.Errorf("200 blocks: %+v, want %+v", got, all)
	}
}

func TestHotFollowsItsExponent(t *testing.T) {
	count := func(exponent float64) []int {
		c := workload.DefaultHot()
		c.Requests, c.Exponent, c.Seed = 4000, exponent, 3
		c.PrefixTokens, c.SuffixTokens = 1, 1
		w, err := workload.Hot(c)
		if err != nil {
			t.Fatal(err)
		}
		n := make([]int, c.Prefixes)
		for _, r := range w.Requests {
			n[r.Tokens[0]]++
		}
		return n
	}
	// With exponent 1 the shares are 1/k of 1/H(50) = 1/4.4992.
	n := count(1)
	for k, want := range map[int]float64{1: 889, 2: 445, 5: 178} {
		if got := float64(n[k-1]); got < 0.8*want || got > 1.2*want {
			t.Errorf("exponent 1: prefix %d has %v of 4000 requests, want about %v", k, got, want)
		}
	}
	for k, got := range count(0) { // 80 each, standard deviation 9
		if got < 35 || got > 125 {
			t.Errorf("exponent 0: prefix %d has %d of 4000 requests, want about 80", k, got)
		}
	}
}

func TestChatTimes(t *testing.T) {
	c := workload.DefaultChat()
	w, err := workload.Chat(c)
	if err != nil {
		t.Fatal(err)
	}
	if !w.Timed || len(w.Requests) != c.Sessions*c.Turns {
		t.Fatalf("timed %v, %d requests", w.Timed, len(w.Requests))
	}
	first := 0
	for i, r := range w.Requests {
		if i > 0 && r.At < w.Requests[i-1].At {
			t.Fatalf("request %d is before %d", i, i-1)
		}
		if r.After < 0 {
			if r.At != time.Duration(first)*c.Stagger || len(r.Tokens) != c.SystemTokens+c.UserTokens {
				t.Errorf("session %d starts at %v with %d tokens", first, r.At, len(r.Tokens))
			}
			first++
			continue
		}
		before := w.Requests[r.After]
		if before.Session != r.Session || r.At != before.At+r.Think || len(r.Tokens) != c.UserTokens {
			t.Errorf("request %d: %v after %v of %q, thinks %v; %d tokens", i, r.At, before.At, before.Session, r.Think, len(r.Tokens))
		}
		if r.Think < c.Think/2 || r.Think > c.Think*3/2 {
			t.Errorf("request %d thinks %v", i, r.Think)
		}
	}
	if first != c.Sessions {
		t.Errorf("%d sessions", first)
	}
	c.Think, c.Stagger = 0, 0
	if w, _ = workload.Chat(c); w.Timed || w.Requests[c.Sessions].After != 0 {
		t.Errorf("without times: timed %v, second turn after %d", w.Timed, w.Requests[c.Sessions].After)
	}
}

func TestChurnSaysWhen(t *testing.T) {
	w, err := workload.Churn(workload.DefaultChurn())
	if err != nil {
		t.Fatal(err)
	}
	want := []workload.Change{{Sent: 60}, {Sent: 120, Add: true}, {Sent: 180, Remove: 1}}
	if w.Replicas != 4 || !reflect.DeepEqual(w.Churn, want) {
		t.Errorf("%d replicas, %+v", w.Replicas, w.Churn)
	}
}

func TestGeneratorsRefuse(t *testing.T) {
	shared := func(change func(*workload.SharedPrefixConfig)) error {
		c := workload.DefaultSharedPrefix()
		change(&c)
		_, err := workload.SharedPrefix(c)
		return err
	}
	hot := func(change func(*workload.HotConfig)) error {
		c := workload.DefaultHot()
		change(&c)
		_, err := workload.Hot(c)
		return err
	}
	chat := func(change func(*workload.ChatConfig)) error {
		c := workload.DefaultChat()
		change(&c)
		_, err := workload.Chat(c)
		return err
	}
	churn := func(changes ...workload.Change) error {
		c := workload.DefaultChurn()
		c.Changes = changes
		_, err := workload.Churn(c)
		return err
	}
	none := func(change func(*workload.NoReuseConfig)) error {
		c := workload.DefaultNoReuse()
		change(&c)
		_, err := workload.NoReuse(c)
		return err
	}
	for _, c := range []struct {
		err  error
		says []string
	}{
		{shared(func(c *workload.SharedPrefixConfig) { c.Groups = 0 }), []string{"shared-prefix", "groups is 0"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.OutputTokens = 500 }),
			[]string{"system_tokens 512 + question_tokens 64 + output_tokens 500", "context 1024"}},
		{shared(func(c *workload.SharedPrefixConfig) {
			c.SystemTokens, c.QuestionTokens, c.OutputTokens = 1<<62, 1<<62, 1<<62
		}), []string{"context 1024"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.Groups = 5000 }), []string{"groups is 5000", "4095"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.PromptsPerGroup = 5000 }), []string{"prompts_per_group is 5000"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.Target.Vocab = 1 }), []string{"vocab is 1"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.Target.AvoidLow = -1 }), []string{"avoid_low is -1"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.Target.AvoidHigh = -1 }), []string{"avoid_high is -1"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.Target.AvoidLow, c.Target.AvoidHigh = 4000, 1<<62 }), []string{"avoid_low 4000"}},
		{shared(func(c *workload.SharedPrefixConfig) { c.Target.Context = 0 }), []string{"context is 0"}},
		{hot(func(c *workload.HotConfig) { c.Exponent = -0.5 }), []string{"exponent is -0.5"}},
		{hot(func(c *workload.HotConfig) { c.Requests = 4096 }), []string{"requests is 4096"}},
		{chat(func(c *workload.ChatConfig) { c.Turns = 10 }), []string{"turns 10", "context 1024"}},
		{chat(func(c *workload.ChatConfig) { c.Turns = 1 << 62 }), []string{"context 1024"}},
		{chat(func(c *workload.ChatConfig) { c.Think = -time.Second }), []string{"think is -1s"}},
		{chat(func(c *workload.ChatConfig) { c.Stagger = 1 << 62 }), []string{"stagger is"}},
		{churn(workload.Change{Sent: 9}, workload.Change{Sent: 8}), []string{"changes[1].sent is 8"}},
		{churn(workload.Change{Sent: 241}), []string{"changes[0].sent is 241", "240"}},
		{churn(workload.Change{Remove: 4}), []string{"changes[0].remove is 4"}},
		{churn(workload.Change{}, workload.Change{}), []string{"changes[1].remove is 0"}},
		{churn(workload.Change{}, workload.Change{Remove: 1}, workload.Change{Remove: 2}, workload.Change{Remove: 3}), []string{"changes[3]", "last replica"}},
		{none(func(c *workload.NoReuseConfig) { c.Requests = 4096 }), []string{"requests is 4096"}},
		{none(func(c *workload.NoReuseConfig) { c.PromptTokens = 1010 }), []string{"prompt_tokens 1010 + output_tokens 16", "context 1024"}},
	} {
		if c.err == nil {
			t.Errorf("no error, want one that says %q", c.says)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(c.err.Error(), part) {
				t.Errorf("%q does not say %q", c.err, part)
			}
		}
	}
}
