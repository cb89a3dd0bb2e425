package router

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"tailor/internal/openai"
	"tailor/router/policy"
)

// prompt is what the router learns from a request.
type prompt struct {
	model   string
	stream  bool
	session string
	salted  bool
	tokens  int             // of all prompts; an estimate where there is no tokenizer
	chains  [][]policy.Hash // of each prompt
}

// promptReader turns requests into prompts. It is immutable.
type promptReader struct {
	tokenize    func(string) ([]int32, error)
	blockTokens int
	chunkBytes  int
	limit       int // blocks of one request
	saltByKey   bool
}

// sessionHeaders are the headers in which clients and other routers name a conversation.
var sessionHeaders = []string{"X-Session-Id", "X-Session-Token", "X-Smg-Routing-Key", "X-Dynamo-Session-Id"}

// completion reads the body of POST /v1/completions. Its errors are *openai.Error, the
// same that a tailor replica would give.
func (p *promptReader) completion(header http.Header, body []byte) (prompt, error) {
	r, err := openai.ParseCompletion(body)
	if err != nil {
		return prompt{}, err
	}
	out := newPrompt(header, r.Model, r.User, r.CacheSalt, r.Stream)
	salt := p.salt(header, r.CacheSalt)
	for _, tokens := range r.Prompt.Tokens {
		p.addTokens(&out, salt, tokens)
	}
	for _, text := range r.Prompt.Texts {
		if tokens, ok := p.encode(text); ok {
			p.addTokens(&out, salt, tokens)
		} else {
			p.addText(&out, salt, text)
		}
	}
	return out, nil
}

// chat reads the body of POST /v1/chat/completions. Which tokens the messages become is
// the replica's chat template's affair, so their JSON is taken as text: a conversation
// that goes on begins with what it was before.
func (p *promptReader) chat(header http.Header, body []byte) (prompt, error) {
	var r struct {
		Model     string          `json:"model"`
		Messages  json.RawMessage `json:"messages"`
		User      *string         `json:"user"`
		CacheSalt *string         `json:"cache_salt"`
		Stream    *bool           `json:"stream"`
	}
	if err := openai.DecodeObject(body, &r); err != nil {
		return prompt{}, err
	}
	out := newPrompt(header, r.Model, r.User, r.CacheSalt, r.Stream)
	var text bytes.Buffer
	if len(r.Messages) > 0 && json.Compact(&text, r.Messages) == nil {
		p.addText(&out, p.salt(header, r.CacheSalt), strings.TrimSuffix(text.String(), "]"))
	}
	return out, nil
}

func newPrompt(header http.Header, model string, user, salt *string, stream *bool) prompt {
	out := prompt{
		model:   model,
		stream:  openai.Or(stream, false),
		session: openai.Or(user, ""),
		salted:  openai.Or(salt, "") != "",
	}
	for _, name := range sessionHeaders {
		if v := header.Get(name); v != "" {
			out.session = v
			break
		}
	}
	return out
}

func (p *promptReader) encode(text string) ([]int32, bool) {
	if p.tokenize == nil {
		return nil, false
	}
	tokens, err := p.tokenize(text)
	return tokens, err == nil
}

func (p *promptReader) addTokens(out *prompt, salt string, tokens []int32) {
	root := policy.Root(policy.UnitTokens, out.model, salt)
	out.tokens += len(tokens)
	out.chains = append(out.chains, policy.ChainTokens(root, tokens, p.blockTokens, p.room(out)))
}

func (p *promptReader) addText(out *prompt, salt string, text string) {
	root := policy.Root(policy.UnitBytes, out.model, salt)
	out.tokens += (len(text)*p.blockTokens + p.chunkBytes - 1) / p.chunkBytes
	out.chains = append(out.chains, policy.ChainBytes(root, text, p.chunkBytes, p.room(out)))
}

// room is how many more blocks the request may have hashed.
func (p *promptReader) room(out *prompt) int {
	n := p.limit
	for _, chain := range out.chains {
		n -= len(chain)
	}
	return n
}

// salt is what separates the request's prefixes from those of others. The caller's key,
// where it counts, is delimited by its length from the salt that the caller may choose.
func (p *promptReader) salt(header http.Header, salt *string) string {
	s := openai.Or(salt, "")
	if p.saltByKey {
		key := header.Get("Authorization")
		s = strconv.Itoa(len(key)) + ":" + key + s
	}
	return s
}

// request is the prompt as the policies see it.
func (q *prompt) request(blockTokens int, seq uint64) policy.Request {
	r := policy.Request{BlockTokens: blockTokens, Tokens: q.tokens, Session: q.session, Seq: seq}
	if len(q.chains) > 0 {
		r.Blocks = q.chains[0] // several prompts go where the first one goes
	}
	return r
}
