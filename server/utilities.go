package server

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"tailor/internal/openai"
)

func (s *Server) entry() openai.Model {
	return openai.Model{
		ID: s.ModelName, Object: openai.ObjectModel, Created: s.created.Unix(), OwnedBy: "tailor", MaxModelLen: s.Context,
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	s.respond(w, openai.ModelList{Object: openai.ObjectList, Data: []openai.Model{s.entry()}})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if name := chi.URLParam(r, "*"); name != s.ModelName {
		s.fail(w, r, s.noModel(name))
		return
	}
	s.respond(w, s.entry())
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		s.fail(w, r, unavailable("the replica is draining"))
		return
	}
	s.respond(w, map[string]string{"status": "ok"})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	s.respond(w, map[string]string{"version": s.Version})
}

// tokenize answers as vLLM does. As in completions, the spelling of a special token is
// text, unless parse_special (llama.cpp's name) asks for the token. add_special_tokens
// changes nothing: GPT-2 adds none.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt          *string `json:"prompt"`
		ReturnTokenStrs bool    `json:"return_token_strs"`
		ParseSpecial    bool    `json:"parse_special"`
	}
	body, err := openai.ReadBody(w, r, s.MaxBody)
	if err == nil {
		err = openai.DecodeObject(body, &in)
	}
	if err == nil && in.Prompt == nil {
		err = openai.Invalid("prompt", "the field is missing")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	tokens, err := s.Tokenizer.Encode(*in.Prompt, in.ParseSpecial)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{len(tokens), s.Context, append([]int32{}, tokens...), nil}
	if in.ReturnTokenStrs {
		out.TokenStrs = make([]string, len(tokens))
		for i := range tokens {
			out.TokenStrs[i] = s.Tokenizer.Decode(tokens[i : i+1])
		}
	}
	s.respond(w, out)
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Tokens []*int32 `json:"tokens"` // pointers, as null must not become 0
	}
	body, err := openai.ReadBody(w, r, s.MaxBody)
	if err == nil {
		err = openai.DecodeObject(body, &in)
	}
	if err == nil && in.Tokens == nil {
		err = openai.Invalid("tokens", "the field is missing")
	}
	tokens := make([]int32, len(in.Tokens))
	for i, id := range in.Tokens {
		if err != nil {
			break
		}
		if id == nil {
			err = openai.Invalid("tokens", "null at index %d is not a token id", i)
		} else if _, known := s.Tokenizer.Bytes(*id); !known {
			err = openai.Invalid("tokens", "there is no token %d (at index %d)", *id, i)
		} else {
			tokens[i] = *id
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.respond(w, map[string]string{"prompt": s.Tokenizer.Decode(tokens)})
}

// serverInfo says how the replica is set up and what it is doing, as SGLang does.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	stats := s.Engine.Stats()
	s.respond(w, map[string]any{
		"version": s.Version, "model": s.ModelName, "replica": s.Replica, "epoch": s.epoch(),
		"uptime_seconds": int64(time.Since(s.created).Seconds()), "draining": s.draining.Load(),
		"max_model_len": s.Context, "vocab_size": s.Tokenizer.VocabSize(), "block_size": s.BlockSize,
		"chat_template": s.Template != nil, "api_keys": len(s.Keys), "isolate_keys": s.IsolateKeys,
		"requests_per_minute": s.RequestsPerMinute, "max_body_bytes": s.MaxBody, "max_prompts": s.MaxPrompts,
		"settings": s.Settings,
		"running":  stats.Running, "waiting": stats.Waiting,
		"kv_blocks": map[string]int{
			"total": stats.KV.Total, "free": stats.KV.Free, "held": stats.KV.Held, "cached": stats.KV.Cached, "evictable": stats.KV.Evictable,
		},
	})
}
