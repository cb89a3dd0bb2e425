package main

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tailor/internal/device"
	"tailor/kvcache"
	"tailor/model"
)

// memorySize is a number of bytes as people write it: 512MiB, 2GiB, 4GB, 1000000.
type memorySize int64

var memoryUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalText reads a whole number and a unit. Fractions are refused, so that what is
// written is what is meant, to the byte.
func (m *memorySize) UnmarshalText(text []byte) error {
	for _, unit := range memoryUnits {
		digits, found := strings.CutSuffix(string(text), unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/unit.bytes {
			break
		}
		*m = memorySize(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q: must be a whole number of bytes, KiB, MiB, GiB or TiB (or kB, MB, GB, TB), such as 512MiB", text)
}

// pool is the cache that the flags ask for, for a network of that shape.
func (f *replicaFlags) pool(net model.Config) kvcache.Config {
	return kvcache.Config{
		Blocks: f.kvBlocks, BlockSize: f.blockSize, Eviction: f.eviction, BFloat16: f.kvDType == model.BF16,
		Layers: net.Layers, Heads: net.Heads, HeadDim: net.HeadDim(),
	}
}

// load reads the checkpoint.
func (f *replicaFlags) load() (*checkpoint, error) {
	c, err := loadCheckpoint(f.model, f.dtype)
	if err != nil {
		return nil, err
	}
	f.machine = newMachine(device.Options{Library: f.gpu.library})
	return c, nil
}

// size settles how many blocks the memory asked for holds, which depends on the network's
// shape, on the number of replicas, and on what the machine has left beside the weights.
func (f *replicaFlags) size(cmd *cobra.Command, net *model.Model) error {
	if f.kvMemory.kind == asBlocks {
		return nil
	}
	if given(cmd, "kv-blocks") {
		return misuse(cmd, "--kv-memory and --kv-blocks: give one of them")
	}
	log, err := newLogger(cmd)
	if err != nil {
		return err
	}
	if err := f.sizePool(cmd.Context(), net, log); err != nil {
		return misuse(cmd, "--kv-memory %s: %w", f.kvMemory.text, err)
	}
	return nil
}

// fits says whether the memory that the host has left holds a whole pool. One that is larger
// gets its memory as blocks are first written, which some workloads never do.
func (f *replicaFlags) fits(pool kvcache.Config, log *slog.Logger) bool {
	if f.machine == nil {
		return true
	}
	host, err := f.machine.host()
	if err != nil {
		return true
	}
	most := host.Available / 100 * hostShare
	if uint64(pool.PoolBytes()) <= most {
		return true
	}
	log.Warn("the KV pool is larger than the memory left: its blocks are backed as they are first written, which costs time and may fail",
		"bytes", pool.PoolBytes(), "host_available_bytes", host.Available, "limited_by", host.Limit)
	return false
}

// describePool says what a replica's cache takes, exactly.
func describePool(c *checkpoint, flags *replicaFlags) string {
	pool := flags.pool(c.net.Config())
	bytes := pool.PoolBytes()
	return fmt.Sprintf("%d KV blocks of %d tokens in %v, %.4g MiB (%d bytes), %v eviction, %s",
		pool.Blocks, pool.BlockSize, kvType(flags.kvDType), float64(bytes)/(1<<20), bytes, pool.Eviction, plural(flags.threads, "thread"))
}
