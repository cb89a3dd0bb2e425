package openai

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// The ranges as OpenAI's API description and vLLM's protocol give them, transcribed by
// hand: what the program's own table must say.
const publishedParameters = `
model              text
prompt             prompt
best_of            integer 0 20        completions
echo               boolean             completions
suffix             text                completions
logprobs           integer 0 5         completions
prompt_logprobs    integer 0 20        completions
logprobs           boolean             chat
top_logprobs       integer 0 20        chat
messages           messages            chat
max_completion_tokens integer 0 max    chat
add_generation_prompt boolean          chat
max_tokens         integer 0 max
temperature        number [0 2
top_p              number (0 1
top_k              integer -1 max
min_p              number [0 1
seed               integer
n                  integer 1 128
presence_penalty   number [-2 2
frequency_penalty  number [-2 2
repetition_penalty number (0 inf
logit_bias         biases -100 100
stop               stop
stop_token_ids     ids
include_stop_str_in_output boolean
ignore_eos         boolean
min_tokens         integer 0 max
allowed_token_ids  ids
bad_words          words
truncate_prompt_tokens integer -1 max
stream             boolean
stream_options     options
user               text
cache_salt         text
priority           integer
add_special_tokens boolean
skip_special_tokens boolean
spaces_between_special_tokens boolean
return_token_ids   boolean
return_tokens_as_token_ids boolean
`

func TestTablesHoldThePublishedRanges(t *testing.T) {
	kinds := map[string]Kind{
		"text": KindText, "boolean": KindBoolean, "integer": KindInteger, "number": KindNumber, "stop": KindStop, "words": KindWords,
		"ids": KindTokenIDs, "biases": KindBiases, "prompt": KindPrompt, "options": KindOptions, "messages": KindMessages,
	}
	limits := map[string]float64{"max": math.MaxInt32, "inf": math.MaxFloat32}
	for endpoint, table := range map[string][]Parameter{"completions": CompletionParameters(), "chat": ChatParameters()} {
		rows := map[string]Parameter{}
		for _, p := range table {
			if _, twice := rows[p.Name]; twice {
				t.Errorf("%s: %s stands in the table twice", endpoint, p.Name)
			}
			rows[p.Name] = p
		}
		for line := range strings.Lines(publishedParameters) {
			f := strings.Fields(line)
			if len(f) == 0 {
				continue
			}
			if last := f[len(f)-1]; last == "completions" || last == "chat" {
				if last != endpoint {
					continue
				}
				f = f[:len(f)-1]
			} else if f[0] == "prompt" && endpoint == "chat" {
				continue
			}
			got, ok := rows[f[0]]
			if !ok || got.Kind != kinds[f[1]] {
				t.Errorf("%s: %s is %+v, want %s", endpoint, f[0], got, f[1])
			}
			delete(rows, f[0])
			if len(f) < 4 {
				continue
			}
			low, open := strings.CutPrefix(f[2], "(")
			var lowest, highest float64
			if _, err := fmt.Sscan(strings.TrimPrefix(low, "["), &lowest); err != nil {
				t.Fatal(err)
			}
			if limit, named := limits[f[3]]; named {
				highest = limit
			} else if _, err := fmt.Sscan(f[3], &highest); err != nil {
				t.Fatal(err)
			}
			if got.Low != lowest || got.High != highest || got.LowOpen != open {
				t.Errorf("%s: %s is %v to %v (open %v), want %s", endpoint, f[0], got.Low, got.High, got.LowOpen, line)
			}
		}
		for name := range rows {
			t.Errorf("%s: %s is in the table and not in the published one", endpoint, name)
		}
	}
}
