// Package kvcache is the paged KV cache of one replica: the float storage, the allocator
// of its blocks, and the radix tree of what is worth keeping, under one owner.
//
// # A sequence's life
//
//	Allocate  matches the longest cached prefix, locks it, evicts if short, takes blocks
//	          for the rest, copies the common rows of a block the match ends in
//	Fork      starts a second sequence with the same computed tokens
//	Append    makes room for one more token, in decode
//	Commit    says that tokens have their keys and values; full blocks enter the tree
//	Free      unlocks, and releases everything
//
// Draw a sequence's rows, with B = 4, after Allocate matched 6 tokens of 11:
//
//	row       0 1 2 3 | 4 5   6 7 | 8 9 10
//	block     0         1           2
//	held by   tree,     this sequence alone
//	          sequences
//	rows      shared    copied, to compute
//	          [-- Cached() --)
//
// From then on the boundaries only move right: [0, Cached()) was reused, [0, Computed())
// has keys and values, [0, Len()) has room. The full blocks of [0, Computed()) are in the
// tree, locked; they are shared and never written again. All blocks after them belong to
// this sequence alone. Rows from Computed() on hold whatever an earlier owner left there;
// nobody reads them before Forward has written them.
//
// # What a row holds
//
// In each layer the keys and the values of one token, as float32, or as bfloat16 in half the
// bytes, of one type for the whole cache: see Config. Whoever writes rows rounds them;
// here they are only handed on and copied, so a row that was reused or copied has the bits
// of the one that was computed. In a block keys lie a column per token,
// [heads][headDim][blockSize], and values a row per token, [heads][blockSize][headDim].
//
// # What can be asked
//
// Match says how much of a prompt is cached, Explain why the rest is not, View what is in
// the tree, Walk block by block, Stats how many blocks there are of each kind, and Check
// whether all of this is consistent. None of them changes anything. Who would rather be
// told of each change is a Sink.
package kvcache
