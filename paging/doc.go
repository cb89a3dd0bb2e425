// Package paging hands out the fixed-size blocks of a KV cache by number.
//
// It knows neither floats nor tokens: a block is a [BlockID], an [Allocator] says who
// may hold it how often, and a [BlockTable] lists the blocks of one sequence in order.
// Where the rows of a block lie, and what they mean, is the business of package kvcache.
package paging
