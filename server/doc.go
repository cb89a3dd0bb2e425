// Package server is one replica's HTTP API: OpenAI's completions, and what
// operators and routers ask a vLLM server for.
//
// # A request's life
//
//  1. middleware.go: an id, a line in the log, and a net under panics.
//  2. completions.go: the body becomes an openai.CompletionRequest, its prompts
//     token ids, each of them one engine request with a context of its own.
//  3. choice.go, stop.go: tokens become text. Held back are bytes that are no
//     whole character yet, and text that may turn out to begin a stop string.
//  4. The text goes out in chunks as it comes, or at the end in one piece.
//     Both ways run through the same code, so they cannot differ.
//
// Whatever ends the handler, ends its contexts, and with them the engine's work:
// an answer, a stop string, a client that has left or stopped reading, a panic.
//
// The spelling of a special token in a prompt ("<|endoftext|>") is text like any
// other, so that a stranger's text cannot end a document; who wants the token sends
// token ids. (vLLM makes the token.)
//
// Errors of the engine become HTTP statuses here and nowhere else: errors.go.
package server
