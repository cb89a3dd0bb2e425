package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tailor/internal/bench/workload"
	"tailor/model"
	"tailor/model/tokenizer"
	"tailor/weights"
)

// given tells whether an option was set, on the command line to whatever it is, or by a file
// or the environment to another value than its default: a file as --print-config prints it
// names them all.
func given(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f.Changed || f.Value.String() != f.DefValue
}

// workloadFlags say what is sent. A flag that is not given leaves the workload's own default,
// and one that the workload does not have is refused.
type workloadFlags struct {
	name, trace, format string
	seed                uint64
	numbers             map[string]*int
	exponent            float64
	think               time.Duration
}

const workloadEngine = "engine"

var workloads = []string{
	"lesson", "shared-prefix", "prefix-repetition", "chat", "no-reuse", "all-fits", "hot", "churn", workloadEngine,
}

// workloadNumbers are the flags that count something, with their help.
var workloadNumbers = []struct{ flag, usage string }{
	{"requests", "number of requests: prefix-repetition, hot, churn, no-reuse, all-fits"},
	{"prefixes", "distinct prefixes: prefix-repetition, hot, churn, all-fits; lesson: 5 or 20"},
	{"groups", "shared-prefix: groups of requests, each with a prefix of its own"},
	{"prompts-per-group", "shared-prefix: requests in a group"},
	{"sessions", "chat: conversations"},
	{"turns", "chat: turns of a conversation"},
	{"prefix-tokens", "tokens of what is shared: a prefix or system prompt"},
	{"suffix-tokens", "tokens of what is not: a suffix, question or turn; no-reuse: the whole prompt"},
	{"output-tokens", "tokens of each answer; trace: at most"},
	{"scale-blocks", "trace of Mooncake: tokens that a block becomes, instead of 512"},
	{"max-requests", "trace: how many requests are taken, the earliest; 0: all"},
}

func (f *workloadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "workload", "lesson", strings.Join(workloads, ", "))
	flags.StringVar(&f.trace, "trace", "", "replay this log instead: a JSONL file, or a folder of them")
	flags.StringVar(&f.format, "trace-format", "", "trace: mooncake, openai (bodies of requests) or lmcache (agent traces); default: seen from its first row")
	flags.Uint64Var(&f.seed, "seed", 1, "of all that is random; the same seed makes the same requests at the same times")
	f.numbers = map[string]*int{}
	for _, n := range workloadNumbers {
		f.numbers[n.flag] = flags.Int(n.flag, 0, n.usage)
	}
	flags.Float64Var(&f.exponent, "exponent", 0, "hot: of the popularity; the k-th prefix is asked for in proportion to k^-exponent")
	flags.DurationVar(&f.think, "think", 0, "chat: mean time from an answer to the next turn")
}

// workloadModel is what a workload must fit.
type workloadModel struct {
	target workload.Target
	count  func(text string) int // tokens; nil: not known
}

// choice is which flags a workload has, and where they go.
type choice struct {
	numbers  map[string]*int
	exponent *float64
	think    *time.Duration
	make     func() (*workload.Workload, error)
}

// make generates or reads the workload for a model of that shape. replicas is what the
// command line says of them; 0: nothing.
func (f *workloadFlags) make(cmd *cobra.Command, m workloadModel, replicas int) (*workload.Workload, error) {
	what := "--workload " + f.name
	if f.trace != "" {
		if what = "--trace " + f.trace; given(cmd, "workload") {
			return nil, misuse(cmd, "--trace %s and --workload %s: give one of them", f.trace, f.name)
		}
	}
	c, err := f.choose(cmd, m, replicas)
	if err != nil {
		return nil, err
	}
	for _, n := range workloadNumbers {
		if !given(cmd, n.flag) {
			continue
		}
		to := c.numbers[n.flag]
		if to == nil {
			return nil, misuse(cmd, "--%s %d: %s has no such setting", n.flag, *f.numbers[n.flag], what)
		}
		*to = *f.numbers[n.flag]
	}
	if given(cmd, "exponent") {
		if c.exponent == nil {
			return nil, misuse(cmd, "--exponent %v: %s has no such setting", f.exponent, what)
		}
		*c.exponent = f.exponent
	}
	if given(cmd, "think") {
		if c.think == nil {
			return nil, misuse(cmd, "--think %v: %s has no such setting", f.think, what)
		}
		*c.think = f.think
	}
	if f.trace == "" && f.format != "" {
		return nil, misuse(cmd, "--trace-format %s: it is for --trace", f.format)
	}
	w, err := c.make()
	if err != nil {
		return nil, misuse(cmd, "%s: %w", what, err)
	}
	return w, nil
}

