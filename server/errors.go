package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tailor/internal/openai"
	"tailor/model/sample"
	"tailor/model/tokenizer"
	"tailor/server/engine"
)

// How long clients are asked to wait: a full queue moves on within some steps, a
// replica that drains comes back, if at all, after its start.
const (
	retryQueueFull   = 1 * time.Second
	retryUnavailable = 5 * time.Second
)

// statusClientGone is what the log says of a request whose client left before the
// answer: nginx's number, never sent.
const statusClientGone = 499

// fail answers with err, unless there is nobody to answer to.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if e := s.refusal(r, err); e != nil {
		s.boundWrite(w)
		openai.WriteError(w, e)
	}
}

// refusal is err as the client sees it, or nil if the client has gone. It notes for
// the log what the client is not told.
func (s *Server) refusal(r *http.Request, err error) *openai.Error {
	record := recordOf(r.Context())
	record.err = err
	if errors.Is(context.Cause(r.Context()), ErrCut) {
		return toOpenAI(ErrCut)
	}
	if errors.Is(err, errGone) || r.Context().Err() != nil {
		record.gone = true
		return nil
	}
	return toOpenAI(err)
}

func toOpenAI(err error) *openai.Error {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*sample.FieldError](err); ok {
		return openai.Invalid(e.Field, "%v", err)
	}
	if _, ok := errors.AsType[engine.ErrTokenRange](err); ok || errors.Is(err, engine.ErrEmptyPrompt) || errors.Is(err, tokenizer.ErrNoToken) {
		return openai.Invalid("prompt", "%v", err)
	}
	if _, ok := errors.AsType[engine.ErrMaxTokens](err); ok {
		return openai.Invalid("max_tokens", "%v", err)
	}
	if e, ok := errors.AsType[engine.ErrContext](err); ok {
		param := "max_tokens"
		if e.Prompt >= e.Context {
			param = "prompt" // no max_tokens would do
		}
		out := openai.Invalid(param, "%v", err)
		out.Code = openai.CodeContextLength
		return out
	}
	if _, ok := errors.AsType[engine.ErrTooLarge](err); ok {
		out := openai.Invalid("prompt", "%v", err)
		out.Code = openai.CodeContextLength
		return out
	}
	switch {
	case errors.Is(err, engine.ErrQueueFull):
		return &openai.Error{
			Status: http.StatusTooManyRequests, RetryAfter: retryQueueFull,
			Type: openai.TypeRateLimit, Code: openai.CodeQueueFull, Message: err.Error(),
		}
	case errors.Is(err, engine.ErrDraining), errors.Is(err, engine.ErrStopped), errors.Is(err, ErrCut):
		return unavailable(err.Error())
	case errors.Is(err, engine.ErrHeld):
		return &openai.Error{
			Status: http.StatusConflict, RetryAfter: retryQueueFull,
			Type: openai.TypeInvalidRequest, Code: openai.CodeInUse, Message: err.Error(),
		}
	case errors.Is(err, engine.ErrTimeout):
		// Not to be sent again by itself: it would take as long.
		return &openai.Error{
			Status: http.StatusGatewayTimeout, Type: openai.TypeServer, Code: openai.CodeTimeout, Message: err.Error(), Final: true,
		}
	case errors.Is(err, ErrTemplate):
		return &openai.Error{
			Status: http.StatusInternalServerError, Type: openai.TypeServer, Code: openai.CodeInternal,
			Message: "the model's chat template failed; the server's log says why under the request's id", Final: true,
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable("the request was cancelled by the server")
	}
	return internalError()
}

func unavailable(message string) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, RetryAfter: retryUnavailable,
		Type: openai.TypeServer, Code: openai.CodeUnavailable, Message: message,
	}
}

// internalError says nothing of the cause, which is in the log.
func internalError() *openai.Error {
	return &openai.Error{
		Status: http.StatusInternalServerError, Type: openai.TypeServer, Code: openai.CodeInternal,
		Message: "the server failed on this request; its log says why under the request's id",
	}
}

func (s *Server) noModel(name string) *openai.Error {
	e := openai.Invalid("model", "%q is not served here; %q is", name, s.ModelName)
	e.Status, e.Code = http.StatusNotFound, openai.CodeModelNotFound
	return e
}
