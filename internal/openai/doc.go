// Package openai holds the OpenAI completions API as data: requests, answers,
// errors and event streams, for whoever serves them (a replica), forwards them
// (the router) or calls them (the bench).
//
// How a request body is read:
//   - Absent and null are the same thing, and both differ from zero: optional
//     fields are pointers.
//   - Keys are matched exactly ("Prompt" is not "prompt") and unknown ones are
//     ignored. Of a key given twice the last one counts, as in encoding/json.
//   - The body must be UTF-8, with no lone surrogate in its \u escapes.
//     encoding/json would put U+FFFD there and say nothing, and the answer
//     would be that to another prompt.
//   - ParseCompletion looks at types only, so that a router may pass on what it
//     cannot do itself; Validate looks at ranges, and refuses by name every
//     known field whose value would change the answer and is not supported.
//
// Every error names the field (Param) and the value, and goes to the client in
// OpenAI's shape with all four keys.
package openai
