package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"tailor/internal/bench/workload"
)

// The units in which reuse is counted.
const (
	Tokens = "tokens"
	Bytes  = "bytes"
)

// reach counts what of the prompts that r sent could have been reused.
func (c *comparison) reach(ctx context.Context, r *replay, cluster *Cluster) error {
	url := cluster.URL
	if len(cluster.Replicas) > 0 {
		url = cluster.Replicas[0].URL
	}
	tokens := &tokenizer{client: r.client, url: url}
	sent, err := spell(r, func(text string) ([]int32, error) { return tokens.encode(ctx, text) })
	unit := Tokens
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // it has no tokenizer to ask, or not for chats
		if sent, err = spell(r, nil); err != nil {
			return nil // what could be reused stays unknown
		}
		unit = Bytes
	}
	if unit == Tokens {
		c.alphabet = alphabet(sent)
	}
	out := &c.report.Reach
	// A cache that keeps single tokens bounds every cache with blocks; a Tailor replica,
	// whose blocks' length is known, keeps full ones only.
	block := 1
	if unit == Tokens && c.report.BlockTokens > 0 {
		block = c.report.BlockTokens
	}
	all := workload.Infinite(sent, block)
	out.Unit, out.Prompt, out.Infinite, out.InfiniteHits = unit, all.Prompt, all.Reused, all.Hits
	if unit != Tokens || c.report.BlockTokens == 0 {
		return nil
	}
	replicas := max(1, c.opt.Replicas)
	for _, blocks := range c.opt.KVBlocks {
		if blocks == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		total := blocks * replicas
		out.Bounds = append(out.Bounds, Bound{
			Blocks: total,
			Reused: min(workload.Bound(sent, block, total), all.Reused),
			LRU:    workload.LRU(sent, block, total).Reused,
		})
	}
	return nil
}

// alphabet is the tokens that prompts are made of, in order.
func alphabet(sent []workload.Sent) []int32 {
	seen := map[int32]bool{}
	for i := range sent {
		for _, id := range sent[i].Prompt {
			if id >= 0 { // others stand for what nobody knows
				seen[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// spell writes down what was sent and answered as a cache sees it, without what failed;
// encode nil: as bytes.
func spell(r *replay, encode func(string) ([]int32, error)) ([]workload.Sent, error) {
	// Every turn as the whole prompt that it was.
	var whole workload.Workload
	var answers [][]int32
	for i, a := range r.answers {
		if a == nil {
			continue
		}
		q := r.messages.requests[i]
		q.Continues, q.After = false, -1
		if q.Body == nil {
			q.Tokens, q.Text = r.prompts[i].tokens, r.prompts[i].text
		}
		whole.Requests = append(whole.Requests, q)
		said := a.ids
		switch {
		case len(said) > 0 || q.Tokens != nil: // not known: like no other answer
		case encode == nil:
			said = byteUnits(a.text)
		default:
			var err error
			if said, err = encode(a.text); err != nil {
				return nil, err
			}
		}
		answers = append(answers, said)
	}
	if encode == nil {
		return whole.Sent(nil, answers)
	}
	return whole.Sent(func(q *workload.Request) ([]int32, error) {
		if q.Body == nil {
			return encode(q.Text)
		}
		var body struct {
			Prompt json.RawMessage `json:"prompt"`
		}
		if err := json.Unmarshal(q.Body, &body); err != nil {
			return nil, err
		}
		var text string
		if json.Unmarshal(body.Prompt, &text) == nil && text != "" {
			return encode(text)
		}
		var ids []int32
		if json.Unmarshal(body.Prompt, &ids) == nil && len(ids) > 0 {
			return ids, nil
		}
		return nil, fmt.Errorf("no tokenizer for what is neither one text nor one list of token ids")
	}, answers)
}

func byteUnits(text string) []int32 {
	out := make([]int32, len(text))
	for i := range len(text) {
		out[i] = int32(text[i])
	}
	return out
}

// tokenizer asks a server for the token ids of texts, as vLLM and Tailor answer.
type tokenizer struct {
	client *client
	url    string
}

func (t *tokenizer) encode(ctx context.Context, text string) ([]int32, error) {
	if text == "" {
		return []int32{}, nil
	}
	body, err := json.Marshal(struct {
		Prompt string `json:"prompt"`
		// GPT-2 adds none; a server that does adds them to completions, too.
		AddSpecial bool `json:"add_special_tokens"`
	}{text, true})
	if err != nil {
		return nil, err
	}
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := t.client.call(ctx, http.MethodPost, t.url+"/tokenize", bytes.NewReader(body), &out); err != nil {
		return nil, err
	}
	if len(out.Tokens) == 0 {
		return nil, fmt.Errorf("%s/tokenize: no tokens of %d bytes of text", t.url, len(text))
	}
	return out.Tokens, nil
}
