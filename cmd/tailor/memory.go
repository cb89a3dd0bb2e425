package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tailor/internal/device"
	"tailor/model"
)

// memoryKind is what --kv-memory goes by.
type memoryKind int

const (
	asBlocks  memoryKind = iota // it is not given: --kv-blocks says
	asSize                      // 2GiB
	asPercent                   // 40%
	asAuto                      // auto
	asGPU                       // gpu:0, gpu:0:2
)

// kvMemory is a value of --kv-memory.
type kvMemory struct {
	text     string
	kind     memoryKind
	size     memorySize
	percent  int
	gpu      int
	instance int // of a GPU in MIG mode; -1: the whole GPU
}

var errKVMemory = errors.New("must be a size such as 2GiB, a share such as 40%, auto, gpu:INDEX or gpu:INDEX:INSTANCE")

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *kvMemory) UnmarshalText(b []byte) error {
	text := string(b)
	parsed := kvMemory{text: text, instance: -1}
	switch {
	case text == "auto":
		parsed.kind = asAuto
	case strings.HasSuffix(text, "%"):
		n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
		if err != nil || n < 1 || n > 100 {
			return fmt.Errorf("%q: must be 1%% to 100%%, without a fraction", text)
		}
		parsed.kind, parsed.percent = asPercent, n
	case strings.HasPrefix(text, "gpu:"):
		index, part, parted := strings.Cut(strings.TrimPrefix(text, "gpu:"), ":")
		n, err := strconv.ParseUint(index, 10, 16)
		if err != nil {
			return fmt.Errorf("%q: %w", text, errKVMemory)
		}
		parsed.kind, parsed.gpu = asGPU, int(n)
		if parted {
			if n, err = strconv.ParseUint(part, 10, 16); err != nil {
				return fmt.Errorf("%q: %w", text, errKVMemory)
			}
			parsed.instance = int(n)
		}
	default:
		if err := parsed.size.UnmarshalText(b); err != nil {
			return fmt.Errorf("%w; or a share such as 40%%, auto, or gpu:INDEX", err)
		}
		parsed.kind = asSize
	}
	*m = parsed
	return nil
}

// MarshalText is what was written; nothing for none.
func (m kvMemory) MarshalText() ([]byte, error) { return []byte(m.text), nil }

func addKVMemoryFlag(cmd *cobra.Command, to *kvMemory) {
	cmd.Flags().TextVar(to, "kv-memory", kvMemory{}, fmt.Sprintf(`memory of a replica's pool, in place of --kv-blocks:
2GiB: so much, for each replica
40%%: this share of the host's available memory, for all replicas together
auto: room for --max-sequences sequences of the model's whole context, but not more than half of
  the host's available memory for all replicas together
gpu:0: what a replica alone on that GPU would have for its pool, for each replica; gpu:0:2: on
  the MIG instance 2 of it
All pools together get at most %d %% of the host's available memory`, hostShare))
}

// hostShare is the percentage of the host's available memory that all pools together may
// have: the rest is for activations, answers under way and the collector.
const hostShare = 90

// sizePool settles how many blocks a replica's pool has, by --kv-memory. Of the host's
// memory it counts what is left now that the weights are loaded.
func (f *replicaFlags) sizePool(ctx context.Context, net *model.Model, log *slog.Logger) error {
	host, hostErr := f.machine.host()
	bytes, why, err := f.askedBytes(ctx, net, host, hostErr)
	if err != nil {
		return err
	}
	f.sized = fmt.Sprintf("%s: %s a replica", f.kvMemory.text, device.Size(bytes))
	if why != "" {
		f.sized += ", " + why
	}
	if hostErr != nil {
		log.Warn("the KV pool is not held against the host's memory", "error", hostErr)
	} else if most := host.Available * hostShare / 100 / uint64(f.replicas); bytes > most {
		limit := ""
		if host.Limit != "" {
			limit = ", limited by " + host.Limit
		}
		f.sized += fmt.Sprintf("; capped to %s: %d %% of the host's %s available%s, for %s",
			device.Size(most), hostShare, device.Size(host.Available), limit, plural(f.replicas, "replica"))
		log.Warn("the KV pool is capped by the host's memory", "kv_memory", f.kvMemory.text, "asked_bytes", bytes, "bytes", most,
			"replicas", f.replicas, "host_available_bytes", host.Available, "limited_by", host.Limit)
		bytes = most
	}
	pool := f.pool(net.Config())
	if f.kvBlocks = pool.BlocksFor(int(bytes)); f.kvBlocks == 0 {
		return fmt.Errorf("%d bytes for a replica are less than one block of %d tokens, which takes %d", bytes, f.blockSize, pool.BlockBytes())
	}
	return nil
}

