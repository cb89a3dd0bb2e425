package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/kvcache"
	"tailor/model"
	"tailor/model/tokenizer"
	"tailor/server"
	"tailor/server/engine"
	"tailor/weights"
)

// addDrainFlag is for the commands that serve until they are stopped.
func addDrainFlag(cmd *cobra.Command, to *time.Duration) {
	cmd.Flags().DurationVar(to, "drain-timeout", 30*time.Second, "how long answers under way may still take once the process is told to stop")
}

// defaultBlocks gives a replica of the bundled model 16,384 tokens of cache in 128 MiB. That
// holds all that the lesson sends to any one of its 16 replicas.
const defaultBlocks = 1024

// replicaFlags are the options of an engine, the same for one replica and for many.
type replicaFlags struct {
	model            string
	dtype            model.DType
	kvDType          model.DType
	kvBlocks         int
	kvMemory         kvMemory
	gpu              gpuFlags
	blockSize        int
	eviction         kvcache.Eviction
	threads          int
	maxBatchedTokens int
	maxSequences     int
	maxWaiting       int
	maxWaitingTokens int
	schedule         string
	requestTimeout   time.Duration
	check            bool
	access           accessFlags
	drain            time.Duration // 0: a stopping replica waits for nobody

	replicas int      // how many share the machine; set by validate
	machine  *machine // set by load; nil: nothing is said of it
	sized    string   // how the pool came to its size, for people; empty: by --kv-blocks
}

// add defines the flags; a pool has the given number of blocks where none is asked for.
func (f *replicaFlags) add(cmd *cobra.Command, blocks int) {
	addModelFlag(cmd, &f.model)
	addDTypeFlag(cmd, &f.dtype)
	addKVDTypeFlag(cmd, &f.kvDType)
	flags := cmd.Flags()
	flags.IntVar(&f.kvBlocks, "kv-blocks", blocks, "KV blocks in a replica's pool")
	addKVMemoryFlag(cmd, &f.kvMemory)
	f.gpu.add(cmd)
	flags.TextVar(&f.eviction, "eviction", kvcache.LRU, "which blocks leave the cache first: lru (used longest ago) or lfu (reused least often)")
	flags.IntVar(&f.blockSize, "block-size", 16, "tokens in a KV block, 1 to 256")
	flags.IntVar(&f.threads, "threads", 0, "threads that a replica computes with; 0 shares the cores evenly among the replicas")
	flags.IntVar(&f.maxBatchedTokens, "max-batched-tokens", 512, "tokens in one step of the engine, prefill and decode together")
	flags.IntVar(&f.maxSequences, "max-sequences", 64, "sequences that a replica runs at one time")
	flags.IntVar(&f.maxWaiting, "max-waiting", 256, "requests that may wait for a replica; beyond it answers 429")
	flags.IntVar(&f.maxWaitingTokens, "max-waiting-tokens", 0, "prompt tokens that may wait for a replica; beyond them it answers 429; 0: any number")
	flags.StringVar(&f.schedule, "schedule", string(engine.FCFS), fmt.Sprintf(`which waiting request is next: fcfs (first come, first served) or longest_prefix (who has
most of its prompt cached; for at most %d steps past an older one)`, engine.Patience))
	flags.DurationVar(&f.requestTimeout, "request-timeout", 0, "cancel requests that take longer, with 504; 0: never")
	flags.BoolVar(&f.check, "check", false, "prove the KV cache's invariants at each idle moment (slow)")
}

func addModelFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "model", "", "checkpoint folder in Hugging Face's layout (default: the bundled model)")
}

func addDTypeFlag(cmd *cobra.Command, to *model.DType) {
	cmd.Flags().TextVar(to, "dtype", model.Auto, `what weights are kept in: auto (as the checkpoint stores them, as long as that changes no
bit of any result), f32, or bf16 (rounded; twice as fast where the processor multiplies bfloat16)`)
}

func addKVDTypeFlag(cmd *cobra.Command, to *model.DType) {
	cmd.Flags().TextVar(to, "kv-dtype", model.Auto, `what keys and values are kept in: auto (f32), f32, or bf16 (rounded once, when they are stored;
half the bytes of a block)`)
}

// validate checks the ranges and settles what depends on the number of replicas.
func (f *replicaFlags) validate(cmd *cobra.Command, replicas int) error {
	for _, bound := range []struct {
		flag      string
		value     int
		low, high int
	}{
		{"--kv-blocks", f.kvBlocks, 1, 1 << 28},
		{"--block-size", f.blockSize, 1, 256},
		{"--threads", f.threads, 0, 1024},
		{"--max-batched-tokens", f.maxBatchedTokens, 1, 1 << 20},
		{"--max-sequences", f.maxSequences, 1, 1 << 16},
		{"--max-waiting", f.maxWaiting, 1, 1 << 20},
		{"--max-waiting-tokens", f.maxWaitingTokens, 0, 1 << 40},
	} {
		if bound.value < bound.low || bound.value > bound.high {
			return misuse(cmd, "%s %d: must be %d to %d", bound.flag, bound.value, bound.low, bound.high)
		}
	}
	if _, err := engine.ParseSchedule(f.schedule); err != nil {
		return misuse(cmd, "--schedule: %v", err)
	}
	if f.requestTimeout < 0 || f.drain < 0 {
		return misuse(cmd, "--request-timeout %v, --drain-timeout %v: must be 0 or more", f.requestTimeout, f.drain)
	}
	if f.model == "" && cmd.Flags().Changed("model") {
		return misuse(cmd, "--model \"\": name a folder, or leave the flag out for the bundled model")
	}
	if err := f.gpu.validate(cmd); err != nil {
		return err
	}
	f.replicas = replicas
	if f.threads == 0 {
		f.threads = max(1, runtime.GOMAXPROCS(0)/replicas)
	}
	return f.access.validate(cmd)
}

