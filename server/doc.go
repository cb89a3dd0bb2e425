// Package server is one replica's HTTP API: OpenAI's completions and chats, and what
// operators and routers ask a vLLM server for.
//
// # A request's life
//
//  1. middleware.go, auth.go: an id, a line in the log, a net under panics; who it is, and
//     whether he may.
//  2. completions.go, chat.go: the body becomes an openai.CompletionRequest or ChatRequest;
//     what is out of the table's ranges ends here.
//  3. prompt.go, template.go: prompts and conversations become token ids.
//  4. generation.go: each prompt becomes one engine request for all its choices, each
//     choice with a context of its own. Their events come together in one channel.
//  5. choice.go, stop.go: tokens become text. Held back are bytes that are no whole
//     character yet, and text that may turn out to begin a stop string.
//  6. The text goes out in chunks as it comes, or at the end in one piece, with
//     logprobs.go's lists beside it. Both ways run through the same code, so they cannot
//     differ.
//
// Whatever ends the handler, ends its contexts, and with them the engine's work:
// an answer, a stop string, a client that has left or stopped reading, a panic.
//
// The spelling of a special token in a prompt ("<|endoftext|>") is text like any
// other, so that a stranger's text cannot end a document; who wants the token sends
// token ids. (vLLM makes the token.) Of a chat it is the template that may spell them.
//
// # Where it says what it means
//
//   - Offsets (text_offset) count characters, as Python does, and point to where the text
//     of a token begins; of tokens that share a character, to that character.
//   - A token whose bytes are no whole characters is called by them ("bytes:\xc3"), so that
//     no two tokens share a key.
//   - logprobs are the model's, before temperature, penalties and biases, as vLLM's are.
//   - usage counts a prompt once and every token generated for it: those of the choices
//     that best_of drops, and the one that completed a stop string.
//   - Stop strings are looked for in what follows the first min_tokens tokens.
//   - bad_words bans the tokenization of each word, and of it after a space; that another
//     sequence of tokens spells the same cannot be kept out so.
//   - truncate_prompt_tokens keeps the end.
//   - add_special_tokens and spaces_between_special_tokens change nothing: GPT-2 adds none
//     and has but one.
//
// Errors of the engine become HTTP statuses here and nowhere else: errors.go.
package server