func (f *workloadFlags) choose(cmd *cobra.Command, m workloadModel, replicas int) (choice, error) {
	if f.trace != "" {
		return f.chooseTrace(cmd, m)
	}
	switch f.name {
	case "lesson":
		prefixes := 5
		return choice{
			numbers: map[string]*int{"prefixes": &prefixes},
			make: func() (*workload.Workload, error) {
				if prefixes != 5 && prefixes != 20 {
					return nil, fmt.Errorf("--prefixes %d: the lesson has 5 or 20", prefixes)
				}
				w, err := workload.Lesson(prefixes)
				if err == nil && replicas != 0 && replicas != w.Replicas {
					w.Published = nil // they are of its own number of replicas
				}
				return w, err
			},
		}, nil
	case "shared-prefix":
		c := workload.DefaultSharedPrefix()
		c.Target, c.Seed = m.target, f.seed
		return choice{
			numbers: map[string]*int{
				"groups": &c.Groups, "prompts-per-group": &c.PromptsPerGroup,
				"prefix-tokens": &c.SystemTokens, "suffix-tokens": &c.QuestionTokens, "output-tokens": &c.OutputTokens,
			},
			make: func() (*workload.Workload, error) { return workload.SharedPrefix(c) },
		}, nil
	case "prefix-repetition":
		c := workload.DefaultPrefixRepetition()
		return choice{numbers: repetition(&c, m.target, f.seed), make: func() (*workload.Workload, error) { return workload.PrefixRepetition(c) }}, nil
	case "all-fits":
		c := workload.DefaultAllFits()
		return choice{numbers: repetition(&c, m.target, f.seed), make: func() (*workload.Workload, error) { return workload.AllFits(c) }}, nil
	case "hot":
		c := workload.DefaultHot()
		return choice{
			numbers: repetition(&c.PrefixRepetitionConfig, m.target, f.seed), exponent: &c.Exponent,
			make: func() (*workload.Workload, error) { return workload.Hot(c) },
		}, nil
	case "churn":
		c := workload.DefaultChurn()
		if replicas != 0 {
			c.Replicas = replicas
		}
		return choice{
			numbers: repetition(&c.PrefixRepetitionConfig, m.target, f.seed),
			make:    func() (*workload.Workload, error) { return workload.Churn(c) },
		}, nil
	case "chat":
		c := workload.DefaultChat()
		c.Target, c.Seed = m.target, f.seed
		return choice{
			numbers: map[string]*int{
				"sessions": &c.Sessions, "turns": &c.Turns,
				"prefix-tokens": &c.SystemTokens, "suffix-tokens": &c.UserTokens, "output-tokens": &c.OutputTokens,
			},
			think: &c.Think,
			make:  func() (*workload.Workload, error) { return workload.Chat(c) },
		}, nil
	case "no-reuse":
		c := workload.DefaultNoReuse()
		c.Target, c.Seed = m.target, f.seed
		return choice{
			numbers: map[string]*int{"requests": &c.Requests, "suffix-tokens": &c.PromptTokens, "output-tokens": &c.OutputTokens},
			make:    func() (*workload.Workload, error) { return workload.NoReuse(c) },
		}, nil
	}
	return choice{}, misuse(cmd, "--workload %q: want one of %s", f.name, strings.Join(workloads, ", "))
}

func repetition(c *workload.PrefixRepetitionConfig, target workload.Target, seed uint64) map[string]*int {
	c.Target, c.Seed = target, seed
	return map[string]*int{
		"requests": &c.Requests, "prefixes": &c.Prefixes,
		"prefix-tokens": &c.PrefixTokens, "suffix-tokens": &c.SuffixTokens, "output-tokens": &c.OutputTokens,
	}
}

func (f *workloadFlags) chooseTrace(cmd *cobra.Command, m workloadModel) (choice, error) {
	formats := []workload.Format{"", workload.FormatMooncake, workload.FormatOpenAI, workload.FormatAgent}
	if !slices.Contains(formats, workload.Format(f.format)) {
		return choice{}, misuse(cmd, "--trace-format %q: want %s, %s or %s", f.format, formats[1], formats[2], formats[3])
	}
	c := workload.DefaultTrace()
	c.Target, c.Seed, c.Format, c.Count = m.target, f.seed, workload.Format(f.format), m.count
	return choice{
		numbers: map[string]*int{"scale-blocks": &c.ScaleBlocks, "max-requests": &c.Limit, "output-tokens": &c.MaxOutput},
		make:    func() (*workload.Workload, error) { return workload.OpenTrace(f.trace, c) },
	}, nil
}

// modelTarget is a network as workloads must fit it.
func modelTarget(net model.Config) workload.Target {
	t := workload.Target{Vocab: net.Vocab, Context: net.Context}
	if net.EOS >= 0 {
		t.AvoidHigh = net.Vocab - int(net.EOS)
	}
	return t
}

// tokenCounter counts tokens as the folder's tokenizer makes them, which it reads when it is
// first asked. A tokenizer that cannot be read counts nothing; loading the checkpoint says why.
func tokenCounter(folder *weights.Folder) func(text string) int {
	load := sync.OnceValues(func() (*tokenizer.Tokenizer, error) { return tokenizer.Load(folder.FS()) })
	return func(text string) int {
		t, err := load()
		if err != nil {
			return 0
		}
		ids, err := t.Encode(text, false)
		if err != nil {
			return 0
		}
		return len(ids)
	}
}