// checkpoint is what replicas in one process share: the network with its weights, which
// never change, and the tokenizer.
type checkpoint struct {
	name      string
	net       *model.Model
	tokenizer *tokenizer.Tokenizer
	files     fs.FS // the folder's
}

// openFolder returns the checkpoint folder at path, or the bundled one for "".
func openFolder(path string) (*weights.Folder, error) {
	if path == "" {
		return weights.Bundled(), nil
	}
	return weights.Open(path)
}

// loadConfig reads the network's shape.
func loadConfig(folder *weights.Folder) (model.Config, error) {
	text, err := fs.ReadFile(folder.FS(), "config.json")
	if err != nil {
		return model.Config{}, err
	}
	return model.ParseConfig(text)
}

func loadCheckpoint(path string, dtype model.DType) (*checkpoint, error) {
	folder, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	cfg, err := loadConfig(folder)
	if err != nil {
		return nil, err
	}
	tensors, err := folder.Tensors()
	if err != nil {
		return nil, err
	}
	net, err := model.NewAs(dtype, cfg, tensors)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(folder.FS())
	if err != nil {
		return nil, err
	}
	if tok.VocabSize() > cfg.Vocab {
		return nil, fmt.Errorf("%s: the tokenizer makes ids up to %d, the network knows %d", folder.Name(), tok.VocabSize()-1, cfg.Vocab)
	}
	return &checkpoint{name: folder.Name(), net: net, tokenizer: tok, files: folder.FS()}, nil
}

// replica is one engine with its own KV cache behind its own address.
type replica struct {
	id     string
	url    string
	engine *engine.Engine
}

// startReplica listens at once and serves until ctx ends; then it drains. Its goroutines
// belong to group.
func startReplica(ctx context.Context, group *errgroup.Group, c *checkpoint, f *replicaFlags, id, listen string, log *slog.Logger) (*replica, error) {
	log = log.With("replica", id)
	kv, err := kvcache.New(f.pool(c.net.Config()))
	if err != nil {
		return nil, err
	}
	if f.fits(kv.Config(), log) {
		kv.Touch()
	}
	template, err := f.access.template(c)
	if err != nil {
		return nil, err
	}
	plain, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: replica %s cannot be reached on %s: %w", id, listen, err)
	}
	listener, scheme := secure(plain, f.access.tls)
	eng := engine.New(c.net, kv, engine.Config{
		MaxBatchedTokens: f.maxBatchedTokens,
		MaxSequences:     f.maxSequences,
		MaxWaiting:       f.maxWaiting,
		MaxWaitingTokens: f.maxWaitingTokens,
		Schedule:         engine.Schedule(f.schedule),
		RequestTimeout:   f.requestTimeout,
		Threads:          f.threads,
		Check:            f.check,
	}, log)
	describeDevices, gauges := f.machine.export()
	api := server.New(server.Config{
		Devices: describeDevices,
		Gauges:  gauges,

		Engine:    eng,
		Tokenizer: c.tokenizer,
		ModelName: c.name,
		Context:   c.net.Config().Context,
		BlockSize: f.blockSize,
		Replica:   id,
		Version:   version(),
		Log:       log,
		View:      func(ctx context.Context, limit int) (any, error) { return eng.View(ctx, limit) },

		Template:          template,
		Keys:              f.access.keys,
		IsolateKeys:       f.access.isolateKeys,
		RequestsPerMinute: f.access.requestsPerMinute,
		AllowedOrigins:    f.access.allowedOrigins,
		Settings:          f.settings(),
	})
	// The engine outlives ctx for as long as the answers under way may take.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		return errors.Join(eng.Run(engineCtx), kv.Close())
	})
	group.Go(func() error {
		defer stopEngine()
		drain := func() { api.SetDraining(true) }
		return server.Serve(ctx, server.NewHTTPServer(api.Handler(), log), listener, drain, f.drain)
	})
	return &replica{id: id, url: scheme + "://" + listener.Addr().String(), engine: eng}, nil
}

// kvType is the type that keys and values are kept in: auto is f32.
func kvType(asked model.DType) model.DType {
	if asked == model.Auto {
		return model.F32
	}
	return asked
}

// settings are the options that the engine runs with, for GET /get_server_info.
func (f *replicaFlags) settings() map[string]any {
	return map[string]any{
		"threads": f.threads, "max_batched_tokens": f.maxBatchedTokens, "max_sequences": f.maxSequences,
		"max_waiting": f.maxWaiting, "max_waiting_tokens": f.maxWaitingTokens, "schedule": f.schedule, "kv_dtype": kvType(f.kvDType),
		"request_timeout": f.requestTimeout.String(), "eviction": f.eviction, "check": f.check,
	}
}
