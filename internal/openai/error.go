package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Types and codes of errors, where clients tell them apart.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeRateLimit      = "rate_limit_error"
	TypeServer         = "server_error"

	CodeModelNotFound = "model_not_found"
	CodeContextLength = "context_length_exceeded"
	CodeTooLarge      = "request_too_large"
	CodeNotFound      = "not_found"
	CodeMethod        = "method_not_allowed"
	CodeUnsupported   = "unsupported_parameter"
	CodeQueueFull     = "rate_limit_exceeded"
	CodeUnavailable   = "service_unavailable"
	CodeInternal      = "internal_error"
	CodeInUse         = "in_use"
	CodeInvalidKey    = "invalid_api_key"
	CodeTimeout       = "request_timeout"
	CodeForbidden     = "forbidden"
)

// An Error is a refusal as the client sees it. Empty Param and Code are sent
// as null: openai-python reads all four keys.
type Error struct {
	Status     int           // HTTP status; not part of the body
	RetryAfter time.Duration // header Retry-After, in whole seconds; 0: none
	Final      bool          // header x-should-retry: false, which OpenAI's clients obey
	Message    string
	Type       string
	Param      string
	Code       string
}

// Invalid is a 400 about one field. The message is prefixed with its name.
func Invalid(param, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	if param != "" {
		message = param + ": " + message
	}
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Param: param, Message: message}
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes the object that stands under "error".
func (e *Error) MarshalJSON() ([]byte, error) {
	return marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.Message, e.Type, orNull(e.Param), orNull(e.Code)})
}

// UnmarshalJSON reads the errors of other servers too, where code may be a
// number (vLLM) and the whole error a bare string.
func (e *Error) UnmarshalJSON(data []byte) error {
	var message string
	if json.Unmarshal(data, &message) == nil {
		*e = Error{Message: message}
		return nil
	}
	var in struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Param   string          `json:"param"`
		Code    json.RawMessage `json:"code"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*e = Error{Message: in.Message, Type: in.Type, Param: in.Param}
	if len(in.Code) > 0 && !isNull(in.Code) && json.Unmarshal(in.Code, &e.Code) != nil {
		e.Code = string(in.Code)
	}
	return nil
}

// ErrorResponse is the body of every answer that is not a success.
type ErrorResponse struct {
	Error *Error `json:"error"`
}

// WriteError answers with e. Nothing must have been written before.
func WriteError(w http.ResponseWriter, e *Error) {
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	if e.Final {
		w.Header().Set("X-Should-Retry", "false")
	}
	WriteJSON(w, e.Status, ErrorResponse{e})
}

// ReadError turns an answer's status and body into an Error, whatever the body
// is: a gateway's HTML page becomes the message, cut to a few hundred bytes.
func ReadError(status int, body io.Reader) *Error {
	data, err := io.ReadAll(io.LimitReader(body, 64<<10))
	var response ErrorResponse
	if json.Unmarshal(data, &response) == nil && response.Error != nil && response.Error.Message != "" {
		response.Error.Status = status
		return response.Error
	}
	message := shorten(string(bytes.TrimSpace(data)), 300)
	if message == "" {
		message = http.StatusText(status)
	}
	if err != nil {
		message += " (" + err.Error() + ")"
	}
	return &Error{Status: status, Message: message}
}

// WriteJSON answers with v. An error while writing means the client has gone;
// there is nobody left to tell.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := marshal(v)
	if err != nil {
		panic(fmt.Sprintf("openai: %T does not marshal: %v", v, err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// marshal leaves <, > and & as they are: "<|endoftext|>" should be readable.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
