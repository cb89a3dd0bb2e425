package server

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"tailor/internal/openai"
	"tailor/model/sample"
	"tailor/model/tokenizer"
)

// promptTokens are the token ids of each prompt, cut as the request asks.
func (s *Server) promptTokens(req *openai.CompletionRequest, maxTokens int) ([][]int32, error) {
	prompts := make([][]int32, req.Prompt.Len())
	for i := range prompts {
		if req.Prompt.Tokens != nil {
			prompts[i] = req.Prompt.Tokens[i]
		} else {
			tokens, err := s.encode(req.Prompt.Texts[i], "prompt", req.TruncatePrompt != nil)
			if err != nil {
				return nil, err
			}
			prompts[i] = tokens
		}
		if req.TruncatePrompt == nil {
			continue
		}
		keep := *req.TruncatePrompt
		if keep < 0 {
			keep = max(s.Context-maxTokens, 1)
		}
		// The end stays, as in vLLM: it is what the answer goes on from.
		prompts[i] = prompts[i][max(len(prompts[i])-keep, 0):]
	}
	return prompts, nil
}

// encode makes tokens of a text. Where it may be of any length, as it will be cut, it is
// tokenized whole.
func (s *Server) encode(text, param string, anyLength bool) ([]int32, error) {
	if err := s.mayFit(text, param); err != nil && !anyLength {
		return nil, err
	}
	return s.Tokenizer.Encode(text, false)
}

// mayFit refuses a text that is certainly too long: megabytes need not be tokenized to
// know it.
func (s *Server) mayFit(text, param string) error {
	if least := (len(text) + s.maxTokenBytes - 1) / s.maxTokenBytes; least > s.Context {
		e := openai.Invalid(param, "%d bytes of text are at least %d tokens: more than the model's context of %d",
			len(text), least, s.Context)
		e.Code = openai.CodeContextLength
		return e
	}
	return nil
}

// chatTokens are the tokens of a conversation that may fit.
func (s *Server) chatTokens(req *openai.ChatRequest) ([]int32, error) {
	return s.chats.tokens(req, func(text string) error { return s.mayFit(text, "messages") })
}

// A ChatEncoder makes of conversations the tokens that a Server makes of them: a router
// that has it knows which blocks a conversation fills. It is immutable.
//
// What the template writes may spell special tokens, what people write may not: so their
// spellings in messages carry a mark through the template, and are taken as plain text
// after it.
type ChatEncoder struct {
	template  *ChatTemplate
	tokenizer *tokenizer.Tokenizer
	marker    *strings.Replacer // puts marks around special tokens that people write
}

// NewChatEncoder returns one for a model's template and tokenizer. Without a template there
// is nothing that it may be asked for.
func NewChatEncoder(template *ChatTemplate, tok *tokenizer.Tokenizer) *ChatEncoder {
	return &ChatEncoder{template, tok, newMarker(tok.Special())}
}

// Tokens are a conversation's, rendered to at most so many bytes of text: more are an error,
// as is what a Server would refuse. They are those before a request's truncation.
func (c *ChatEncoder) Tokens(req *openai.ChatRequest, bytes int) ([]int32, error) {
	return c.tokens(req, func(text string) error {
		if len(text) > bytes {
			return openai.Invalid("messages", "they make %d bytes of text, more than %d", len(text), bytes)
		}
		return nil
	})
}

// tokens renders the conversation, and goes on if the text is acceptable.
func (c *ChatEncoder) tokens(req *openai.ChatRequest, acceptable func(text string) error) ([]int32, error) {
	messages := slices.Clone(req.Messages)
	for i := range messages {
		messages[i].Content = c.marker.Replace(messages[i].Content)
		messages[i].Name = c.marker.Replace(messages[i].Name)
	}
	text, err := c.template.render(messages, openai.Or(req.AddGenerationPrompt, true))
	if err != nil {
		return nil, err
	}
	if err := acceptable(text); err != nil {
		return nil, err
	}
	var tokens []int32
	for text != "" {
		var template, spelling string
		template, text, _ = strings.Cut(text, openMark)
		spelling, text, _ = strings.Cut(text, closeMark)
		for _, part := range []struct {
			text    string
			special bool
		}{{template, true}, {spelling, false}} {
			more, err := c.tokenizer.Encode(part.text, part.special)
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, more...)
		}
	}
	return tokens, nil
}

// The marks are noncharacters of Unicode, which no text means anything by.
const openMark, closeMark = "\uFDD0", "\uFDD1"

// newMarker puts marks around the spellings of special tokens, and drops those that are
// there. Of two spellings that begin alike the longer one counts.
func newMarker(special map[string]int32) *strings.Replacer {
	pairs := []string{openMark, "\uFFFD", closeMark, "\uFFFD"}
	byLength := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
	for _, spelling := range slices.SortedFunc(maps.Keys(special), byLength) {
		pairs = append(pairs, spelling, openMark+spelling+closeMark)
	}
	return strings.NewReplacer(pairs...)
}

// sampling is what the request says of it. The ids are not checked against the model.
func (s *Server) sampling(req *openai.CompletionRequest) (sample.Params, error) {
	p := sample.Params{
		Temperature: openai.Or(req.Temperature, 1), MinP: openai.Or(req.MinP, 0),
		TopK: openai.Or(req.TopK, 0), TopP: openai.Or(req.TopP, 1), Seed: req.Seed,
		RepetitionPenalty: openai.Or(req.RepetitionPenalty, 0), FrequencyPenalty: openai.Or(req.FrequencyPenalty, 0),
		PresencePenalty: openai.Or(req.PresencePenalty, 0), LogitBias: req.LogitBias,
	}
	if req.AllowedTokenIDs != nil {
		p.Allowed = slices.Clone(req.AllowedTokenIDs)
		slices.Sort(p.Allowed) // a million times the same one must not cost anything
		p.Allowed = slices.Compact(p.Allowed)
	}
	for _, word := range req.BadWords {
		if err := s.mayFit(word, "bad_words"); err != nil {
			return p, err
		}
		for _, tokens := range [][]int32{s.plain(word), s.plain(" " + word)} {
			if len(tokens) > 0 && !slices.ContainsFunc(p.BadWords, func(known []int32) bool { return slices.Equal(known, tokens) }) {
				p.BadWords = append(p.BadWords, tokens)
			}
		}
	}
	return p, nil
}

// plain is the tokens of a text that has some in any vocabulary.
func (s *Server) plain(text string) []int32 {
	tokens, err := s.Tokenizer.Encode(text, false)
	if err != nil {
		return nil
	}
	return tokens
}
