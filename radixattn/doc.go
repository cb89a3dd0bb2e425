// Package radixattn keeps a radix tree from token prefixes to the KV blocks that hold
// their keys and values.
//
// The tree is token-level: an edge may be split at any token, children are told apart by
// their first token, and every comparison is of tokens, never of hashes. There is one
// root per salt, so that two salts share nothing.
//
// # Which node owns which block
//
// Block k of a path holds the rows of its positions [k*B, (k+1)*B). A node covers the
// positions [start, end) and owns the blocks whose LAST row falls into them. A block
// that spans the point where two prompts part therefore belongs to the children, each of
// which has its own copy of the common rows (B = 4, prompts part at position 6):
//
//	position      0 1 2 3   4 5 | 6 7   8 9 10 11
//	parent        a b c d   e f |                   owns block 0
//	child 1                     | g h   i j k  l    owns block 1 (e f g h) and block 2
//	child 2                     | x y               owns block 1 (e f x y)
//
// Only full blocks enter the tree, so leaves end at a block boundary. A match that ends
// at a position p inside a block takes the rows [p - p%B, p) from the block of any
// descendant: each of them holds these rows (in the picture, p = 6 and either block 1).
//
// # A prefix's life
//
//	Match   finds the longest cached prefix.             changes nothing
//	Lock    protects it and everything above it.         splits where the lock ends; a hit
//	Share   locks the same once more.                    not a hit
//	Insert  adds the full blocks computed since.         moves the lock to their end
//	Unlock  lets go; the path is now the most recent.    joins what no longer needs a split
//	Evict   takes blocks nobody locks, LRU or LFU.       returns their ids
//
// The tree holds block ids and never calls an allocator: whoever owns both keeps the ref
// counts. It is not safe for concurrent use: one goroutine owns a tree and its locks.
package radixattn
