package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tailor/model/kernel"
)

// DType is the type that weight matrices are kept in. Norms, biases and positions are
// float32 always.
type DType int

// The types.
const (
	// Auto keeps each matrix in the fewest bytes that hold its weights exactly, so that
	// results have the bits of F32: a checkpoint stored in 16 bits stays in them.
	Auto DType = iota
	// F32 keeps float32, whatever the checkpoint was stored in.
	F32
	// BF16 rounds weights to bfloat16, to nearest, ties to even. Where the processor
	// multiplies pairs of bfloat16 the rows that meet the weights are rounded too, once
	// before each matrix; sums are float32 everywhere.
	BF16
)

// dtypes are the names of the types, in their order.
var dtypes = []string{"auto", "f32", "bf16"}

func (d DType) String() string {
	if d < 0 || int(d) >= len(dtypes) {
		return "DType(" + strconv.Itoa(int(d)) + ")"
	}
	return dtypes[d]
}

// MarshalText is the type's name: auto, f32 or bf16.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets the type by its name.
func (d *DType) UnmarshalText(name []byte) error {
	i := slices.Index(dtypes, string(name))
	if i < 0 {
		return fmt.Errorf("%w %q: want %s", ErrDType, name, strings.Join(dtypes, ", "))
	}
	*d = DType(i)
	return nil
}

// format is how a matrix is kept.
func (d DType) format(weights []float32) kernel.Format {
	switch d {
	case F32:
		return kernel.Float32
	case BF16:
		return kernel.BFloat16Pairs
	}
	return kernel.Exact(weights)
}
