package main

import (
	"context"
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

// drainTimeout bounds how long a stopping process waits for answers that are under way.
const drainTimeout = 30 * time.Second

// defaultBlocks gives a replica of the bundled model 16,384 tokens of cache in 128 MiB.
const defaultBlocks = 1024

// replicaFlags are the options of an engine, the same for one replica and for many.
type replicaFlags struct {
	model            string
	kvBlocks         int
	blockSize        int
	threads          int
	maxBatchedTokens int
	maxSequences     int
	maxWaiting       int
	check            bool
}

// add defines the flags; a pool has the given number of blocks where none is asked for.
func (f *replicaFlags) add(cmd *cobra.Command, blocks int) {
	addModelFlag(cmd, &f.model)
	flags := cmd.Flags()
	flags.IntVar(&f.kvBlocks, "kv-blocks", blocks, "KV blocks in a replica's pool")
	flags.IntVar(&f.blockSize, "block-size", 16, "tokens in a KV block, 1 to 256")
	flags.IntVar(&f.threads, "threads", 0, "threads that a replica computes with; 0 shares the cores evenly among the replicas")
	flags.IntVar(&f.maxBatchedTokens, "max-batched-tokens", 512, "tokens in one step of the engine, prefill and decode together")
	flags.IntVar(&f.maxSequences, "max-sequences", 64, "sequences that a replica runs at one time")
	flags.IntVar(&f.maxWaiting, "max-waiting", 256, "requests that may wait for a replica; beyond it answers 429")
	flags.BoolVar(&f.check, "check", false, "prove the KV cache's invariants at each idle moment (slow)")
}

func addModelFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "model", "", "checkpoint folder in Hugging Face's layout (default: the bundled model)")
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
	} {
		if bound.value < bound.low || bound.value > bound.high {
			return misuse(cmd, "%s %d: must be %d to %d", bound.flag, bound.value, bound.low, bound.high)
		}
	}
	if f.threads == 0 {
		f.threads = max(1, runtime.GOMAXPROCS(0)/replicas)
	}
	return nil
}

// checkpoint is what replicas in one process share: the network with its weights, which
// never change, and the tokenizer.
type checkpoint struct {
	name      string
	net       *model.Model
	tokenizer *tokenizer.Tokenizer
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

func loadCheckpoint(path string) (*checkpoint, error) {
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
	net, err := model.New(cfg, tensors)
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
	return &checkpoint{name: folder.Name(), net: net, tokenizer: tok}, nil
}

// newManager returns an empty KV cache of the flags' size for the network.
func newManager(net *model.Model, f *replicaFlags) (*kvcache.Manager, error) {
	cfg := net.Config()
	return kvcache.New(kvcache.Config{
		Blocks:    f.kvBlocks,
		BlockSize: f.blockSize,
		Layers:    cfg.Layers,
		Heads:     cfg.Heads,
		HeadDim:   cfg.HeadDim(),
	})
}

// replica is one engine with its own KV cache behind its own address.
type replica struct {
	id  string
	url string
}

// startReplica listens at once and serves until ctx ends; then it drains. Its goroutines
// belong to group.
func startReplica(ctx context.Context, group *errgroup.Group, c *checkpoint, f *replicaFlags, id, listen string, log *slog.Logger) (*replica, error) {
	log = log.With("replica", id)
	kv, err := newManager(c.net, f)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	eng := engine.New(c.net, kv, engine.Config{
		MaxBatchedTokens: f.maxBatchedTokens,
		MaxSequences:     f.maxSequences,
		MaxWaiting:       f.maxWaiting,
		Threads:          f.threads,
		Check:            f.check,
	}, log)
	api := server.New(server.Config{
		Engine:    eng,
		Tokenizer: c.tokenizer,
		ModelName: c.name,
		Context:   c.net.Config().Context,
		BlockSize: f.blockSize,
		Replica:   id,
		Version:   version(),
		Log:       log,
	})
	// The engine outlives ctx for as long as the answers under way may take.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return eng.Run(engineCtx) })
	group.Go(func() error {
		defer stopEngine()
		drain := func() { api.SetDraining(true) }
		return server.Serve(ctx, server.NewHTTPServer(api.Handler(), log), listener, drain, drainTimeout)
	})
	return &replica{id: id, url: "http://" + listener.Addr().String()}, nil
}
