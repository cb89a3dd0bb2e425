package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"tailor/internal/openai"
	"tailor/server/engine"
)

// tokenName is how a token is called where tokens are listed: its text, or, where its
// bytes are no whole characters, those bytes as OpenAI writes them. No two tokens have the
// same name, which keys of an object need.
func (s *Server) tokenName(id int32, asID bool) string {
	raw, known := s.Tokenizer.Bytes(id)
	switch {
	case asID || !known:
		return fmt.Sprintf("token_id:%d", id)
	case utf8.Valid(raw):
		return string(raw)
	}
	var name strings.Builder
	name.WriteString("bytes:")
	for _, b := range raw {
		fmt.Fprintf(&name, `\x%02x`, b)
	}
	return name.String()
}

// logprobs are those of tokens, with top of the likeliest in each place and the token
// itself.
func (s *Server) logprobs(tokens []token, top int, asIDs bool) *openai.Logprobs {
	out := &openai.Logprobs{
		Tokens: []string{}, TokenLogprobs: []*openai.Logprob{}, TopLogprobs: []openai.TopLogprobs{}, TextOffset: []int{},
	}
	for _, t := range tokens {
		out.Tokens = append(out.Tokens, s.tokenName(t.id, asIDs))
		out.TextOffset = append(out.TextOffset, t.offset)
		if t.logprobs == nil {
			out.TokenLogprobs = append(out.TokenLogprobs, nil)
			out.TopLogprobs = append(out.TopLogprobs, nil)
			continue
		}
		own := openai.Logprob(t.logprobs.Logprob)
		out.TokenLogprobs = append(out.TokenLogprobs, &own)
		list := openai.TopLogprobs{}
		for _, l := range withOwn(t.logprobs, top) {
			list = append(list, openai.TopLogprob{Token: s.tokenName(l.ID, asIDs), Logprob: openai.Logprob(l.Logprob)})
		}
		out.TopLogprobs = append(out.TopLogprobs, list)
	}
	return out
}

// withOwn is at most top of the likeliest tokens, and the token itself if it is not one
// of them.
func withOwn(l *engine.TokenLogprobs, top int) []engine.TokenLogprob {
	list := l.Top[:min(top, len(l.Top))]
	for _, t := range list {
		if t.ID == l.Token {
			return list
		}
	}
	return append(list[:len(list):len(list)], engine.TokenLogprob{ID: l.Token, Logprob: l.Logprob})
}

// promptLogprobs are vLLM's, with top of the likeliest tokens in each place.
func (s *Server) promptLogprobs(p *prompt, top int) []openai.PromptLogprobs {
	out := make([]openai.PromptLogprobs, len(p.scores))
	for i, score := range p.scores {
		if score == nil {
			continue
		}
		out[i] = openai.PromptLogprobs{}
		for rank, l := range withOwn(score, top) {
			entry := openai.PromptLogprob{Logprob: openai.Logprob(l.Logprob), Decoded: s.Tokenizer.Decode([]int32{l.ID})}
			if rank < min(top, len(score.Top)) {
				entry.Rank = new(rank + 1)
			}
			out[i][l.ID] = entry
		}
	}
	return out
}

// chatLogprobs are logprobs in the shape that chats have them.
func (s *Server) chatLogprobs(tokens []token, top int, asIDs bool) *openai.ChatLogprobs {
	out := &openai.ChatLogprobs{Content: []openai.ChatLogprob{}}
	for _, t := range tokens {
		entry := openai.ChatLogprob{
			ChatToken:   s.chatToken(engine.TokenLogprob{ID: t.id, Logprob: t.logprobs.Logprob}, asIDs),
			TopLogprobs: []openai.ChatToken{},
		}
		for _, l := range t.logprobs.Top[:min(top, len(t.logprobs.Top))] {
			entry.TopLogprobs = append(entry.TopLogprobs, s.chatToken(l, asIDs))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

func (s *Server) chatToken(l engine.TokenLogprob, asID bool) openai.ChatToken {
	raw, _ := s.Tokenizer.Bytes(l.ID)
	out := openai.ChatToken{Token: s.tokenName(l.ID, asID), Logprob: openai.Logprob(l.Logprob), Bytes: make([]int, len(raw))}
	for i, b := range raw {
		out.Bytes[i] = int(b)
	}
	return out
}

// best are the n choices of the highest sum of logprobs, best first; of equals the first.
// Choices whose sum is no number come last. Where all are asked for, they stay in order.
func best(choices []*choice, n int) []*choice {
	if n == len(choices) {
		return choices
	}
	sum := func(c *choice) float64 {
		if math.IsNaN(c.logprob) {
			return math.Inf(-1)
		}
		return c.logprob
	}
	sorted := slices.Clone(choices)
	slices.SortStableFunc(sorted, func(a, b *choice) int { return cmp.Compare(sum(b), sum(a)) })
	return sorted[:n]
}