// askedBytes is what --kv-memory asks for, for one replica, and what it goes by.
func (f *replicaFlags) askedBytes(ctx context.Context, net *model.Model, host device.Host, hostErr error) (bytes uint64, why string, err error) {
	shared := uint64(f.replicas)
	switch f.kvMemory.kind {
	case asPercent:
		if hostErr != nil {
			return 0, "", hostErr
		}
		bytes = host.Available * uint64(f.kvMemory.percent) / 100 / shared
		return bytes, fmt.Sprintf("of the host's %s available, for %s", device.Size(host.Available), plural(f.replicas, "replica")), nil
	case asAuto:
		if hostErr != nil {
			return 0, "", hostErr
		}
		cfg := net.Config()
		pool := f.pool(cfg)
		pool.Blocks = f.maxSequences * ((cfg.Context + f.blockSize - 1) / f.blockSize)
		whole, half := uint64(pool.PoolBytes()), host.Available/2/shared
		if whole <= half {
			return whole, fmt.Sprintf("room for %d sequences of %d tokens", f.maxSequences, cfg.Context), nil
		}
		return half, fmt.Sprintf("half of the host's %s available, for %s", device.Size(host.Available), plural(f.replicas, "replica")), nil
	case asGPU:
		report := f.machine.now(ctx)
		memory, err := memoryOf(report, f.kvMemory)
		if err != nil {
			return 0, "", err
		}
		room := memory.Room(f.need(net))
		if room.Pool == 0 {
			return 0, "", fmt.Errorf("%s are free there, and %s of margin, %s of weights and %s of activations leave nothing for blocks",
				device.Size(room.Free), device.Size(room.Margin), device.Size(room.Weights), device.Size(room.Activations))
		}
		return room.Pool, "as that GPU would hold it", nil
	}
	return uint64(f.kvMemory.size), "", nil
}

// memoryOf finds the memory of the GPU or the instance that is asked for.
func memoryOf(r device.Report, ask kvMemory) (device.Memory, error) {
	none := func(format string, args ...any) (device.Memory, error) {
		return device.Memory{}, fmt.Errorf(format, args...)
	}
	switch {
	case r.State != device.Found:
		return none("there is no GPU: %s", r.Reason)
	case ask.gpu >= len(r.GPUs):
		return none("there is no GPU %d: the driver lists %d", ask.gpu, len(r.GPUs))
	}
	g := r.GPUs[ask.gpu]
	memory, reason := g.Memory, g.Reason
	switch {
	case ask.instance >= 0 && g.MIG != device.Enabled:
		return none("GPU %d is not in MIG mode, and has no instances", ask.gpu)
	case ask.instance >= 0:
		found := false
		for _, i := range g.Instances {
			if i.Index == ask.instance {
				memory, reason, found = i.Memory, i.Reason, true
			}
		}
		if !found {
			return none("GPU %d has no MIG instance %d; instances listed: %d", ask.gpu, ask.instance, len(g.Instances))
		}
	case g.MIG == device.Enabled:
		return none("GPU %d is in MIG mode, and an engine runs on an instance of it: name one as in gpu:%d:0; instances listed: %d", ask.gpu, ask.gpu, len(g.Instances))
	}
	if memory == nil {
		return none("the memory of GPU %d is unknown: %s", ask.gpu, reason)
	}
	return *memory, nil
}

// need is what an engine with these options would take of a GPU beside its pool.
func (f *replicaFlags) need(net *model.Model) device.Need {
	return device.Need{
		Utilization: f.gpu.utilization,
		Weights:     uint64(net.Bytes()),
		Activations: activationBytes(net.Config(), f.maxBatchedTokens, f.maxSequences),
	}
}

// activationBytes is the reserve for activations: what a step of the engine keeps at one
// time, in float32. For each token of the batch seven rows of the network's width (the
// residual stream, its norm, queries, keys, values, attention's result and a block's
// output) and one of the feed-forward layer; for each sequence a row of logits.
func activationBytes(cfg model.Config, tokens, sequences int) uint64 {
	return 4 * (uint64(tokens)*uint64(7*cfg.Width+cfg.Inner) + uint64(sequences)*uint64(cfg.Vocab))
}
