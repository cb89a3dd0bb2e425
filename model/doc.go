// Package model runs GPT-2-class language models: a [Model] is a checkpoint's weights,
// packed once and shared; a [Workspace] runs forward passes of it over ragged batches,
// reading and writing keys and values through the [KV] of each sequence.
//
// The logits of a position have the same bits however the tokens before it were
// computed: in one pass or in chunks, beside any other sequences, in blocks of any
// size, with any number of threads, or taken from a cache. Package kernel says how. That
// holds for keys and values in float32 and for those in bfloat16, each in itself: which of
// the two a KV has is part of what is computed.
package model
