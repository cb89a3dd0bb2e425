package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"tailor/internal/device"
	"tailor/model"
)

// plan says what pools would fit into the GPUs' free memory beside a model.
type plan struct {
	Model       string      `json:"model"`
	Weights     string      `json:"weight_formats"`
	Utilization float64     `json:"gpu_memory_utilization"`
	Pools       []poolPlan  `json:"pools"`
	Unknown     []poolCause `json:"unknown"`

	cfg               model.Config
	tokens, sequences int // that the activations are for
}

// poolPlan is one pool on one GPU.
type poolPlan struct {
	GPU     string `json:"gpu"` // index, or index:instance
	Total   uint64 `json:"total_bytes"`
	KVDType string `json:"kv_dtype"`
	device.Room
	BlockTokens int `json:"block_tokens"`
	BlockBytes  int `json:"block_bytes"`
	Blocks      int `json:"blocks"`
	Tokens      int `json:"tokens"`
}

// poolCause says why nothing is known of a GPU.
type poolCause struct {
	GPU    string `json:"gpu"`
	Reason string `json:"reason"`
}

// plan loads the model and fits pools of one type, or of both, into each GPU.
func (f *replicaFlags) plan(r device.Report, oneType bool) (*plan, error) {
	path := f.model
	if path == bundledName {
		path = ""
	}
	c, err := loadCheckpoint(path, f.dtype)
	if err != nil {
		return nil, err
	}
	p := &plan{
		Model: c.name, Weights: strings.Join(c.net.Formats(), " and "), Utilization: f.gpu.utilization,
		Pools: []poolPlan{}, Unknown: []poolCause{},
		cfg: c.net.Config(), tokens: f.maxBatchedTokens, sequences: f.maxSequences,
	}
	types := []model.DType{model.F32, model.BF16}
	if oneType {
		types = []model.DType{f.kvDType}
	}
	add := func(gpu string, memory *device.Memory, reason string) {
		if memory == nil {
			p.Unknown = append(p.Unknown, poolCause{gpu, reason})
			return
		}
		for _, t := range types {
			f.kvDType = t
			pool := f.pool(p.cfg)
			one := poolPlan{
				GPU: gpu, Total: memory.Total, KVDType: kvType(t).String(), Room: memory.Room(f.need(c.net)),
				BlockTokens: f.blockSize, BlockBytes: pool.BlockBytes(),
			}
			one.Blocks = pool.BlocksFor(int(min(one.Pool, math.MaxInt)))
			one.Tokens = one.Blocks * f.blockSize
			p.Pools = append(p.Pools, one)
		}
	}
	for _, g := range r.GPUs {
		if g.MIG != device.Enabled {
			add(strconv.Itoa(g.Index), g.Memory, g.Reason)
			continue
		}
		for _, i := range g.Instances {
			add(fmt.Sprintf("%d:%d", g.Index, i.Index), i.Memory, i.Reason)
		}
	}
	return p, nil
}

// orNil is the plan for JSON, where none must not be an empty one.
func (p *plan) orNil() any {
	if p == nil {
		return nil
	}
	return p
}

// write shows the arithmetic, a line for each number.
func (p *plan) write(to io.Writer) error {
	var s strings.Builder
	c := p.cfg
	for _, one := range p.Pools {
		fmt.Fprintf(&s, "\n%s on GPU %s, KV in %s:\n\n", p.Model, one.GPU, one.KVDType)
		w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', tabwriter.AlignRight)
		line := func(sign string, bytes uint64, what string, args ...any) {
			fmt.Fprintf(w, "%s\t%d B\t%s\t  %s\n", sign, bytes, device.Size(bytes), fmt.Sprintf(what, args...))
		}
		line("", one.Free, "free")
		line("-", one.Margin, "left alone: all but %v of %d B in total", p.Utilization, one.Total)
		line("-", one.Weights, "weights in %s, as they are run, in whole pages of 2 MiB", p.Weights)
		line("-", one.Activations, "activations: (%d tokens x (7 x %d + %d) + %d sequences x %d logits) x 4 B", p.tokens, c.Width, c.Inner, p.sequences, c.Vocab)
		if one.Pool == 0 {
			line("=", 0, "for blocks: it does not fit")
		} else {
			line("=", one.Pool, "for blocks")
		}
		perNumber := one.BlockBytes / (c.Layers * 2 * c.Width * one.BlockTokens)
		line(":", uint64(one.BlockBytes), "a block: %d layers x 2 (keys, values) x %d heads x %d x %d tokens x %d B", c.Layers, c.Heads, c.HeadDim(), one.BlockTokens, perNumber)
		_ = w.Flush() // a strings.Builder does not fail
		fmt.Fprintf(&s, "=  %d blocks, %d tokens\n", one.Blocks, one.Tokens)
	}
	for _, u := range p.Unknown {
		fmt.Fprintf(&s, "\nGPU %s: no pool can be planned: %s\n", u.GPU, u.Reason)
	}
	_, err := io.WriteString(to, s.String())
	return err
}
