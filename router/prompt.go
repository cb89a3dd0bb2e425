package router

import (
	"bytes"
	"encoding/json"
	"net/http"
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
	tokens  int           // of all prompts; an estimate where there is no tokenizer
	chains  []promptChain // of each prompt, up to maxChains
}

// maxChains bounds the prompts of one request whose blocks are looked at. Those beyond are
// counted only: a body of 4 MB holds a million prompts, and each costs a look at every
// replica. Tailor's own replicas refuse more than 64.
const maxChains = 64

// promptChain is a prompt's whole blocks.
type promptChain struct {
	unit   policy.Unit
	salted bool
	open   []policy.Hash // as if there were no salt
	blocks []policy.Hash // under the request's salt
}

// promptReader turns requests into prompts. Nothing of it changes but what it remembers of
// texts. Safe for concurrent use.
type promptReader struct {
	tokenize     func(string) ([]int32, error)
	tokenizeChat func([]byte) ([]int32, error)
	memo         *memo
	blockTokens  int
	chunkBytes   int
	limit        int // blocks of one request
	saltByKey    bool
}

// sessionHeaders are the headers in which clients and other routers name a conversation.
var sessionHeaders = []string{"X-Session-Id", "X-Session-Token", "X-Smg-Routing-Key", "X-Dynamo-Session-Id"}

// completion reads the body of POST /v1/completions. Its errors are *openai.Error, the
// same that a tailor replica would give.
func (p *promptReader) completion(header http.Header, body []byte) (prompt, error) {
	if q, ok := scanCompletion(body); ok {
		out := newPrompt(header, q.model, &q.user, &q.salt, &q.stream)
		salt := p.salt(header, &q.salt)
		if q.isText {
			p.addPrompt(&out, salt, q.text, 0, p.budget())
		} else {
			p.addTokens(&out, salt, q.tokens)
		}
		return out, nil
	}
	return p.parse(header, body)
}

// parse is completion by way of the full parser.
func (p *promptReader) parse(header http.Header, body []byte) (prompt, error) {
	r, err := openai.ParseCompletion(body)
	if err != nil {
		return prompt{}, err
	}
	out := newPrompt(header, r.Model, r.User, r.CacheSalt, r.Stream)
	salt := p.salt(header, r.CacheSalt)
	for _, tokens := range r.Prompt.Tokens {
		// A replica leaves off the beginning. Where it is to find out how much itself, the
		// prompt is taken to fit.
		if keep := r.TruncatePrompt; keep != nil && *keep > 0 {
			tokens = tokens[max(0, len(tokens)-*keep):]
		}
		p.addTokens(&out, salt, tokens)
	}
	budget := p.budget()
	for _, text := range r.Prompt.Texts {
		budget -= p.addPrompt(&out, salt, text, openai.Or(r.TruncatePrompt, 0), budget)
	}
	return out, nil
}

// budget is how many bytes of text of one request are tokenized.
func (p *promptReader) budget() int { return p.limit * p.blockTokens * tokenBytes }

// addPrompt adds a text in tokens if it can, and if they will be looked at: of those, the
// last keep if that is positive. It tokenizes at most budget bytes, and says how many.
func (p *promptReader) addPrompt(out *prompt, salt, text string, keep, budget int) (read int) {
	if len(out.chains) == maxChains || p.tokenize == nil {
		p.addText(out, salt, text)
		return 0
	}
	most := p.room(out) * p.blockTokens
	if keep > 0 {
		most = budget // all of them are needed to know the last
	}
	tokens, read, err := p.encode(salt, text, most, budget)
	switch rest := p.estimate(len(text) - read); {
	case err != nil:
		p.addText(out, salt, text)
	case keep > 0 && rest > 0: // where its tokens begin is not known
		out.tokens += keep
		out.add(policy.UnitTokens, nil, salt)
	case keep > 0:
		p.addTokens(out, salt, tokens[max(0, len(tokens)-keep):])
	default:
		p.addTokens(out, salt, tokens)
		out.tokens += rest
	}
	return read
}

// estimate is about how many tokens so many bytes of text have.
func (p *promptReader) estimate(bytes int) int {
	return (bytes*p.blockTokens + p.chunkBytes - 1) / p.chunkBytes
}

// chat reads the body of POST /v1/chat/completions. Which tokens the messages become is
// the replica's chat template's affair. Where it is not known their JSON is taken as text:
// a conversation that goes on begins with what it was before.
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
	if p.tokenizeChat != nil && len(body) <= p.budget() {
		if tokens, err := p.tokenizeChat(body); err == nil {
			p.addTokens(&out, p.salt(header, r.CacheSalt), tokens)
			return out, nil
		}
	}
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

func (p *promptReader) addTokens(out *prompt, salt string, tokens []int32) {
	out.tokens += len(tokens)
	if len(out.chains) == maxChains {
		return
	}
	root := policy.Root(policy.UnitTokens, out.model)
	out.add(policy.UnitTokens, policy.ChainTokens(root, tokens, p.blockTokens, p.room(out)), salt)
}

func (p *promptReader) addText(out *prompt, salt string, text string) {
	out.tokens += p.estimate(len(text))
	if len(out.chains) == maxChains {
		return
	}
	root := policy.Root(policy.UnitBytes, out.model)
	out.add(policy.UnitBytes, policy.ChainBytes(root, text, p.chunkBytes, p.room(out)), salt)
}

func (q *prompt) add(unit policy.Unit, open []policy.Hash, salt string) {
	q.chains = append(q.chains, promptChain{unit: unit, salted: salt != "", open: open, blocks: policy.Salted(open, salt)})
}

// room is how many more blocks the request may have hashed.
func (p *promptReader) room(out *prompt) int {
	n := p.limit
	for _, chain := range out.chains {
		n -= len(chain.open)
	}
	return n
}

// salt is what separates the request's prefixes from those of others. Where the caller's
// key counts it is derived from the key and the salt that the caller chose, as a tailor
// replica does, whose tree knows salts by that name.
func (p *promptReader) salt(header http.Header, salt *string) string {
	chosen := openai.Or(salt, "")
	if !p.saltByKey {
		return chosen
	}
	secret := header.Get("Authorization")
	if scheme, key, _ := strings.Cut(secret, " "); strings.EqualFold(scheme, "Bearer") {
		secret = strings.TrimSpace(key)
	}
	return openai.SaltOfKey(secret, chosen)
}

// request is the prompt as the policies see it.
func (q *prompt) request(blockTokens int, seq uint64) policy.Request {
	r := policy.Request{BlockTokens: blockTokens, Tokens: q.tokens, Session: q.session, Seq: seq}
	if len(q.chains) > 0 {
		r.Blocks = q.chains[0].blocks // several prompts go where the first one goes
	}
	return r
}
