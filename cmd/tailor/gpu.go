package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"tailor/internal/device"
	"tailor/model"
)

// bundledName asks for the bundled model where to leave the flag out means no model.
const bundledName = "bundled"

func newGPU() *cobra.Command {
	var (
		asJSON bool
		flags  replicaFlags
	)
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "List the GPUs' memory as NVML reports it, or say why there is none",
		Long: `List each GPU's memory, its state and the processes on it as NVML, the driver's management
library, reports them, or say why there is none. With --model, say how many KV blocks the free
memory of each would hold, with the arithmetic. Nothing is computed on a GPU: Tailor's
transformer computes on the CPU, and no GPU is needed.`,
		Example: `  tailor gpu
  tailor gpu --json
  tailor gpu --model ~/models/gpt2 --kv-dtype bf16 --gpu-memory-utilization 0.8`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.gpu.validate(cmd); err != nil {
				return err
			}
			switch {
			case flags.blockSize < 1 || flags.blockSize > 256:
				return misuse(cmd, "--block-size %d: must be 1 to 256", flags.blockSize)
			case flags.maxBatchedTokens < 1 || flags.maxSequences < 1:
				return misuse(cmd, "--max-batched-tokens %d, --max-sequences %d: must be 1 or more", flags.maxBatchedTokens, flags.maxSequences)
			}
			m := newMachine(device.Options{Library: flags.gpu.library, Processes: true})
			report := m.now(cmd.Context())
			var plan *plan
			if flags.model != "" {
				var err error
				if plan, err = flags.plan(report, given(cmd, "kv-dtype")); err != nil {
					return err
				}
			}
			out := cmd.OutOrStdout()
			if asJSON {
				encoder := json.NewEncoder(out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(struct {
					readings
					Plan any `json:"plan,omitempty"`
				}{m.readings(report), plan.orNil()})
			}
			if _, err := fmt.Fprintln(out, report); err != nil || plan == nil {
				return err
			}
			return plan.write(out)
		},
	}
	own := cmd.Flags()
	own.BoolVar(&asJSON, "json", false, "print the report as JSON")
	own.StringVar(&flags.model, "model", "", "checkpoint folder in Hugging Face's layout, or "+bundledName+": also say how many KV blocks would fit")
	addDTypeFlag(cmd, &flags.dtype)
	own.TextVar(&flags.kvDType, "kv-dtype", model.Auto, "what keys and values are kept in: f32 or bf16 (default: both are shown)")
	own.IntVar(&flags.blockSize, "block-size", 16, "tokens in a KV block, 1 to 256")
	own.IntVar(&flags.maxBatchedTokens, "max-batched-tokens", 512, "tokens in one step of the engine, for the activations' reserve")
	own.IntVar(&flags.maxSequences, "max-sequences", 64, "sequences at one time, for the logits in that reserve")
	flags.gpu.add(cmd)
	return cmd
}
