package model

// Chunk is a run of consecutive tokens of one sequence: a piece of a prompt in
// prefill, or a single token in decode. A ragged batch is a slice of chunks, each of
// another sequence; the bits of a chunk's results do not depend on its neighbours.
type Chunk struct {
	// Tokens are the token ids to run, at positions Start, Start+1, ...
	Tokens []int32
	// Start is the position of Tokens[0]. Rows [0, Start) of KV must already hold
	// the keys and values of the sequence's earlier tokens.
	Start int
	// KV is the sequence's key and value storage. Forward writes rows
	// [Start, Start+len(Tokens)) of every layer and reads rows [0, Start+len(Tokens)).
	KV KV
	// Logits is how many of the chunk's last positions yield logits: 0 in the
	// middle of a prompt, 1 at its end and in decode, len(Tokens) to score a text.
	Logits int
}

// KV gives access to the keys and values of one sequence, stored in blocks of a fixed
// number of token rows. Block b holds positions [b*BlockSize, (b+1)*BlockSize).
//
// Keys are stored transposed, one column per token, so that a score kernel computes
// neighbouring tokens in neighbouring vector lanes; values are stored a row per token.
//
// They are float32, or bfloat16 in half the bytes, as the bits of a uint16. Of Keys and
// Keys16, and of Values and Values16, only those of the type at hand may be called; the
// others panic. Forward rounds keys and values to bfloat16 once, to nearest, ties to even,
// when it writes them, and attends to them as written, those of the same chunk too: so a
// result does not depend on which of them were there before.
//
// All slices alias the storage and stay valid until the sequence is changed or freed.
// Forward calls the methods from several goroutines at once.
type KV interface {
	// BlockSize is the number of token rows in a block.
	BlockSize() int
	// BFloat16 says that keys and values are bfloat16.
	BFloat16() bool
	// Keys returns a layer's keys of one block: [heads][headDim][blockSize].
	Keys(layer, block int) []float32
	// Values returns a layer's values of one block: [heads][blockSize][headDim].
	Values(layer, block int) []float32
	// Keys16 returns a layer's keys of one block in bfloat16, as Keys has them.
	Keys16(layer, block int) []uint16
	// Values16 returns a layer's values of one block in bfloat16, as Values has them.
	Values16(layer, block int) []uint16
}
