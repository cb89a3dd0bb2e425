// Package e2e runs the official clients of the OpenAI API against the built program. It
// is a module of its own, so that the clients are no dependencies of Tailor.
package e2e
