// Package tokenizer turns text into GPT-2's token ids and back.
//
// GPT-2 tokenizes in three steps, a file each:
//
//	split.go      text    -> pieces: words, numbers, punctuation, runs of white space
//	alphabet.go   piece   -> one symbol per byte (a vocabulary file spells a byte as a letter)
//	merge.go      symbols -> tokens: join the neighbours whose merge was learned first
//
// The merge table and the list of symbols are those of github.com/sugarme/tokenizer's BPE
// model. Splitting and the order of merging are our own. sugarme's ByteLevel splits at
// ASCII white space only and has no look-ahead. Its Word.MergeAll breaks ties between equal
// ranks by a time stamp that it never sets, so "aaaaa" is merged in whatever order the heap
// has; its MergeWord copies all symbols for each one it adds (8 s for a word of 16,000
// letters). And its pipeline answers some errors with log.Fatal, which a server cannot
// have. The tests compare with sugarme's alphabet, and with its merging where no
// part of a word repeats.
//
// # Rules
//
// Special tokens (<|endoftext|>) are made from text only if the caller asks for it: a
// user's prompt that spells one is ordinary text. Decode spells them out.
//
// Invalid UTF-8 becomes U+FFFD in both directions, one for each maximal prefix of a
// well-formed character, else one for each byte: the Unicode standard's recommendation
// (chapter 3, "U+FFFD Substitution of Maximal Subparts"), which Python's and Rust's lossy
// decoders follow. An id that the vocabulary lacks decodes to U+FFFD too.
//
// No token is added that the text does not spell: GPT-2 has no begin-of-sequence token.
package tokenizer
