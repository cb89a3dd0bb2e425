package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"

	"github.com/spf13/cobra"
	"gorgonia.org/tensor"

	"tailor/kvcache"
	"tailor/model"
	"tailor/model/graph"
	"tailor/model/kernel/blas"
	"tailor/model/tokenizer"
)

const (
	// verifyTolerance is how far the logits of the engine's kernels and of the expression
	// graph may lie apart, as a share of the largest logit: they sum in different orders, and
	// what that changes grows with what is summed.
	verifyTolerance = 1e-5
	// verifyToleranceBF16 is the same for --dtype bf16, whose weights, and on some processors
	// rows too, are rounded to 8 significant bits, while the graph computes in float32.
	verifyToleranceBF16 = 0.02
	// verifyToleranceKV16 is what --kv-dtype bf16 adds: keys and values lose as many bits as
	// weights do then, but only they, and only in attention. On the bundled model's own texts
	// that changes logits by 0.14 % of the largest one.
	verifyToleranceKV16 = 0.01
	// verifyChunk is an odd number of tokens, so that chunks straddle block borders.
	verifyChunk = 7
)

// errDisagree is the verdict of a verification that found a difference.
var errDisagree = errors.New("the passes disagree")

func newVerify() *cobra.Command {
	var (
		path, prompt      string
		tokens, blockSize int
		dtype, kvDType    model.DType
		fastGraph         bool
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the engine's forward pass with an independent one, and hot with cold",
		Long: `Run a prompt through the engine's kernels and through the same network written as a gorgonia
expression graph without any cache, and print the largest difference between their logits.
Then run it cold, from the cache, and in small chunks, and count the logits that differ in any
bit: there must be none. The exit status is 1 where they disagree.

The graph computes in float32, with the weights as the checkpoint has them. Logits may differ
from it by 0.001 % of the largest one; with --dtype bf16, which rounds, by 2 % more, and with
--kv-dtype bf16 by 1 % more. Hot and cold have the same bits with any of them.`,
		Example: `  tailor verify
  tailor verify --model ~/models/gpt2 --prompt 'Alan Turing theorized that computers would one day become'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tokens < 1 {
				return misuse(cmd, "--tokens %d: must be at least 1", tokens)
			}
			if blockSize < 1 || blockSize > 256 {
				return misuse(cmd, "--block-size %d: must be 1 to 256", blockSize)
			}
			folder, err := openFolder(path)
			if err != nil {
				return err
			}
			cfg, err := loadConfig(folder)
			if err != nil {
				return err
			}
			tensors, err := folder.Tensors()
			if err != nil {
				return err
			}
			net, err := model.NewAs(dtype, cfg, tensors)
			if err != nil {
				return err
			}
			oracle, err := graph.New(cfg, tensors)
			if err != nil {
				return err
			}
			tok, err := tokenizer.Load(folder.FS())
			if err != nil {
				return err
			}
			ids, err := tok.Encode(prompt, false)
			if err != nil {
				return err
			}
			if len(ids) == 0 || len(ids)+tokens > cfg.Context {
				return misuse(cmd, "--prompt has %d tokens and --tokens asks for %d: want at least 1 and together at most the context of %d",
					len(ids), tokens, cfg.Context)
			}
			if fastGraph {
				fast := blas.New(runtime.GOMAXPROCS(0))
				defer fast.Close()
				tensor.Use(fast)
			}
			v := &verification{net: net, kvDType: kvDType, tok: tok, out: cmd.OutOrStdout(), prompt: ids, tokens: tokens, blockSize: blockSize}
			fmt.Fprintf(v.out, "model    %s: %d layers, %d heads, width %d, vocabulary %d\nprompt   %d tokens\n",
				folder.Name(), cfg.Layers, cfg.Heads, cfg.Width, cfg.Vocab, len(ids))
			return errors.Join(v.againstGraph(oracle), v.hotAgainstCold())
		},
	}
	flags := cmd.Flags()
	addModelFlag(cmd, &path)
	addDTypeFlag(cmd, &dtype)
	addKVDTypeFlag(cmd, &kvDType)
	flags.StringVar(&prompt, "prompt", "User: I would like to book a table for two people in San Jose tonight.\nAssistant:", "text to run")
	flags.IntVar(&tokens, "tokens", 24, "tokens to generate greedily")
	flags.IntVar(&blockSize, "block-size", 16, "tokens in a KV block, 1 to 256")
	flags.BoolVar(&fastGraph, "fast-graph", false, `multiply the graph's matrices with the engine's kernel, registered as gorgonia's BLAS: several
times faster, but a fault of that kernel would then be in both passes and not be seen`)
	return cmd
}

type verification struct {
	net       *model.Model
	kvDType   model.DType
	tok       *tokenizer.Tokenizer
	out       io.Writer
	prompt    []int32
	tokens    int
	blockSize int
}

// againstGraph compares the logits of every position of the prompt.
func (v *verification) againstGraph(oracle *graph.Graph) error {
	cfg := v.net.Config()
	want, err := oracle.Logits(v.prompt)
	if err != nil {
		return err
	}
	ws := v.net.NewWorkspace(len(v.prompt), 1)
	defer ws.Close()
	got := ws.Forward([]model.Chunk{{
		Tokens: v.prompt,
		KV:     model.NewContiguousKVAs(v.kvDType, cfg, v.blockSize, len(v.prompt)),
		Logits: len(v.prompt),
	}})
	largest, at, scale := 0.0, 0, 0.0
	for i := range want {
		scale = max(scale, math.Abs(float64(want[i])))
		// Written so that a NaN counts as the largest difference there is.
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= largest) {
			largest, at = d, i
		}
	}
	share := verifyTolerance
	if v.net.DType() == model.BF16 {
		share += verifyToleranceBF16
	}
	if v.kvDType == model.BF16 {
		share += verifyToleranceKV16
	}
	limit := share * scale
	fmt.Fprintf(v.out, "graph    largest logit difference %.2g, at position %d, token %d; logits up to %.3g, limit %.2g\n",
		largest, at/cfg.Vocab, at%cfg.Vocab, scale, limit)
	if !(largest < limit) {
		return fmt.Errorf("%w: engine and graph by %g", errDisagree, largest)
	}
	return nil
}

// hotAgainstCold runs the prompt and its greedy continuation cold, again from the cache it
// left behind, and cold in small chunks, and compares bits.
func (v *verification) hotAgainstCold() error {
	cache, err := v.newCache()
	if err != nil {
		return err
	}
	cold, err := v.generate(cache, len(v.prompt))
	if err != nil {
		return err
	}
	hot, err := v.generate(cache, len(v.prompt))
	if err != nil {
		return err
	}
	other, err := v.newCache()
	if err != nil {
		return err
	}
	chunked, err := v.generate(other, verifyChunk)
	if err != nil {
		return err
	}
	hotDiffers, chunkedDiffers := differingBits(cold.logits, hot.logits), differingBits(cold.logits, chunked.logits)
	fmt.Fprintf(v.out, "hot      %d of %d prompt tokens from the cache: %d of %d logits differ in any bit\n",
		hot.cached, len(v.prompt), hotDiffers, len(cold.logits))
	fmt.Fprintf(v.out, "chunked  prefill in chunks of %d: %d of %d logits differ in any bit\n",
		verifyChunk, chunkedDiffers, len(cold.logits))
	fmt.Fprintf(v.out, "greedy   %q\n", v.tok.Decode(cold.tokens))
	switch {
	case cold.cached != 0 || chunked.cached != 0:
		return fmt.Errorf("%w: an empty cache gave %d and %d tokens", errDisagree, cold.cached, chunked.cached)
	case hot.cached == 0 && len(v.prompt)+v.tokens > v.blockSize:
		if len(v.prompt) == 1 {
			return errors.New("hot and cold were not compared: a prompt of one token has nothing to reuse, as the last one is always computed")
		}
		return fmt.Errorf("%w: nothing was reused, so hot and cold were not compared", errDisagree)
	case hotDiffers+chunkedDiffers > 0:
		return fmt.Errorf("%w: %d logits between hot and cold, %d between chunked and whole", errDisagree, hotDiffers, chunkedDiffers)
	}
	return nil
}

func (v *verification) newCache() (*kvcache.Manager, error) {
	cfg := v.net.Config()
	return kvcache.New(kvcache.Config{
		Blocks:    (len(v.prompt)+v.tokens)/v.blockSize + 2,
		BlockSize: v.blockSize,
		Layers:    cfg.Layers,
		Heads:     cfg.Heads,
		HeadDim:   cfg.HeadDim(),
		BFloat16:  v.kvDType == model.BF16,
	})
}

// generation is a greedy continuation: its tokens and the logits each was taken from.
type generation struct {
	cached int
	tokens []int32
	logits []float32
}

// generate runs the prompt in chunks of at most chunk tokens, then decodes greedily.
func (v *verification) generate(cache *kvcache.Manager, chunk int) (*generation, error) {
	s, err := cache.Allocate("", v.prompt)
	if err != nil {
		return nil, err
	}
	defer cache.Free(s)
	ws := v.net.NewWorkspace(len(v.prompt), 1)
	defer ws.Close()
	g := &generation{cached: s.Cached()}
	for len(g.tokens) < v.tokens {
		pending := s.Tokens()[s.Computed():]
		run := pending[:min(chunk, len(pending))]
		c := model.Chunk{Tokens: run, Start: s.Computed(), KV: s}
		if len(run) == len(pending) {
			c.Logits = 1
		}
		row := ws.Forward([]model.Chunk{c})
		cache.Commit(s, len(run))
		if c.Logits == 0 {
			continue
		}
		g.logits = append(g.logits, row...)
		next := argmax(row)
		g.tokens = append(g.tokens, next)
		if err := cache.Append(s, next); err != nil {
			return nil, err
		}
	}
	return g, cache.Check()
}

func argmax(row []float32) int32 {
	best := 0
	for i, x := range row {
		if x > row[best] {
			best = i
		}
	}
	return int32(best)
}

// differingBits counts the positions at which two results are not the same bits.
func differingBits(a, b []float32) int {
	if len(a) != len(b) {
		return max(len(a), len(b))
	}
	n := 0
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			n++
		}
	}
	return n
}
