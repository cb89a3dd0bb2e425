// Package weights reads checkpoint folders in Hugging Face's layout.
//
// A folder holds config.json, the tokenizer's files, and the tensors: model.safetensors,
// or model.safetensors.index.json and the shards that it names. Files may come from
// anywhere, so nothing in them is trusted: every fault is an error that names the tensor
// and the byte, nothing is sized by a number in a file before the file is known to hold that
// many bytes, and each tensor is read through a buffer of fixed size, so that the float32
// result is all the memory that a checkpoint takes.
//
// The package also embeds the bundled model, with which the server runs without a
// download.
package weights
