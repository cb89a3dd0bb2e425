package main

import (
	"math"
	"testing"

	"tailor/model"
)

func TestMemorySize(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "512MiB": 512 << 20, "2GiB": 2 << 30, "3 KiB": 3 << 10, "1TiB": 1 << 40, "7B": 7,
		"5kB": 5000, "4MB": 4e6, "4GB": 4e9, "2TB": 2e12, "9223372036854775807": math.MaxInt64,
	} {
		var got memorySize
		if err := got.UnmarshalText([]byte(text)); err != nil || int64(got) != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "0", "-1MiB", "1.5GiB", "1gib", "12 parsecs", "9223372036854775808", "8388608TiB", "1e3"} {
		got := memorySize(5)
		if err := got.UnmarshalText([]byte(text)); err == nil || got != 5 {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// What --kv-memory gives is the most that fits, and never more than was asked for.
func TestKVMemoryIsExact(t *testing.T) {
	net := model.Config{Layers: 4, Heads: 4, Width: 256}
	const block = 4 * 2 * 256 * 16 * 4 // bytes: layers, keys and values, width, tokens, float32
	for bytes, want := range map[int]int{block - 1: 0, block: 1, 1024*block - 1: 1023, 1024*block + 5: 1024, 128 << 20: 1024} {
		for kind, factor := range map[model.DType]int{model.Auto: 1, model.F32: 1, model.BF16: 2} {
			f := replicaFlags{blockSize: 16, kvDType: kind}
			if got := f.pool(net).BlocksFor(bytes / factor); got != want {
				t.Errorf("%v, %d bytes: %d blocks, want %d", kind, bytes/factor, got, want)
			}
		}
	}
}
